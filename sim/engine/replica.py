"""One replica: vLLM's V1 scheduler on one KV cache and one clock, with implicit decoding and fast-forward.

docs/engine.md says rule by rule what it does. A decoding sequence is not touched by a step: it is a term in
`_num_decodes`, `_context_offset` and `_block_phase`, and an entry in the heap of finish steps. A run of decode steps
that nothing can interrupt but an arrival is one *run*, an arithmetic series of step times; an arrival cuts it at the
next boundary.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import Final

from sim.engine.blocks import BlockPool, ContentPaths, Match, Node, Path
from sim.engine.preemption import PreemptionPolicy, PreemptLast
from sim.engine.queues import FcfsQueue, KeyedQueue, WaitingQueue
from sim.engine.requests import RequestTable
from sim.engine.scheduling import Fcfs, SchedulingPolicy
from sim.engine.stats import ReplicaStats
from sim.errors import InputError
from sim.latency import StepTime

NEVER: Final = 1 << 61
MOST_PREEMPTIONS: Final = 100_000  # of one request; a policy of the user's that goes beyond would go on for ever
_ORDER_BITS: Final = 28  # a finish step and an order of admission share one heap key
_ORDER_MASK: Final = (1 << 28) - 1
_PRIVATE: Final = 1 << 40  # keys of private content: above every interned key


@dataclass(slots=True)
class EngineConfig:
    """What the scheduler of one replica is configured with."""

    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    enable_prefix_caching: bool = True
    async_scheduling: bool = True
    long_prefill_token_threshold: int = 0
    scheduling: SchedulingPolicy = field(default_factory=Fcfs)
    preemption: PreemptionPolicy = field(default_factory=PreemptLast)


class Sequence:
    """A running request: first it prefills, then it decodes, then (its last token made, or being made) it is finishing.

    While it decodes its context after step s is `offset` + s, and it is a part of the replica's sums.
    """

    __slots__ = (
        "blocks",
        "computed",
        "decoding",
        "duplicate",
        "emitted",
        "finish_step",
        "finishing",
        "in_window",
        "index",
        "node",
        "offset",
        "order",
        "registered",
        "target",
    )

    def __init__(self, index: int, order: int, target: int, emitted: int, node: Node, registered: int) -> None:
        self.index = index
        self.order = order  # of admission
        self.target = target  # tokens that its prefill computes or finds
        self.emitted = emitted  # before this admission
        self.node = node  # the last cached node it holds
        self.registered = registered  # blocks up to the end of that node
        self.duplicate = False
        self.computed = 0
        self.blocks = registered  # held, while it prefills
        self.decoding = False
        self.offset = 0
        self.in_window = False
        self.finish_step = -1
        self.finishing = False


class Replica:
    """Simulates one replica. Feed it with `enqueue` in order of time, `advance` before each; read the table after."""

    def __init__(self, table: RequestTable, config: EngineConfig, step_time: StepTime, paths: ContentPaths) -> None:
        self.next_ps = NEVER  # the next boundary that needs attention
        self.num_waiting = 0  # requests queued and not running
        self.finished: list[int] | None = None  # where to note who finishes, if anybody wants to know
        self.stats: Final = ReplicaStats()
        self.pool: Final = BlockPool(config.num_blocks)
        self._table: Final = table
        self._block_size: Final = config.block_size
        self._max_num_seqs: Final = config.max_num_seqs
        self._max_num_batched_tokens: Final = config.max_num_batched_tokens
        self._threshold: Final = config.long_prefill_token_threshold
        self._caching: Final = config.enable_prefix_caching
        self._async: Final = config.async_scheduling
        self._preemption: Final = config.preemption
        self._step_time: Final = step_time
        self._paths: Final = paths
        self._content_path: dict[int, Path] = {}
        self._private_path: dict[int, Path] = {}  # of requests that were preempted
        self._decode_cost: dict[int, tuple[int, int, int, int]] = {}
        self._window: Final = step_time.window
        self._fcfs: Final = type(config.scheduling) is Fcfs  # one derived from it has a key of its own
        self._waiting: Final[WaitingQueue] = FcfsQueue() if self._fcfs else KeyedQueue(config.scheduling)
        self._running: dict[int, Sequence] = {}  # by order of admission
        self._prefilling: list[Sequence] = []
        self._finishing: list[Sequence] = []  # their last token is being made
        self._leave_ps = NEVER  # when they leave, if no boundary is handled then
        self._finish_heap: list[int] = []
        self._window_heap: list[int] = []
        self._orders = 0
        self._emitted: dict[int, int] = {}  # of requests that were preempted
        self._last_token_ps: dict[int, int] = {}  # of requests that were preempted while decoding
        # the decoding sequences, summed
        self._num_decodes = 0
        self._context_offset = 0
        self._block_phase: Final[list[int]] = [0] * config.block_size
        self._num_in_window = 0
        self._window_offset = 0
        # composed steps
        self._composed = -1
        self._ahead_ps = 0  # duration of the step composed ahead (asynchronous scheduling); 0: none
        self._ahead_ending: list[Sequence] = []
        self._ending: list[Sequence] = []  # whose prefill ends in the step just composed
        self._executing_end_ps = 0
        self._preempted_now = False
        # the planned run: `_run_steps` steps from `_composed` + 1 on, of `_run_first_ps` + i `_run_slope_ps`
        self._run_steps = 0
        self._run_start_ps = 0
        self._run_first_ps = 0
        self._run_slope_ps = 0
        self._run_paid_blocks = 0  # of its first step, taken already

    # -- what the cluster calls --------------------------------------------------------------------------------------

    def enqueue(self, index: int, queue_ps: int) -> None:
        """Queue a request that fits max_model_len and the cache; every boundary before `queue_ps` has been handled."""
        table = self._table
        table.queue_ps[index] = queue_ps
        priority = table.priority[index] if table.priority is not None else 0
        self._waiting.push(index, priority, table.prompt_tokens[index], queue_ps)
        stats = self.stats
        stats.requests += 1
        self.num_waiting += 1
        if self.num_waiting > stats.peak_waiting:
            stats.peak_waiting = self.num_waiting
        if self.next_ps == NEVER:
            self.next_ps = queue_ps
        elif (
            self._run_steps > 1
            and (self.num_waiting == 1 or not self._fcfs)
            and len(self._running) - len(self._finishing) < self._max_num_seqs
        ):
            self._commit_run(self._steps_by(queue_ps))

    def advance(self, until_ps: int) -> None:
        """Handle every boundary at a time strictly before `until_ps`."""
        while self.next_ps < until_ps:
            self._boundary()
        if self._leave_ps < until_ps:
            self._leave()

    def close(self, at_ps: int) -> None:
        """The simulation ends at `at_ps`: what a run of decodes has done by then counts."""
        if self._run_steps:
            self._commit_run(self._steps_by(at_ps))

    @property
    def due_ps(self) -> int:
        """When something happens next if nothing is queued before: a boundary, or the finishing leave."""
        return self._leave_ps if self._leave_ps < self.next_ps else self.next_ps

    def cached_blocks(self, index: int, at_ps: int) -> int:
        """Leading full blocks of a request's prompt that the prefix cache holds; the boundaries strictly before
        `at_ps` have been handled.
        """
        if not self._caching:
            return 0
        path = self._path(index)
        if not path or path[0][0] not in self.pool.root.children:
            return 0
        limit = (self._table.prompt_tokens[index] - 1) // self._block_size
        match = self.pool.match(path, limit)
        if match.free_blocks and self._run_steps and self._blocks_of_run(self._steps_by(at_ps)) > 0:
            self._commit_run(self._steps_by(at_ps))  # the run may have evicted them
            match = self.pool.match(path, limit)
        return match.num_blocks

    @property
    def num_running(self) -> int:
        """Requests that hold a seat."""
        return len(self._running)

    def used_blocks(self, at_ps: int) -> int:
        """Blocks held after the boundaries strictly before `at_ps`, which is not before the last one handled."""
        used = self.pool.num_blocks - self.pool.free
        if self._run_steps:
            used += self._blocks_of_run(self._steps_by(at_ps))
        return used

    # -- boundaries --------------------------------------------------------------------------------------------------

    def _boundary(self) -> None:
        """What happens at `next_ps`: completion, then composition."""
        now = self.next_ps
        if self._run_steps:
            self._commit_run(self._run_steps)
        if self._leave_ps < now:
            self._leave()
        if self._async:
            self._boundary_async(now)
            return
        self._retire(self._composed)
        if self._finishing:
            self._leave_ps = now
            self._leave()
        duration = self._compose_something(now)
        if self._run_steps:
            self._plan(now)
        elif duration:
            self._start(now, duration, self._ending)
            self.next_ps = now + duration
        else:
            self.next_ps = NEVER

    def _boundary_async(self, now: int) -> None:
        """The step composed ahead starts, and the one after it is composed."""
        duration = self._ahead_ps
        if duration:
            if self._finishing:  # the step that ends made their last token
                self._leave_ps = now
                self._leave()
            self._ahead_ps = 0
            ending = self._ahead_ending
        else:
            self._retire(self._composed)
            if self._finishing:
                self._leave_ps = now
                self._leave()
            duration = self._compose_something(now)
            if self._run_steps:  # one step of it now; the composition ahead goes on
                self._run_steps = 1
                duration = self._run_first_ps
                self._run_start_ps = now
                self._commit_run(1)
                self._ahead_ps = 0
            if duration == 0:
                self.next_ps = NEVER
                return
            ending = self._ending
        end = now + duration
        self._executing_end_ps = end
        if ending:
            self._start(now, duration, ending)
        duration = self._compose(now)
        if self._run_steps:
            self._plan(end)
        else:
            self._ahead_ps = duration
            self._ahead_ending = self._ending
            self.next_ps = end

    def _start(self, now: int, duration: int, ending: list[Sequence]) -> None:
        """A step starts that ends the prefill of `ending`."""
        end = now + duration
        self._executing_end_ps = end
        table = self._table
        for sequence in ending:
            index = sequence.index
            if table.first_token_ps[index] < 0:
                table.first_token_ps[index] = end
            elif index in self._last_token_ps:
                self.stats.inter_token(end - self._last_token_ps.pop(index), 0, 1, 1)

    def _leave(self) -> None:
        """The finishing have got their last token, at `_leave_ps`: they give back seat and blocks."""
        now = self._leave_ps
        self._leave_ps = NEVER
        table = self._table
        for sequence in self._finishing:
            index = sequence.index
            prompt_tokens = table.prompt_tokens[index]
            self._release(sequence, prompt_tokens + table.output_tokens[index] - 1)
            self.stats.completed_prompt_tokens += prompt_tokens
            table.finish_ps[index] = now
            if self.finished is not None:
                self.finished.append(index)
        self.stats.completed += len(self._finishing)
        self._finishing.clear()

    def _retire(self, step: int) -> None:
        """Those whose last token `step` or an earlier one makes are finishing: they decode no more."""
        heap = self._finish_heap
        limit = (step + 1) << _ORDER_BITS
        while heap and heap[0] < limit:
            sequence = self._running.get(heapq.heappop(heap) & _ORDER_MASK)
            if sequence is None:  # preempted since
                continue
            if sequence.decoding:
                self._leave_decoding(sequence)
            sequence.finishing = True
            self._finishing.append(sequence)

    def _release(self, sequence: Sequence, tokens: int) -> None:
        """Free the seat and the blocks of a sequence that holds blocks for `tokens` tokens."""
        del self._running[sequence.order]
        size = self._block_size
        self.pool.release(sequence.node, sequence.registered, (tokens + size - 1) // size)

    # -- sums over the decoding --------------------------------------------------------------------------------------

    def _join_decoding(self, sequence: Sequence, step: int) -> None:
        """From step + 1 on the sequence decodes; its context after `step` is its target."""
        offset = sequence.target - step
        sequence.offset = offset
        sequence.decoding = True
        self._num_decodes += 1
        self._context_offset += offset
        size = self._block_size
        self._block_phase[(1 - offset) % size] += 1
        if self._window and sequence.target < self._window:
            sequence.in_window = True
            self._num_in_window += 1
            self._window_offset += offset
            heapq.heappush(self._window_heap, ((self._window - offset + 1) << _ORDER_BITS) | sequence.order)

    def _leave_decoding(self, sequence: Sequence) -> None:
        offset = sequence.offset
        sequence.decoding = False
        self._num_decodes -= 1
        self._context_offset -= offset
        self._block_phase[(1 - offset) % self._block_size] -= 1
        self._leave_window(sequence)

    def _leave_window(self, sequence: Sequence) -> None:
        if sequence.in_window:
            sequence.in_window = False
            self._num_in_window -= 1
            self._window_offset -= sequence.offset

    def _cross_window(self, step: int) -> None:
        """Sequences whose context exceeds the window at `step` count as the window from now on."""
        heap = self._window_heap
        limit = (step + 1) << _ORDER_BITS
        while heap and heap[0] < limit:
            sequence = self._running.get(heapq.heappop(heap) & _ORDER_MASK)
            if sequence is not None:
                self._leave_window(sequence)

    def _window_context(self, step: int) -> int:
        """Sum of min(context, window) over the decoding sequences after `step`."""
        outside = self._num_decodes - self._num_in_window
        return self._window_offset + self._num_in_window * step + outside * self._window

    # -- runs of decode steps ----------------------------------------------------------------------------------------

    def _plan(self, start: int) -> None:
        """The run just composed starts at `start`; the boundary that ends it is what needs attention next."""
        self._run_start_ps = start
        steps = self._run_steps
        if self._async:
            steps -= 1
            if steps and self._finishing:
                self._leave_ps = start
        self.next_ps = start + steps * self._run_first_ps + self._run_slope_ps * (steps * (steps - 1) // 2)

    def _steps_by(self, at_ps: int) -> int:
        """How many steps of the run are composed by the boundaries strictly before `at_ps`: at least 1, at most all."""
        elapsed = at_ps - self._run_start_ps
        ahead = 1 if self._async else 0
        if elapsed <= 0:
            return 1
        first = self._run_first_ps
        slope = self._run_slope_ps
        # the largest j with j first + slope j (j - 1) / 2 < elapsed: a float estimate, put right in integers
        b = float(2 * first - slope)
        j = int(4.0 * elapsed / (b + math.sqrt(b * b + 8.0 * slope * elapsed))) if b > 0 else 0
        while j > 0 and j * first + slope * (j * (j - 1) // 2) >= elapsed:
            j -= 1
        while (j + 1) * first + slope * ((j + 1) * j // 2) < elapsed:
            j += 1
        steps = j + 1 + ahead
        return steps if steps < self._run_steps else self._run_steps

    def _blocks_of_run(self, steps: int) -> int:
        """Blocks that the first `steps` steps of the run need beyond those taken."""
        size = self._block_size
        phases = self._block_phase
        blocks = steps // size * self._num_decodes - self._run_paid_blocks
        first = self._composed + 1
        for step in range(first, first + steps % size):
            blocks += phases[step % size]
        return blocks

    def _commit_run(self, steps: int) -> None:
        """The first `steps` steps of the run happen, and the run ends with them."""
        first = self._run_first_ps
        slope = self._run_slope_ps
        used = self.pool.num_blocks - self.pool.free
        blocks = self._blocks_of_run(steps)
        total = steps * first + slope * (steps * (steps - 1) // 2)
        self.stats.steps_done(first, slope, steps, total, self._num_decodes, 2 * used + blocks, len(self._running))
        if blocks > 0:
            self.pool.take(blocks)
        self._composed += steps
        self._run_steps = 0
        self._run_paid_blocks = 0
        self.next_ps = self._run_start_ps + total
        if self._async:
            last = first + (steps - 1) * slope
            self.next_ps -= last
            self._ahead_ps = last
            self._ahead_ending = []
            if self._leave_ps >= self.next_ps:
                self._leave_ps = NEVER  # the boundary does it
        self._executing_end_ps = self.next_ps

    def _run_length(self, step: int, paid: int) -> int:
        """How many decode steps from `step` on have one batch and enough blocks; 1 where more is not sure."""
        if self._preempted_now or (self._finishing and (self.num_waiting or self.finished is not None)):
            return 1
        heap = self._finish_heap
        while heap[0] & _ORDER_MASK not in self._running:
            heapq.heappop(heap)
        steps = (heap[0] >> _ORDER_BITS) - step + 1
        if self._window_heap:
            crossing = (self._window_heap[0] >> _ORDER_BITS) - step
            if crossing < steps:
                steps = crossing
        size = self._block_size
        free = self.pool.free + paid
        if (steps // size + 1) * self._num_decodes > free:
            fit = free // self._num_decodes * size
            left = free % self._num_decodes
            phases = self._block_phase
            while fit < steps:
                left -= phases[(step + fit) % size]
                if left < 0:
                    break
                fit += 1
            if fit < steps:
                steps = fit
        return steps if steps > 1 else 1

    # -- composition -------------------------------------------------------------------------------------------------

    def _compose_something(self, now: int) -> int:
        """Compose with nothing executing: again at once if a composition did nothing but preempt."""
        duration = self._compose(now)
        while duration == 0 and self._preempted_now and not self._run_steps:
            duration = self._compose(now)
        return duration

    def _compose(self, now: int) -> int:
        """Compose the next step; returns its duration, 0 if it schedules nothing or is planned as a run of decodes."""
        step = self._composed + 1
        heap = self._finish_heap
        if heap and heap[0] < step << _ORDER_BITS:
            self._retire(step - 1)
        if self._window_heap:
            self._cross_window(step)
        self._preempted_now = False
        self._ending = []
        batch: _Prefills | None = None
        paid = 0  # blocks taken for the decodes of this step
        need = self._block_phase[step % self._block_size]
        budget = self._max_num_batched_tokens - self._num_decodes
        if self._prefilling or need > self.pool.free:
            batch = _Prefills()
            budget = self._schedule_running(step, need, budget, batch)
            paid = need = self._block_phase[step % self._block_size]
        steady = True
        if self.num_waiting and not self._preempted_now and budget > 0 and len(self._running) < self._max_num_seqs:
            if batch is None:
                batch = _Prefills()
            if need > paid:
                self.pool.take(need - paid)
                paid = need
            steady = self._admit(budget, batch, now)
        if batch is None or batch.num_prefills == 0:
            if self._num_decodes:
                self._compose_run(step, paid, steady)
            return 0
        if need > paid:
            self.pool.take(need - paid)
        return self._finish_mixed(step, batch)

    def _compose_run(self, step: int, paid: int, steady: bool) -> None:
        """Plan a run of decode steps that starts with `step`."""
        decodes = self._num_decodes
        cost = self._decode_cost.get(decodes)
        if cost is None:
            cost = (*self._step_time.decode(decodes), self._step_time.floor(decodes))
            self._decode_cost[decodes] = cost
        constant, per_context, per_window, floor = cost
        first = constant + per_context * (self._context_offset + decodes * step)
        slope = per_context * decodes
        if self._window:
            first += per_window * self._window_context(step)
            slope += per_window * self._num_in_window
        steps = self._run_length(step, paid) if steady else 1
        if first < floor:  # as long as it is, every step takes the floor
            if slope and steps > 1:
                steps = min(steps, (floor - first) // slope + 1)
            first, slope = floor, 0
        if first < 1:
            first = 1
        self._run_first_ps = first
        self._run_slope_ps = slope
        self._run_paid_blocks = paid
        self._run_steps = steps

    def _finish_mixed(self, step: int, batch: _Prefills) -> int:
        """The duration of a step with prefill chunks; whoever ends its prefill in it decodes from the next on."""
        decodes = self._num_decodes
        context = self._context_offset + decodes * step
        window_context = self._window_context(step) if self._window else 0
        duration = self._step_time.mixed(
            decodes,
            context,
            window_context,
            batch.num_prefills,
            batch.tokens,
            batch.pairs,
            batch.window_pairs,
            batch.context,
            decodes + len(self._ending),
        )
        if duration < 1:
            duration = 1
        used = self.pool.num_blocks - self.pool.free
        self.stats.steps_done(duration, 0, 1, duration, decodes, 2 * used, len(self._running))
        table = self._table
        for sequence in self._ending:
            left = table.output_tokens[sequence.index] - sequence.emitted - 1
            sequence.finish_step = step + left
            heapq.heappush(self._finish_heap, ((step + left) << _ORDER_BITS) | sequence.order)
            if left:
                self._join_decoding(sequence, step)
        self._composed = step
        return duration

    def _schedule_running(self, step: int, need: int, budget: int, batch: _Prefills) -> int:
        """Schedule running requests, taking their blocks (`need` for the decodes); returns the budget left."""
        chunks: list[int] = []
        threshold = self._threshold
        size = self._block_size
        for sequence in self._prefilling:
            chunk = sequence.target - sequence.computed
            if threshold and chunk > threshold:
                chunk = threshold
            if chunk > budget:
                chunk = budget
            budget -= chunk
            chunks.append(chunk)
            need += (sequence.computed + chunk + size - 1) // size - sequence.blocks
        if need > self.pool.free:
            return self._schedule_short(step, batch)
        self.pool.take(need)
        prefilling = self._prefilling
        self._prefilling = []
        for position, sequence in enumerate(prefilling):
            self._take_chunk(sequence, chunks[position], batch)
        return budget

    def _schedule_short(self, step: int, batch: _Prefills) -> int:
        """Schedule running requests one by one where blocks are too few for all, so that somebody is preempted."""
        size = self._block_size
        threshold = self._threshold
        budget = self._max_num_batched_tokens
        pool = self.pool
        granted: dict[int, int] = {}  # tokens, by order of admission
        for order, sequence in list(self._running.items()):
            if order not in self._running or sequence.finishing:
                continue
            if sequence.decoding:
                tokens = 1
                held = sequence.offset + step - 1
            else:
                tokens = sequence.target - sequence.computed
                if threshold and tokens > threshold:
                    tokens = threshold
                if tokens > budget:
                    tokens = budget
                held = sequence.computed
            need = (held + tokens + size - 1) // size - (held + size - 1) // size
            while need > pool.free and order in self._running:
                victim = self._choose_victim()
                given = granted.pop(victim.order, 0)
                budget += given
                self._preempt(victim, step, given)
            if order in self._running:
                pool.take(need)
                granted[order] = tokens
                budget -= tokens
        prefilling = [sequence for sequence in self._prefilling if sequence.order in self._running]
        self._prefilling = []
        for sequence in prefilling:
            self._take_chunk(sequence, granted[sequence.order], batch)
        return budget

    def _take_chunk(self, sequence: Sequence, chunk: int, batch: _Prefills) -> None:
        """Account for the next chunk of a running prefill, whose blocks are taken."""
        if chunk:
            batch.add(sequence.computed, chunk, self._window)
            self._computed(sequence, sequence.computed + chunk)
        if sequence.computed == sequence.target:
            self._ending.append(sequence)
        else:
            self._prefilling.append(sequence)

    def _computed(self, sequence: Sequence, tokens: int) -> None:
        """The sequence's prefill has got as far as `tokens`: its full blocks become findable."""
        size = self._block_size
        sequence.computed = tokens
        sequence.blocks = (tokens + size - 1) // size
        if self._caching and not sequence.duplicate:
            self._register(sequence, tokens // size)

    def _register(self, sequence: Sequence, full: int) -> None:
        path = self._path(sequence.index)
        if path:
            sequence.node, sequence.registered, sequence.duplicate = self.pool.register(
                sequence.node, sequence.registered, path, full
            )

    def _path(self, index: int) -> Path:
        """Where the request's content lies in the prefix cache: with its private content once it was preempted."""
        path = self._private_path.get(index)
        if path is None:
            content = self._table.content[index]
            path = self._content_path.get(content)
            if path is None:
                path = self._paths.path(self._table.contents[content])
                self._content_path[content] = path
        return path

    def _admit(self, budget: int, batch: _Prefills, now: int) -> bool:
        """Admit waiting requests; returns whether no waiting one can join a run of decodes before something ends."""
        table = self._table
        size = self._block_size
        threshold = self._threshold
        pool = self.pool
        waiting = self._waiting
        while self.num_waiting and budget > 0 and len(self._running) < self._max_num_seqs:
            index = waiting.head()
            emitted = self._emitted.get(index, 0)
            target = table.prompt_tokens[index] + emitted
            node = pool.root
            match: Match | None = None
            hit = 0
            free_hit = 0
            if self._caching:
                path = self._path(index)
                if path:
                    match = pool.match(path, (target - 1) // size)
                    hit = match.num_blocks
                    free_hit = match.free_blocks
            chunk = target - hit * size
            if threshold and chunk > threshold:
                chunk = threshold
            if chunk > budget:
                chunk = budget
            need = (chunk + size - 1) // size
            if need + free_hit > pool.free:
                return free_hit == 0  # else its own hits may be evicted, and then it may fit
            waiting.pop()
            self.num_waiting -= 1
            if match is not None and hit:
                node = pool.hold(match)
            pool.take(need)
            budget -= chunk
            self._seat(index, emitted, target, node, hit, chunk, batch, now)
        return True

    def _seat(
        self, index: int, emitted: int, target: int, node: Node, hit: int, chunk: int, batch: _Prefills, now: int
    ) -> None:
        """A waiting request starts to run, with `hit` cached blocks that end at `node`, and a first chunk."""
        table = self._table
        cached = hit * self._block_size
        self.stats.hit_tokens += cached
        self.stats.looked_up_tokens += target
        if table.scheduled_ps[index] < 0:
            table.scheduled_ps[index] = now
            table.cached_tokens[index] = cached
        sequence = Sequence(index, self._orders, target, emitted, node, hit)
        self._running[self._orders] = sequence
        self._orders += 1
        sequence.computed = cached
        self._take_chunk(sequence, chunk, batch)

    # -- preemption
    # --------------------------------------------------------------------------------------------

    def _choose_victim(self) -> Sequence:
        table = self._table
        running = [sequence for sequence in self._running.values() if not sequence.finishing]
        candidates = [
            (
                table.priority[sequence.index] if table.priority is not None else 0,
                table.queue_ps[sequence.index],
                sequence.index,
            )
            for sequence in running
        ]
        return running[self._preemption.victim(candidates)]

    def _preempt(self, victim: Sequence, step: int, granted: int) -> None:
        """Take seat and blocks from a sequence, which was granted tokens in the composition of `step` or not."""
        table = self._table
        index = victim.index
        size = self._block_size
        computed = victim.computed
        emitted = victim.emitted
        if victim.decoding:
            computed = victim.offset + step - 1
            emitted = table.output_tokens[index] - (victim.finish_step - step + 1)
            self._leave_decoding(victim)
            self._last_token_ps[index] = self._executing_end_ps
        if emitted:
            self._emitted[index] = emitted
        if self._caching:
            if index not in self._private_path:
                self._private_path[index] = [*self._path(index), (_PRIVATE + index, NEVER)]
            if not victim.duplicate:
                self._register(victim, computed // size)
        self._release(victim, computed + granted)
        self._preempted_now = True
        table.preemptions[index] += 1
        if table.preemptions[index] > MOST_PREEMPTIONS:
            problem = f"request {index} was preempted {MOST_PREEMPTIONS} times: the policy lets nobody finish"
            raise InputError("deployment.preemption", problem)
        self.stats.preemptions += 1
        priority = table.priority[index] if table.priority is not None else 0
        self.num_waiting += 1
        self._waiting.push_preempted(index, priority, table.prompt_tokens[index], table.queue_ps[index])


class _Prefills:
    """The prefill chunks of a step, as the step time wants them (see `StepTime.mixed`)."""

    __slots__ = ("context", "num_prefills", "pairs", "tokens", "window_pairs")

    def __init__(self) -> None:
        self.num_prefills = 0
        self.tokens = 0
        self.pairs = 0
        self.window_pairs = 0
        self.context = 0

    def add(self, computed: int, chunk: int, window: int) -> None:
        self.num_prefills += 1
        self.tokens += chunk
        self.pairs += chunk * computed + chunk * (chunk + 1) // 2
        self.context += computed + chunk
        if window:
            inside = window - computed
            if inside < 0:
                inside = 0
            elif inside > chunk:
                inside = chunk
            self.window_pairs += inside * computed + inside * (inside + 1) // 2 + (chunk - inside) * window
