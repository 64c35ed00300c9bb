"""Which requests run and what they may do in the next step: vLLM's V1 scheduler on one KV cache, without a clock."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Final

from sim.engine.batch import Prefills, Sequence
from sim.engine.blocks import BlockPool, ContentPaths, Match
from sim.engine.decoding import ORDER_BITS, ORDER_MASK, Decoding
from sim.engine.link import Link
from sim.engine.loading import Aside
from sim.engine.nodes import Node, Path
from sim.engine.preemption import PreemptionPolicy, PreemptLast
from sim.engine.queues import FcfsQueue, KeyedQueue, WaitingQueue
from sim.engine.requests import RequestTable
from sim.engine.scheduling import Fcfs, SchedulingPolicy
from sim.engine.stats import ReplicaStats
from sim.engine.tiers import TierConfig, Tiers
from sim.errors import InputError

MOST_PREEMPTIONS: Final = 100_000  # of one request; a policy of the user's that goes beyond would go on for ever
MOST_LOADING: Final = 8  # preemptions after which a request loads no more: loads and preemptions must come to an end
_PRIVATE: Final = 1 << 40  # keys of private content: above every interned key
_ENDLESS: Final = 1 << 61  # blocks
_NOTHING: Final[list[tuple[int, int]]] = []


@dataclass(slots=True)
class EngineConfig:
    """What the scheduler of one replica is configured with."""

    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    enable_prefix_caching: bool = True
    async_scheduling: bool = True
    long_prefill_token_threshold: int = 0
    scheduling: SchedulingPolicy = field(default_factory=Fcfs)
    preemption: PreemptionPolicy = field(default_factory=PreemptLast)
    tiers: list[TierConfig] = field(default_factory=list)  # nearest first; empty: what is evicted is lost


class Scheduler:
    """The running and the waiting requests of one replica, and the rules by which they get tokens, blocks and seats.

    `Replica` composes steps of what it grants, and puts them on a clock.
    """

    def __init__(self, table: RequestTable, config: EngineConfig, window: int, paths: ContentPaths) -> None:
        self.num_waiting = 0  # requests queued and not running, those put aside included
        self.stats: Final = ReplicaStats()
        tiers = Tiers(config.tiers) if config.enable_prefix_caching else Tiers([])
        self.tiers: Final[Tiers | None] = tiers if tiers.tiers else None
        self.pool: Final = BlockPool(config.num_blocks, self.tiers)
        if self.tiers is not None:
            self.stats.tier_tokens = [0] * len(self.tiers.tiers)
            table.note_tiers(len(self.tiers.tiers))
        self._table: Final = table
        self._block_size: Final = config.block_size
        self._max_num_seqs: Final = config.max_num_seqs
        self._max_num_batched_tokens: Final = config.max_num_batched_tokens
        self._threshold: Final = config.long_prefill_token_threshold
        self._caching: Final = config.enable_prefix_caching
        self._answers_shared: Final = config.enable_prefix_caching and table.answers_shared
        self._preemption: Final = config.preemption
        self._window: Final = window
        self._fcfs: Final = type(config.scheduling) is Fcfs  # one derived from it has a key of its own
        self._waiting: Final[WaitingQueue] = FcfsQueue() if self._fcfs else KeyedQueue(config.scheduling)
        self._running: Final[dict[int, Sequence]] = {}  # by order of admission
        self._prefilling: list[Sequence] = []
        self._decoding: Final = Decoding(self._running, config.block_size, window)
        self._aside: Final = Aside()
        self._num_aside = 0
        self._num_loading = 0  # of them; the others are ready
        self._tier_hit = False  # the head found something in the tiers
        self._remote: Final[dict[int, tuple[int, Link]]] = {}  # tokens whose KV lies elsewhere, and how it comes
        # where to note (time, request) when the KV that lay elsewhere is needed there no more, if anybody wants to know
        self.fetched: list[tuple[int, int]] | None = None
        # blocks of those who have left that are kept, by request, as the pool takes them back
        self._kept: Final[dict[int, tuple[Node, int, int]]] = {}
        self._finishing: Final[list[Sequence]] = []  # their last token is being made
        self._ending: list[Sequence] = []  # whose prefill ends in the step just composed
        self._orders = 0
        self._executing_end_ps = 0  # of the step that runs while the next one is composed
        self._preempted_now = False
        self._paths: Final = paths
        self._content_path: Final[dict[int, Path]] = {}
        self._private_path: Final[dict[int, Path]] = {}  # of requests that were preempted
        self._emitted: Final[dict[int, int]] = {}  # of requests that were preempted
        self._last_token_ps: Final[dict[int, int]] = {}  # of requests that were preempted while decoding

    def _retire(self, step: int) -> None:
        """Those whose last token `step` or an earlier one makes are finishing: they decode no more."""
        heap = self._decoding.finish_heap
        limit = (step + 1) << ORDER_BITS
        while heap and heap[0] < limit:
            sequence = self._running.get(heapq.heappop(heap) & ORDER_MASK)
            if sequence is None:  # preempted since
                continue
            if sequence.decoding:
                self._decoding.leave(sequence)
            sequence.finishing = True
            self._finishing.append(sequence)

    def _release(self, sequence: Sequence, tokens: int) -> None:
        """Free the seat and the blocks of a sequence that holds blocks for `tokens` tokens."""
        del self._running[sequence.order]
        self.pool.release(sequence.node, sequence.registered, self._blocks_of(sequence, tokens))

    def _blocks_of(self, sequence: Sequence, tokens: int) -> int:
        """The blocks that a sequence of `tokens` tokens holds."""
        size = self._block_size
        held = (tokens + size - 1) // size
        return held if held > sequence.blocks else sequence.blocks

    # -- running requests ----------------------------------------------------------------------------------------------

    def _schedule_running(self, step: int, need: int, budget: int, batch: Prefills) -> int:
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
            blocks = (sequence.computed + chunk + size - 1) // size - sequence.blocks
            if blocks > 0:
                need += blocks
        if need > self.pool.free:
            return self._schedule_short(step, batch)
        self.pool.take(need)
        prefilling = self._prefilling
        self._prefilling = []
        for position, sequence in enumerate(prefilling):
            self._take_chunk(sequence, chunks[position], batch)
        return budget

    def _schedule_short(self, step: int, batch: Prefills) -> int:
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
                blocks = (held + size - 1) // size
            else:
                tokens = sequence.target - sequence.computed
                if threshold and tokens > threshold:
                    tokens = threshold
                if tokens > budget:
                    tokens = budget
                held = sequence.computed
                blocks = sequence.blocks
            need = (held + tokens + size - 1) // size - blocks
            while need > pool.free and order in self._running:
                victim = self._choose_victim()
                given = granted.pop(victim.order, 0)
                budget += given
                self._preempt(victim, step, given)
            if order in self._running:
                if need > 0:
                    pool.take(need)
                granted[order] = tokens
                budget -= tokens
        prefilling = [sequence for sequence in self._prefilling if sequence.order in self._running]
        self._prefilling = []
        for sequence in prefilling:
            self._take_chunk(sequence, granted[sequence.order], batch)
        return budget

    def _take_chunk(self, sequence: Sequence, chunk: int, batch: Prefills) -> None:
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
        blocks = (tokens + size - 1) // size
        if blocks > sequence.blocks:
            sequence.blocks = blocks
        if self._caching and not sequence.duplicate:
            self._register(sequence, tokens // size)

    def _register(self, sequence: Sequence, full: int, ready_ps: int = 0) -> None:
        path = self._path(sequence.index)
        if path:
            sequence.node, sequence.registered, sequence.duplicate = self.pool.register(
                sequence.node, sequence.registered, path, full, ready_ps
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

    # -- waiting requests ----------------------------------------------------------------------------------------------

    def _admit(self, budget: int, batch: Prefills, now: int) -> bool:
        """Admit waiting requests; returns whether no waiting one can join a run of decodes before something ends."""
        table = self._table
        size = self._block_size
        threshold = self._threshold
        pool = self.pool
        waiting = self._waiting
        if self._num_aside > self._num_loading:
            budget = self._admit_ready(budget, batch, now)
        while self.num_waiting > self._num_aside and budget > 0 and len(self._running) < self._max_num_seqs:
            index = waiting.head()
            emitted = self._emitted.get(index, 0)
            target = table.prompt_tokens[index] + emitted
            node = pool.root
            match: Match | None = None
            hit = 0
            free_hit = 0
            loads = False
            if self._caching:
                path = self._path(index)
                if path:
                    match = pool.match(path, (target - 1) // size)
                    hit = match.num_blocks
                    free_hit = match.free_blocks
                    loads = match.ready_ps > now
            loads_from = _NOTHING
            if self._remote or self.tiers is not None:
                loads_from = self._choose_loads(index, target, match, now)
                if loads_from:
                    loads = True
            chunk = target - hit * size
            if not loads:  # else it takes the blocks of all its prompt
                if threshold and chunk > threshold:
                    chunk = threshold
                if chunk > budget:
                    chunk = budget
            need = (chunk + size - 1) // size
            if need + free_hit > pool.free:
                # its own hits may be evicted, or get there, or leave their tier, and then it may fit
                return free_hit == 0 and not loads and not self._tier_hit
            waiting.pop()
            self.num_waiting -= 1
            if match is not None and hit:
                node = pool.hold(match)
            sequence = Sequence(index, self._orders, target, emitted, node, hit)
            sequence.computed = hit * size
            if loads:
                self._put_aside(sequence, loads_from, 0 if match is None else match.ready_ps, now)
                pool.take(need)
            else:
                pool.take(need)
                budget -= chunk
                if self._remote and self._remote.pop(index, None) is not None and self.fetched is not None:
                    self.fetched.append((now, index))
                self._seat(sequence, chunk, batch, now)
        return True

    def _admit_ready(self, budget: int, batch: Prefills, now: int) -> int:
        """Those whose load has ended run, as far as seats and budget allow; returns the budget left."""
        while self._num_aside > self._num_loading and budget > 0 and len(self._running) < self._max_num_seqs:
            sequence = self._aside.pop()
            self._num_aside -= 1
            self.num_waiting -= 1
            chunk = sequence.target - sequence.computed
            if self._threshold and chunk > self._threshold:
                chunk = self._threshold
            if chunk > budget:
                chunk = budget
            budget -= chunk
            sequence.order = self._orders
            self._seat(sequence, chunk, batch, now)
        return budget

    def _seat(self, sequence: Sequence, chunk: int, batch: Prefills, now: int) -> None:
        """A waiting request starts to run with a first chunk."""
        table = self._table
        index = sequence.index
        cached = sequence.hit * self._block_size
        self.stats.hit_tokens += cached
        self.stats.looked_up_tokens += sequence.target
        if table.scheduled_ps[index] < 0:
            table.scheduled_ps[index] = now
            table.cached_tokens[index] = cached
            if sequence.loads:
                for level, tokens in sequence.loads:
                    table.loaded(index, level, tokens)
        if sequence.loads:
            for level, tokens in sequence.loads:
                self.stats.loaded(level, tokens)
        self._running[self._orders] = sequence
        self._orders += 1
        self._take_chunk(sequence, chunk, batch)

    # -- loads ---------------------------------------------------------------------------------------------------------

    def _prefill_ps(self, computed: int, target: int) -> int:
        """How long a prefill from `computed` tokens to `target` takes alone."""
        raise NotImplementedError

    def _choose_loads(self, index: int, target: int, match: Match | None, now: int) -> list[tuple[int, int]]:
        """What the request loads: (tier from 1, or 0 for its remote KV, the token up to which), in order."""
        self._tier_hit = False
        size = self._block_size
        hit = 0 if match is None else match.num_blocks
        remote = self._remote.get(index)
        if remote is not None:
            tokens = remote[0] if remote[0] < target else target - 1
            if tokens > hit * size:
                return [(0, tokens)]
        tiers = self.tiers
        if tiers is None or match is None or self._table.preemptions[index] >= MOST_LOADING:
            return _NOTHING
        runs = self.pool.below(match, self._path(index), (target - 1) // size)
        if not runs:
            return _NOTHING
        self._tier_hit = True
        there = match.ready_ps if match.ready_ps > now else now
        best = there + self._prefill_ps(hit * size, target)
        depth = hit
        ends: list[tuple[int, int]] = []
        chosen = 0
        for level, blocks in runs:
            depth += blocks
            end = tiers.tiers[level - 1].link.end_ps(now, blocks * size)
            if end > there:
                there = end
            ends.append((level, depth * size))
            first_token = there + self._prefill_ps(depth * size, target)
            if first_token < best:
                best = first_token
                chosen = len(ends)
        return ends[:chosen]

    def _put_aside(self, sequence: Sequence, loads: list[tuple[int, int]], ready_ps: int, now: int) -> None:
        """Load the KV of a request that holds all the blocks of its prompt; its hits are there at `ready_ps`."""
        size = self._block_size
        sequence.blocks = (sequence.target + size - 1) // size
        sequence.loads = []
        remote = self._remote.pop(sequence.index, None)
        fetched_ps = now
        for level, until in loads:
            if level == 0:
                assert remote is not None
                link = remote[1]
            else:
                assert self.tiers is not None
                link = self.tiers.tiers[level - 1].link
            tokens = until - sequence.computed
            end = link.reserve(now, tokens)
            if level == 0:
                fetched_ps = end
            sequence.loads.append((level, tokens))
            sequence.computed = until
            if end > ready_ps:
                ready_ps = end
            if self._caching:
                self._register(sequence, until // size, end)
        if remote is not None and self.fetched is not None:
            self.fetched.append((fetched_ps, sequence.index))
        self.num_waiting += 1
        self._num_aside += 1
        self._num_loading += 1
        self._aside.put(sequence, ready_ps)

    def _wake(self, now: int) -> None:
        """Those whose load has ended by now are ready."""
        ended = self._aside.wake(now)
        self._num_loading -= ended

    # -- preemption ----------------------------------------------------------------------------------------------------

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
            self._decoding.leave(victim)
            self._last_token_ps[index] = self._executing_end_ps
        if emitted:
            self._emitted[index] = emitted
        if self._caching:
            if index not in self._private_path:
                self._private_path[index] = [*self._path(index), (_PRIVATE + index, _ENDLESS)]
            if not victim.duplicate:
                self._register(victim, computed // size)
        self._release(victim, computed + granted)
        self._preempted_now = True
        table.preemptions[index] += 1
        waits = self._num_aside or self._kept  # for the end of a load, or for blocks
        if table.preemptions[index] > MOST_PREEMPTIONS and not waits:
            problem = f"request {index} was preempted {MOST_PREEMPTIONS} times: the policy lets nobody finish"
            raise InputError("deployment.preemption", problem)
        self.stats.preemptions += 1
        priority = table.priority[index] if table.priority is not None else 0
        self.num_waiting += 1
        self._waiting.push_preempted(index, priority, table.prompt_tokens[index], table.queue_ps[index])
