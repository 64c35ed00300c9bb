"""One replica: the scheduler on a clock, with implicit decoding and fast-forward.

docs/engine.md says rule by rule what it does. A decoding sequence is not touched by a step: it is a term of the sums in
`Decoding`, and an entry in the heap of finish steps. A run of decode steps that nothing can interrupt but an arrival is
one *run*, an arithmetic series of step times; an arrival cuts it at the next boundary.
"""

from __future__ import annotations

import math
from typing import Final

from sim.engine.batch import Prefills, Sequence
from sim.engine.blocks import ContentPaths
from sim.engine.decoding import ORDER_BITS
from sim.engine.link import Link
from sim.engine.nodes import Path
from sim.engine.requests import RequestTable
from sim.engine.scheduler import EngineConfig, Scheduler
from sim.latency import StepTime

NEVER: Final = 1 << 61


class Replica(Scheduler):
    """Simulates one replica. Feed it with `enqueue` in order of time, `advance` before each; read the table after."""

    def __init__(self, table: RequestTable, config: EngineConfig, step_time: StepTime, paths: ContentPaths) -> None:
        super().__init__(table, config, step_time.window, paths)
        self.next_ps = NEVER  # the next boundary that needs attention
        self.finished: list[int] | None = None  # where to note who finishes, if anybody wants to know
        self._waits_for_load = False  # no step executes, and `next_ps` is when a load ends
        self._prefill_costs: Final[dict[int, int]] = {}
        self.keeps_blocks = False  # who leaves keeps its blocks, until `let_go`
        self._async: Final = config.async_scheduling
        self._step_time: Final = step_time
        self._decode_cost: Final[dict[int, tuple[int, int, int, int]]] = {}
        self._leave_ps = NEVER  # when the finishing leave, if no boundary is handled then
        self._idle_ps = 0  # since when no step executes; -1: one does
        # composed steps
        self._composed = -1
        self._ahead_ps = 0  # duration of the step composed ahead (asynchronous scheduling); 0: none
        self._ahead_ending: list[Sequence] = []
        # the planned run: `_run_steps` steps from `_composed` + 1 on, of `_run_first_ps` + i `_run_slope_ps`
        self._run_steps = 0
        self._run_start_ps = 0
        self._run_first_ps = 0
        self._run_slope_ps = 0
        self._run_paid_blocks = 0  # of its first step, taken already

    # -- what the cluster calls --------------------------------------------------------------------------------------

    def enqueue(self, index: int, queue_ps: int) -> None:
        """Queue a request that `reject_longer` let pass; every boundary before `queue_ps` has been handled."""
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
            and (self.num_waiting - self._num_aside == 1 or not self._fcfs)
            and len(self._running) - len(self._finishing) < self._max_num_seqs
        ):
            self._commit_run(self._steps_by(queue_ps))
        elif self._waits_for_load and queue_ps < self.next_ps:
            self.next_ps = queue_ps

    def enqueue_remote(self, index: int, queue_ps: int, tokens: int, link: Link) -> None:
        """Queue a request of whose prompt the KV of the first `tokens` tokens lies elsewhere, and comes over `link`.

        The link must be of this replica. What the replica's own cache holds of them does not travel, and the last
        token of the prompt is computed here in any case.
        """
        self._remote[index] = (tokens, link)
        self.enqueue(index, queue_ps)

    def let_go(self, index: int, at_ps: int) -> None:
        """The blocks that a request which has left kept are free; every boundary before `at_ps` has been handled."""
        if self._idle_ps >= 0:
            self._hold_idle(at_ps)
        self.pool.release(*self._kept.pop(index))
        if self.starved and at_ps < self.next_ps:
            self.next_ps = at_ps

    @property
    def starved(self) -> bool:
        """Whether requests wait for blocks, and no step executes."""
        return self.num_waiting > self._num_aside and (self.next_ps == NEVER or self._waits_for_load)

    def advance(self, until_ps: int) -> None:
        """Handle every boundary at a time strictly before `until_ps`."""
        while self.next_ps < until_ps:
            self._boundary()
        if self._leave_ps < until_ps:
            self._leave()

    def close(self, at_ps: int) -> None:
        """The simulation ends at `at_ps`: what a run of decodes has done by then counts, and of the steps that go on
        beyond it the time until then."""
        if self._run_steps:
            self._commit_run(self._steps_by(at_ps))
        elif 0 <= self._idle_ps < at_ps:
            self._hold_idle(at_ps)
        beyond_ps = self._executing_end_ps + self._ahead_ps - at_ps
        if at_ps > 0 and beyond_ps > 0:
            self.stats.cut(beyond_ps, self.pool.num_blocks - self.pool.free, len(self._running))

    @property
    def due_ps(self) -> int:
        """When something happens next if nothing is queued before: a boundary, or the finishing leave."""
        return self._leave_ps if self._leave_ps < self.next_ps else self.next_ps

    def cached_blocks(self, index: int, at_ps: int) -> int:
        """Leading full blocks of a request's prompt that the prefix cache holds; the boundaries strictly before
        `at_ps` have been handled.
        """
        path = self._path(index)
        return self.cached_of(path, self.cacheable_blocks(index), at_ps) if path else 0

    def content_path(self, index: int) -> Path:
        """Where the content of a request that was never queued lies in a prefix cache, the same in each replica."""
        return self._path(index)

    def cacheable_blocks(self, index: int) -> int:
        """How many leading blocks of its prompt a request could find cached: all that leave a token to compute."""
        return (self._table.prompt_tokens[index] - 1) // self._block_size

    def cached_of(self, path: Path, limit: int, at_ps: int) -> int:
        """Leading blocks of `path`, at most `limit`, that the prefix cache holds, as for `cached_blocks`."""
        _, _, num_blocks, free_blocks, _ = self.pool.walk(path, limit)
        if free_blocks and self._run_steps and self._run_may_evict(at_ps):
            self._commit_run(self._steps_by(at_ps))
            _, _, num_blocks, _, _ = self.pool.walk(path, limit)
        return num_blocks

    def _run_may_evict(self, at_ps: int) -> bool:
        """Whether the steps of the run by `at_ps` take blocks in which something is cached."""
        most = (self._run_steps // self._block_size + 1) * self._decoding.num
        return not self.pool.spares(most) and not self.pool.spares(self._blocks_of_run(self._steps_by(at_ps)))

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
        if self._idle_ps >= 0:
            self._hold_idle(now)
            self._idle_ps = -1
        if self._leave_ps < now:
            self._leave()  # before the run counts its seats and blocks: it starts with their last token
        if self._run_steps:
            self._commit_run(self._run_steps)
        if self._num_loading:
            self._waits_for_load = False
            self._wake(now)
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
            self._sleep(now)

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
                self._sleep(now)
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

    def _sleep(self, now: int) -> None:
        """No step starts: what happens next is that a load ends, if one goes on, or that a request is queued."""
        self._idle_ps = now
        self._waits_for_load = self._num_loading > 0
        self.next_ps = self._aside.next_end_ps() if self._num_loading else NEVER

    def _hold_idle(self, now: int) -> None:
        """Up to now no step has executed: those put aside, and those whose KV is kept, have held their blocks."""
        self.stats.held_idle(self.pool.num_blocks - self.pool.free, now - self._idle_ps)
        self._idle_ps = now

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
            computed = prompt_tokens + table.output_tokens[index] - 1
            if self._answers_shared and not sequence.duplicate:
                self._register(sequence, computed // self._block_size)
            if self.keeps_blocks:
                del self._running[sequence.order]
                self._kept[index] = (sequence.node, sequence.registered, self._blocks_of(sequence, computed))
            else:
                self._release(sequence, computed)
            self.stats.completed_prompt_tokens += prompt_tokens
            table.finish_ps[index] = now
            if self.finished is not None:
                self.finished.append(index)
        self.stats.completed += len(self._finishing)
        self._finishing.clear()

    # -- runs of decode steps ----------------------------------------------------------------------------------------

    def _plan(self, start: int) -> None:
        """The run just composed starts at `start`; the boundary that ends it is what needs attention next."""
        self._run_start_ps = start
        if self._num_loading and self._run_steps > 1:
            self._run_steps = self._steps_by(self._aside.next_end_ps())  # as if a request were queued then
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
        return self._decoding.new_blocks(self._composed + 1, steps) - self._run_paid_blocks

    def _commit_run(self, steps: int) -> None:
        """The first `steps` steps of the run happen, and the run ends with them."""
        first = self._run_first_ps
        slope = self._run_slope_ps
        used = self.pool.num_blocks - self.pool.free
        blocks = self._blocks_of_run(steps)
        total = steps * first + slope * (steps * (steps - 1) // 2)
        self.stats.steps_done(first, slope, steps, total, self._decoding.num, 2 * used + blocks, len(self._running))
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
        decoding = self._decoding
        heap = decoding.finish_heap
        if heap and heap[0] < step << ORDER_BITS:
            self._retire(step - 1)
        if decoding.window_heap:
            decoding.cross_window(step)
        self._preempted_now = False
        self._ending = []
        batch: Prefills | None = None
        paid = 0  # blocks taken for the decodes of this step
        need = decoding.block_phase[step % self._block_size]
        budget = self._max_num_batched_tokens - decoding.num
        if self._prefilling or need > self.pool.free:
            batch = Prefills()
            budget = self._schedule_running(step, need, budget, batch)
            paid = need = decoding.block_phase[step % self._block_size]
        steady = True
        queued = self.num_waiting > self._num_loading
        if queued and not self._preempted_now and budget > 0 and len(self._running) < self._max_num_seqs:
            if batch is None:
                batch = Prefills()
            if need > paid:
                self.pool.take(need - paid)
                paid = need
            steady = self._admit(budget, batch, now)
        if batch is None or batch.num_prefills == 0:
            if decoding.num:
                self._compose_run(step, paid, steady)
            return 0
        if need > paid:
            self.pool.take(need - paid)
        return self._finish_mixed(step, batch)

    def _compose_run(self, step: int, paid: int, steady: bool) -> None:
        """Plan a run of decode steps that starts with `step`."""
        decoding = self._decoding
        decodes = decoding.num
        cost = self._decode_cost.get(decodes)
        if cost is None:
            cost = (*self._step_time.decode(decodes), self._step_time.floor(decodes))
            self._decode_cost[decodes] = cost
        constant, per_context, per_window, floor = cost
        first = constant + per_context * (decoding.context_offset + decodes * step)
        slope = per_context * decodes
        if self._window:
            first += per_window * decoding.window_context(step)
            slope += per_window * decoding.num_in_window
        # Whoever finishes may let somebody in, bring a request, or make blocks findable before the run evicts others.
        noted = self.finished is not None or self._answers_shared
        if self._preempted_now or (self._finishing and (noted or self.num_waiting)):
            steady = False
        steps = decoding.steps_alike(step, self.pool.free + paid) if steady else 1
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

    def _prefill_ps(self, computed: int, target: int) -> int:
        key = (computed << 32) | target
        known = self._prefill_costs.get(key)
        if known is not None:
            return known
        longest = self._max_num_batched_tokens
        if self._threshold and self._threshold < longest:
            longest = self._threshold
        total = 0
        while computed < target:
            chunk = target - computed if target - computed < longest else longest
            batch = Prefills()
            batch.add(computed, chunk, self._window)
            computed += chunk
            duration = self._step_time.mixed(
                0, 0, 0, 1, batch.tokens, batch.pairs, batch.window_pairs, batch.context, 1 if computed == target else 0
            )
            total += duration if duration > 1 else 1
        if len(self._prefill_costs) >= 4096:
            self._prefill_costs.clear()
        self._prefill_costs[key] = total
        return total

    def _finish_mixed(self, step: int, batch: Prefills) -> int:
        """The duration of a step with prefill chunks; whoever ends its prefill in it decodes from the next on."""
        decoding = self._decoding
        decodes = decoding.num
        context = decoding.context_offset + decodes * step
        window_context = decoding.window_context(step) if self._window else 0
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
            decoding.ends_with(sequence, step + left)
            if left:
                decoding.join(sequence, step)
        self._composed = step
        return duration
