"""The naive stepper: docs/engine.md step by step and block by block, for the engine to be held against."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from fractions import Fraction

from sim.latency._base import StepTime

UNSET = -1


@dataclass(slots=True, eq=False)
class Block:
    """One KV block. `key` is the content it is cached under, None while it is not findable."""

    number: int
    holders: int = 0
    key: tuple | None = None
    ready_ps: int = 0  # when the load of its content ends
    used: bool = False  # it has held something


@dataclass(slots=True, eq=False)
class OracleLink:
    """A transfer at a time, in the order in which they are asked for."""

    bytes_per_s: int
    bytes_per_token: int
    latency_ps: int
    transfers: list[tuple[int, int]] = field(default_factory=list)  # (start, end)

    def transfer(self, now_ps: int, tokens: int) -> int:
        end_ps = self.end(now_ps, tokens)
        self.transfers.append((max([now_ps, *(end for _, end in self.transfers)]), end_ps))
        return end_ps

    def end(self, now_ps: int, tokens: int) -> int:
        start = max([now_ps, *(end for _, end in self.transfers)])
        return start + self.latency_ps + math.ceil(Fraction(tokens * self.bytes_per_token * 10**12, self.bytes_per_s))


@dataclass(slots=True, eq=False)
class OracleTier:
    """Blocks by the content that they are cached under, or by an object of their own; the first came first."""

    num_blocks: int
    link: OracleLink
    blocks: OrderedDict[object, None] = field(default_factory=OrderedDict)


@dataclass(slots=True, eq=False)
class OracleRequest:
    queue_ps: int
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    pieces: tuple[tuple[int, int], ...] = ()
    remote_tokens: int = 0  # leading tokens of its prompt whose KV lies elsewhere
    link: OracleLink | None = None  # how it comes

    # Results; times are UNSET until they have come.
    scheduled_ps: int = UNSET  # time of the composition that first admitted it
    first_token_ps: int = UNSET
    finish_ps: int = UNSET
    cached_tokens: int = UNSET
    preemptions: int = 0
    rejected: bool = False

    # State.
    index: int = UNSET
    computed: int = 0  # tokens with KV in held blocks once the steps composed so far have run
    emitted: int = 0  # output tokens, likewise
    target: int = 0  # prefill target of this admission
    blocks: list[Block] = field(default_factory=list)
    cached_blocks: int = 0  # leading blocks that were hit or that it made findable
    duplicate: bool = False  # met an identical cached block: makes nothing more findable
    last_token_ps: int = UNSET
    hits: int = 0  # blocks, at this admission
    loads: list[tuple[OracleTier | None, int]] = field(default_factory=list)  # tokens, at this admission
    tier_tokens: list[int] = field(default_factory=list)  # at its first admission, of each tier
    load_end_ps: int = 0
    fetched_ps: int = UNSET  # from when on what lay elsewhere is needed there no more
    aside_number: int = 0

    @property
    def finishing(self) -> bool:
        return self.emitted == self.output_tokens

    @property
    def shareable_tokens(self) -> int:
        return sum(tokens for _, tokens in self.pieces)

    @property
    def findable_tokens(self) -> int:
        """What it makes findable as it goes: what others may look for, and all once it may look for it itself."""
        return 2**60 if self.preemptions else self.shareable_tokens

    def content_up_to(self, end: int) -> tuple:
        """All the content of its first `end` tokens: whole pieces, then as much of the last one as counts."""
        content: list[tuple[object, int]] = []
        start = 0
        for content_id, tokens in self.pieces:
            if start + tokens >= end:
                return (*content, (content_id, end - start))
            content.append((content_id, tokens))
            start += tokens
        return (*content, (f"private to {self.index}", end - start))


@dataclass(slots=True)
class Step:
    duration_ps: int
    emitting: list[OracleRequest]
    finishing: list[OracleRequest]


class OracleReplica:
    """One replica. Call `enqueue` in order of (queue time, index), and `advance` to let time pass."""

    def __init__(
        self,
        step_time: StepTime,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        block_size: int,
        num_blocks: int,
        enable_prefix_caching: bool,
        async_scheduling: bool,
        long_prefill_token_threshold: int,
        scheduling: str,
        preemption: str,
        tiers: tuple[tuple[int, tuple[int, int, int]], ...] = (),
    ) -> None:
        assert max_num_batched_tokens >= max_num_seqs
        assert scheduling in ("fcfs", "priority", "sjf")
        assert preemption in ("fcfs", "priority")
        self.step_time = step_time
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_model_len = max_model_len
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.enable_prefix_caching = enable_prefix_caching
        self.async_scheduling = async_scheduling
        self.long_prefill_token_threshold = long_prefill_token_threshold
        self.scheduling = scheduling
        self.preemption = preemption
        self.tiers = [OracleTier(blocks, OracleLink(*link)) for blocks, link in tiers]

        self.arrivals: deque[OracleRequest] = deque()  # queued, not seen by a boundary yet
        self.waiting: list[OracleRequest] = []
        self.aside: list[OracleRequest] = []  # their KV is being loaded, or has been and they have no seat yet
        self.put_aside = 0  # how often anybody was
        self.keeps_blocks = False  # who leaves keeps its blocks until `let_go`
        self.kept: dict[int, OracleRequest] = {}
        self.wakes_ps: list[int] = []  # an idle replica gets blocks back, and somebody waits
        self.running: list[OracleRequest] = []
        self.executing: Step | None = None
        self.executing_end_ps = 0
        self.composed: Step | None = None  # asynchronous scheduling: the step after the executing one
        self.free: OrderedDict[Block, None] = OrderedDict((Block(i), None) for i in range(num_blocks))
        self.cached: dict[tuple, Block] = {}

        self.hit_tokens = 0
        self.looked_up_tokens = 0
        self.loaded_tokens = 0
        self.tier_tokens = [0] * len(self.tiers)
        self.steps = 0  # composed, whether or not they have started
        self.busy_ps = 0  # durations of the steps that have started
        self.inter_token_ps: Counter[int] = Counter()

    # What can be seen from outside.

    @property
    def num_running(self) -> int:
        return len(self.running)

    @property
    def num_waiting(self) -> int:
        return len(self.waiting) + len(self.arrivals) + len(self.aside)

    @property
    def used_blocks(self) -> int:
        return self.num_blocks - len(self.free)

    def enqueue(self, index: int, request: OracleRequest) -> None:
        request.index = index
        prompt, output = request.prompt_tokens, request.output_tokens
        assert prompt >= 1
        assert output >= 1
        if prompt + output > self.max_model_len or self.blocks_for(prompt + output - 1) > self.num_blocks:
            request.rejected = True
        else:
            self.arrivals.append(request)

    def next_boundary_ps(self) -> int | None:
        if self.executing is not None:
            return self.executing_end_ps
        loads = [r.load_end_ps for r in self.aside]
        return min([r.queue_ps for r in self.arrivals] + loads + self.wakes_ps, default=None)

    def advance(self, until_ps: int) -> None:
        """Handle every boundary at a time before `until_ps`."""
        while True:
            boundary_ps = self.next_boundary_ps()
            if boundary_ps is None or boundary_ps >= until_ps:
                return
            self.handle_boundary(boundary_ps)

    # A boundary.

    def handle_boundary(self, now_ps: int) -> None:
        self.wakes_ps.clear()
        if self.executing is not None:
            self.complete(self.executing, now_ps)
            self.executing = None
        while self.arrivals and self.arrivals[0].queue_ps <= now_ps:
            self.waiting.append(self.arrivals.popleft())
            self.sort_waiting()

        step, self.composed = self.composed, None
        while step is None:
            step, preempted_anybody = self.compose(now_ps)
            if not preempted_anybody:
                break
        if step is None:
            # Nothing to do: there is always a step as long as somebody is here and no load goes on.
            assert not self.running
            loading = any(r.load_end_ps > now_ps for r in self.aside)
            assert loading or self.kept or not (self.waiting or self.aside)
            return
        self.executing = step
        self.executing_end_ps = now_ps + step.duration_ps
        self.busy_ps += step.duration_ps
        if self.async_scheduling:
            self.composed, _ = self.compose(now_ps)

    def complete(self, step: Step, now_ps: int) -> None:
        for request in step.emitting:
            if request.first_token_ps == UNSET:
                request.first_token_ps = now_ps
            else:
                self.inter_token_ps[now_ps - request.last_token_ps] += 1
            request.last_token_ps = now_ps
        for request in [r for r in self.running if r in step.finishing]:
            request.finish_ps = now_ps
            self.make_findable(request, min(request.computed, request.shareable_tokens))
            self.running.remove(request)
            if self.keeps_blocks:
                self.kept[request.index] = request
            else:
                self.release(request)

    def let_go(self, index: int, now_ps: int) -> None:
        """The blocks that a request which has left kept are free."""
        self.release(self.kept.pop(index))
        if self.executing is None and self.waiting:
            self.wakes_ps.append(now_ps)

    def sort_waiting(self) -> None:
        """By key. Under fcfs the list is in order as it is: the preempted at the front, the others as they came."""
        if self.scheduling == "priority":
            self.waiting.sort(key=lambda r: (r.priority, r.queue_ps, r.index))
        elif self.scheduling == "sjf":
            self.waiting.sort(key=lambda r: (r.prompt_tokens, r.queue_ps, r.index))

    # Composition.

    def compose(self, now_ps: int) -> tuple[Step | None, bool]:
        """The next step, None if it would be empty; and whether anybody was preempted."""
        scheduled, preempted_anybody = self.schedule_running()
        # (request, computed tokens before, new tokens), in the order of `running`
        chunks: list[tuple[OracleRequest, int, int]] = []
        for request in self.running:
            if request in scheduled:
                chunks.append((request, request.computed, scheduled[request]))
                self.count_tokens(request, scheduled[request])
        if not preempted_anybody:
            budget = self.max_num_batched_tokens - sum(scheduled.values())
            chunks += self.schedule_waiting(budget, now_ps)
        if not chunks:
            return None, preempted_anybody
        self.steps += 1
        emitting = [r for r, computed, tokens in chunks if computed + tokens >= r.target]
        finishing = [r for r in emitting if r.finishing]
        return Step(self.duration_ps(chunks), emitting, finishing), preempted_anybody

    def schedule_running(self) -> tuple[dict[OracleRequest, int], bool]:
        """New tokens of each running request that gets any, with the blocks for them taken."""
        scheduled: dict[OracleRequest, int] = {}
        budget = self.max_num_batched_tokens
        preempted_anybody = False
        position = 0
        while position < len(self.running):
            request = self.running[position]
            if request.finishing:
                position += 1
                continue
            if request.computed >= request.target:
                wanted = 1
                assert budget >= 1
            else:
                wanted = self.prefill_tokens(request.target - request.computed, budget)
            if wanted == 0:
                position += 1
                continue
            needed = max(0, self.blocks_for(request.computed + wanted) - len(request.blocks))
            while len(self.free) < needed:
                victim = self.choose_victim()
                preempted_anybody = True
                budget += scheduled.pop(victim, 0)
                if self.running.index(victim) < position:
                    position -= 1
                self.preempt(victim)
                if victim is request:
                    break
            if request not in self.running:
                continue
            self.allocate(request, needed)
            scheduled[request] = wanted
            budget -= wanted
            position += 1
        return scheduled, preempted_anybody

    def choose_victim(self) -> OracleRequest:
        candidates = [r for r in self.running if not r.finishing]
        if self.preemption == "fcfs":
            return candidates[-1]
        return max(candidates, key=lambda r: (r.priority, r.queue_ps, r.index))

    def preempt(self, request: OracleRequest) -> None:
        self.make_findable(request, request.computed)
        self.running.remove(request)
        self.release(request)
        request.computed = 0
        request.load_end_ps = 0
        request.loads = []
        request.cached_blocks = 0
        request.duplicate = False
        request.preemptions += 1
        self.waiting.insert(0, request)
        self.sort_waiting()

    def schedule_waiting(self, budget: int, now_ps: int) -> list[tuple[OracleRequest, int, int]]:
        chunks: list[tuple[OracleRequest, int, int]] = []
        ready = sorted((r for r in self.aside if r.load_end_ps <= now_ps), key=lambda r: r.aside_number)
        while ready and budget > 0 and len(self.running) < self.max_num_seqs:
            request = ready.pop(0)
            self.aside.remove(request)
            chunks.append(self.admit(request, self.prefill_tokens(request.target - request.computed, budget), now_ps))
            budget -= chunks[-1][2]
        while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            request = self.waiting[0]
            target = request.prompt_tokens + request.emitted
            hits = self.look_up(request, (target - 1) // self.block_size)
            hit_tokens = len(hits) * self.block_size
            hits_ready_ps = max((block.ready_ps for block in hits), default=0)
            to_load = self.choose_loads(request, target, len(hits), max(now_ps, hits_ready_ps), now_ps)
            if to_load or hits_ready_ps > now_ps:
                wanted = 0
                new_blocks = self.blocks_for(target) - len(hits)
            else:
                wanted = self.prefill_tokens(target - hit_tokens, budget)
                new_blocks = self.blocks_for(hit_tokens + wanted) - len(hits)
            free_hits = sum(1 for block in hits if block.holders == 0)
            if new_blocks + free_hits > len(self.free):
                break
            self.waiting.pop(0)
            for block in hits:
                if block.holders == 0:
                    del self.free[block]
                block.holders += 1
                request.blocks.append(block)
            loaded = hit_tokens + sum(tokens for _, tokens in to_load)
            for position in range(len(hits), loaded // self.block_size):
                self.forget_in_tiers(request.content_up_to((position + 1) * self.block_size))
            self.allocate(request, new_blocks)
            request.target = target
            request.computed = hit_tokens
            request.cached_blocks = request.hits = len(hits)
            if request.remote_tokens:
                request.fetched_ps = now_ps
            request.remote_tokens = 0
            if wanted:
                chunks.append(self.admit(request, wanted, now_ps))
                budget -= wanted
            else:
                self.load(request, to_load, now_ps, hits_ready_ps)
        return chunks

    def admit(self, request: OracleRequest, tokens: int, now_ps: int) -> tuple[OracleRequest, int, int]:
        """It takes a seat, and so many tokens."""
        self.running.append(request)
        self.hit_tokens += request.hits * self.block_size
        self.looked_up_tokens += request.target
        if request.scheduled_ps == UNSET:
            request.scheduled_ps = now_ps
            request.cached_tokens = request.hits * self.block_size
        for tier, loaded in request.loads:
            if tier is None:
                self.loaded_tokens += loaded
            else:
                self.tier_tokens[self.tiers.index(tier)] += loaded
        if not request.tier_tokens:
            request.tier_tokens = [sum(t for of, t in request.loads if of is tier) for tier in self.tiers]
        chunk = request, request.computed, tokens
        self.count_tokens(request, tokens)
        return chunk

    def choose_loads(
        self, request: OracleRequest, target: int, hits: int, hits_ready_ps: int, now_ps: int
    ) -> list[tuple[OracleTier | None, int]]:
        """The tokens that it loads of each tier, or else (None) from elsewhere, in order."""
        remote = min(request.remote_tokens, target - 1) - hits * self.block_size
        if remote > 0:
            return [(None, remote)]
        if request.preemptions >= 8 or not self.enable_prefix_caching:
            return []
        found: list[OracleTier] = []  # of each block that follows the hits
        while hits + len(found) < (target - 1) // self.block_size:
            key = request.content_up_to((hits + len(found) + 1) * self.block_size)
            tiers = [tier for tier in self.tiers if key in tier.blocks]
            if not tiers:
                break
            assert len(tiers) == 1
            found += tiers
        options = [(hits_ready_ps + self.alone_ps(hits * self.block_size, target), 0)]
        for blocks in range(1, len(found) + 1):
            if blocks < len(found) and found[blocks] is found[blocks - 1]:
                continue  # all of what lies in one tier, or nothing
            there_ps = hits_ready_ps
            for tier in self.tiers:
                tokens = found[:blocks].count(tier) * self.block_size
                if tokens:
                    there_ps = max(there_ps, tier.link.end(now_ps, tokens))
            options.append((there_ps + self.alone_ps((hits + blocks) * self.block_size, target), blocks))
        best = min(options)[1]
        return [(tier, found[:best].count(tier) * self.block_size) for tier in self.tiers if tier in found[:best]]

    def alone_ps(self, computed: int, target: int) -> int:
        """How long the prefill takes with nothing else in its steps."""
        total = 0
        while computed < target:
            tokens = self.prefill_tokens(target - computed, self.max_num_batched_tokens)
            total += self.duration_ps([(OracleRequest(0, 1, 1, target=target), computed, tokens)])
            computed += tokens
        return total

    def load(
        self, request: OracleRequest, loads: list[tuple[OracleTier | None, int]], now_ps: int, hits_ready_ps: int
    ) -> None:
        """Put it aside until what it lacks and what it has hit is there."""
        request.load_end_ps = hits_ready_ps
        request.loads = loads
        for tier, tokens in loads:
            link = tier.link if tier else request.link
            assert link is not None
            end_ps = link.transfer(now_ps, tokens)
            if tier is None:
                request.fetched_ps = end_ps
            first = request.cached_blocks
            request.computed += tokens
            request.load_end_ps = max(end_ps, request.load_end_ps)
            self.make_findable(request, min(request.computed, request.findable_tokens))
            for block in request.blocks[first : request.cached_blocks]:
                block.ready_ps = end_ps
        self.put_aside += 1
        request.aside_number = self.put_aside
        self.aside.append(request)

    def prefill_tokens(self, rest: int, budget: int) -> int:
        if self.long_prefill_token_threshold:
            return min(rest, budget, self.long_prefill_token_threshold)
        return min(rest, budget)

    def count_tokens(self, request: OracleRequest, tokens: int) -> None:
        """`tokens` more are computed in the step being composed, and one emitted if that reaches the target."""
        request.computed += tokens
        if request.computed >= request.target:
            request.emitted += 1
        self.make_findable(request, min(request.computed, request.findable_tokens, request.target))

    def duration_ps(self, chunks: list[tuple[OracleRequest, int, int]]) -> int:
        window = self.step_time.window
        decode_contexts = [computed + 1 for r, computed, _ in chunks if computed >= r.target]
        prefills = [(computed, tokens, r.target) for r, computed, tokens in chunks if computed < r.target]
        context = sum(decode_contexts)
        window_context = sum(min(c, window) for c in decode_contexts)
        if not prefills:
            constant, per_token, per_window_token = self.step_time.decode(len(decode_contexts))
            raw = constant + per_token * context + per_window_token * window_context
            return max(1, raw, self.step_time.floor(len(decode_contexts)))
        duration = self.step_time.mixed(
            num_decodes=len(decode_contexts),
            decode_context=context,
            decode_window_context=window_context,
            num_prefills=len(prefills),
            prefill_tokens=sum(q for p, q, _ in prefills),
            prefill_pairs=sum(q * p + q * (q + 1) // 2 for p, q, _ in prefills),
            prefill_window_pairs=sum(min(key, window) for p, q, _ in prefills for key in range(p + 1, p + q + 1)),
            prefill_context=sum(p + q for p, q, _ in prefills),
            num_sampled=len(decode_contexts) + sum(1 for p, q, target in prefills if p + q == target),
        )
        return max(1, duration)

    # Blocks.

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def allocate(self, request: OracleRequest, count: int) -> None:
        for _ in range(count):
            block, _ = self.free.popitem(last=False)
            evicted: object = object()
            if block.key is not None:
                del self.cached[block.key]
                evicted = block.key
                block.key = None
            if block.used and self.enable_prefix_caching:
                self.move_down(0, evicted)
            block.used = True
            block.ready_ps = 0
            block.holders = 1
            request.blocks.append(block)

    def move_down(self, position: int, content: object) -> None:
        """Into the tier at this position; what there is no room for goes on to the next."""
        if position < len(self.tiers):
            tier = self.tiers[position]
            tier.blocks[content] = None
            if len(tier.blocks) > tier.num_blocks:
                oldest, _ = tier.blocks.popitem(last=False)
                self.move_down(position + 1, oldest)

    def forget_in_tiers(self, content: tuple) -> None:
        for tier in self.tiers:
            tier.blocks.pop(content, None)

    def release(self, request: OracleRequest) -> None:
        for block in reversed(request.blocks):
            block.holders -= 1
            if block.holders == 0:
                self.free[block] = None
        request.blocks = []

    def look_up(self, request: OracleRequest, at_most: int) -> list[Block]:
        hits: list[Block] = []
        while len(hits) < at_most:
            block = self.cached.get(request.content_up_to((len(hits) + 1) * self.block_size))
            if block is None:
                break
            hits.append(block)
        return hits

    def make_findable(self, request: OracleRequest, tokens: int) -> None:
        """The full blocks of its first `tokens` tokens."""
        if not self.enable_prefix_caching:
            return
        while not request.duplicate and (request.cached_blocks + 1) * self.block_size <= tokens:
            key = request.content_up_to((request.cached_blocks + 1) * self.block_size)
            if key in self.cached:
                request.duplicate = True
            else:
                block = request.blocks[request.cached_blocks]
                block.key = key
                self.cached[key] = block
                self.forget_in_tiers(key)
                request.cached_blocks += 1
