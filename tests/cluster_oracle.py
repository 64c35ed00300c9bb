"""A naive cluster over stepping oracles: one event after the other, every scrape and cycle taken, nothing skipped."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from sim.cluster.flow_control import FlowControlPolicy
from sim.cluster.policies import (
    AdmissionPolicy,
    DisaggregationPolicy,
    ReplicaView,
    ReplicaViews,
    RequestView,
    RoutingPolicy,
)
from sim.engine.requests import RequestTable
from sim.latency import RequestOverhead
from sim.workload import Workload
from tests.oracle import UNSET, OracleLink, OracleReplica, OracleRequest

# What happens first of what happens at the same time.
SCRAPE, EXPIRE, CYCLE, ARRIVE, QUEUE, LET_GO, BOUNDARY = range(7)


@dataclass
class Waiting:
    """A request that flow control holds back."""

    index: int
    priority: int
    flow: str
    key: float
    number: int


@dataclass
class OraclePrefill:
    """A prefill pool: its replicas, the requests as they are there (one output token), who decides and who routes."""

    replicas: list[OracleReplica]
    requests: list[OracleRequest]
    links: list[OracleLink]  # into each replica of the decode pool
    decider: DisaggregationPolicy
    routing: RoutingPolicy

    routed_to: dict[int, int] = field(default_factory=dict)
    queued: set[int] = field(default_factory=set)
    handed_over: set[int] = field(default_factory=set)
    fetched: set[int] = field(default_factory=set)


@dataclass
class OracleCluster:
    workload: Workload
    replicas: list[OracleReplica]
    overhead: RequestOverhead
    routing: RoutingPolicy
    admission: AdmissionPolicy
    interval_ps: int
    block_size: int
    requests: list[OracleRequest]
    flow_control: FlowControlPolicy | None = None
    prefill: OraclePrefill | None = None

    shed: set[int] = field(default_factory=set)
    expired: set[int] = field(default_factory=set)
    arrived_ps: dict[int, int] = field(default_factory=dict)
    routed_to: dict[int, int] = field(default_factory=dict)
    queued: set[int] = field(default_factory=set)
    events: list[tuple[int, int, int, int]] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    flows: dict[int, list[str]] = field(default_factory=dict)  # of each priority, as they came
    last_flow: dict[int, str] = field(default_factory=dict)
    held: int = 0  # requests ever held back
    cycles: int = 0  # by the clock

    def run(self) -> None:
        workload, events = self.workload, self.events
        self.table = RequestTable(workload)  # for the views only
        self.decode_views = self.views_of(self.replicas)
        self.prefill_views = self.views_of(self.prefill.replicas if self.prefill else [])
        self.views = ReplicaViews([*self.decode_views, *self.prefill_views])
        everywhere = self.replicas + (self.prefill.replicas if self.prefill else [])
        limit = workload.time_limit_ps or 1 << 60
        follows = [-1] * len(workload) if workload.follows is None else workload.follows.tolist()
        self.follower = {followed: index for index, followed in enumerate(follows) if followed >= 0}
        starts = [index for index, followed in enumerate(follows) if followed < 0]
        for user, index in enumerate(starts[: workload.users] if workload.users else starts):
            at = int(workload.arrival_ps[index])
            if workload.users:
                at = 0 if workload.user_start_ps is None else int(workload.user_start_ps[user])
            heapq.heappush(events, (at, ARRIVE, index, 0))
        self.starts_left = starts[workload.users :] if workload.users else []
        follow = bool(workload.users or self.follower)
        if self.interval_ps:
            heapq.heappush(events, (0, SCRAPE, 0, 0))
        if self.flow_control:
            heapq.heappush(events, (self.flow_control.cycle_ps, CYCLE, 0, 0))
        while True:
            boundaries = [r.next_boundary_ps() for r in everywhere]
            boundary = min(1 << 60 if at is None else at for at in boundaries)
            coming = any(kind in (ARRIVE, QUEUE, LET_GO) for _, kind, _, _ in events)
            if boundary == 1 << 60 and not coming and not self.waiting:
                return
            if events and (events[0][0], events[0][1]) <= (boundary, BOUNDARY):
                now, kind, index, chosen = heapq.heappop(events)
                if now > limit:
                    return
                for views in (self.views, self.decode_views, self.prefill_views):
                    views.now_ps = now
                if kind == SCRAPE:
                    self.scrape()
                    asked = any(kind == ARRIVE for _, kind, _, _ in events) or self.waiting
                    if follow or asked:
                        heapq.heappush(events, (now + self.interval_ps, SCRAPE, 0, 0))
                elif kind == EXPIRE:
                    self.expire(now, index)
                elif kind == CYCLE:
                    self.cycles += 1
                    self.cycle(now)
                    heapq.heappush(events, (now + self.flow_control.cycle_ps, CYCLE, 0, 0))
                elif kind == ARRIVE:
                    self.arrive(now, index)
                elif kind == LET_GO:
                    self.prefill.replicas[chosen].let_go(index, now)
                elif chosen >= len(self.replicas):
                    self.prefill.replicas[chosen - len(self.replicas)].enqueue(index, self.prefill.requests[index])
                    self.prefill.queued.add(index)
                else:
                    self.replicas[chosen].enqueue(index, self.requests[index])
                    self.queued.add(index)
            else:
                if boundary > limit:
                    return
                before = self.finished()
                for replica in everywhere:
                    replica.advance(boundary + 1)
                if self.prefill:
                    self.hand_over(boundary)
                for index in sorted(self.finished() - before):
                    self.ended(boundary, index)

    def views_of(self, replicas: list[OracleReplica]) -> ReplicaViews:
        return ReplicaViews(
            [
                ReplicaView(num_blocks=replica.num_blocks, block_size=self.block_size, look_up=self.look_up(replica))
                for replica in replicas
            ]
        )

    def hand_over(self, now: int) -> None:
        """Those whose prefill has just ended go to the decode pool; those whose transfer's end is known will let go of
        their blocks.
        """
        prefill, overhead = self.prefill, self.overhead
        for index in prefill.handed_over - prefill.fetched:
            if self.requests[index].fetched_ps != UNSET:
                prefill.fetched.add(index)
                event = (self.requests[index].fetched_ps + 1, LET_GO, index, prefill.routed_to[index])
                heapq.heappush(self.events, event)
        for index, request in enumerate(prefill.requests):
            if request.finish_ps == now and index not in prefill.handed_over:
                prefill.handed_over.add(index)
                decoded, chosen = self.requests[index], self.routed_to[index]
                decoded.remote_tokens, decoded.link = request.prompt_tokens, prefill.links[chosen]
                per_token = overhead.before_queue_ps_per_token * request.prompt_tokens
                way = overhead.last_token_ps + overhead.before_queue_ps + per_token
                decoded.queue_ps = now + max(1, way)
                heapq.heappush(self.events, (decoded.queue_ps, QUEUE, index, chosen))

    def look_up(self, replica: OracleReplica):
        def cached_tokens(index: int) -> int:
            if not replica.enable_prefix_caching:
                return 0
            request = self.requests[index]
            return len(replica.look_up(request, (request.prompt_tokens - 1) // self.block_size)) * self.block_size

        return cached_tokens

    def finished(self) -> set[int]:
        return {index for index, request in enumerate(self.requests) if request.finish_ps != UNSET}

    def ended(self, now: int, index: int) -> None:
        """A request was answered or refused: the next of its session arrives, or else the next of its user."""
        think_ps = self.workload.think_time_ps
        if index in self.follower:
            following = self.follower[index]
            think_ps = int(self.workload.arrival_ps[following])
        elif self.starts_left:
            following = self.starts_left.pop(0)
        else:
            return
        at = now + max(1, self.overhead.last_token_ps + think_ps)
        heapq.heappush(self.events, (at, ARRIVE, following, 0))

    def scrape(self) -> None:
        for views in (self.views, self.decode_views, self.prefill_views):
            views.scrapes += 1
            views.scraped_ps = views.now_ps
        self.scrape_pool(self.decode_views, self.replicas, self.routed_to, self.queued)
        if self.prefill:
            self.scrape_pool(self.prefill_views, self.prefill.replicas, self.prefill.routed_to, self.prefill.queued)

    def scrape_pool(self, views: ReplicaViews, replicas: list, routed_to: dict[int, int], in_queue: set[int]) -> None:
        queued = [0] * len(views)
        for index, chosen in routed_to.items():
            queued[chosen] += index in in_queue
        for number, (view, replica) in enumerate(zip(views, replicas, strict=True)):
            view.waiting = replica.num_waiting
            view.running = replica.num_running
            view.kv_usage = replica.used_blocks / replica.num_blocks
            view.unseen = view.routed - queued[number]

    def look(self) -> None:
        """What a router knows when it is asked: its own counts, and all the rest where scrapes are live."""
        if not self.interval_ps:
            self.scrape()
        pools = [(self.decode_views, self.routed_to, self.requests)]
        if self.prefill:
            pools.append((self.prefill_views, self.prefill.routed_to, self.prefill.requests))
        for views, routed_to, requests in pools:
            for number, view in enumerate(views):
                open_ = [i for i, chosen in routed_to.items() if chosen == number and requests[i].finish_ps == UNSET]
                view.in_flight = len(open_)
                view.in_flight_tokens = sum(requests[i].prompt_tokens for i in open_)

    def arrive(self, now: int, index: int) -> None:
        self.arrived_ps[index] = now
        self.table.arrival_ps[index] = now
        request = self.requests[index]
        served = [(self.replicas[0], request.prompt_tokens + request.output_tokens)]
        if self.prefill:
            served.append((self.prefill.replicas[0], request.prompt_tokens + 1))
        if any(n > r.max_model_len or n - 1 > r.num_blocks * self.block_size for r, n in served):
            request.rejected = True
            self.ended(now, index)
            return
        self.look()
        seen = RequestView(self.table, index)
        full = False
        if self.flow_control:
            full = sum(w.priority == seen.priority for w in self.waiting) >= self.flow_control.max_requests
        if not self.admission.admit(seen, self.views, now / 1e12) or full:
            self.shed.add(index)
            self.ended(now, index)
        elif self.flow_control:
            self.hold(now, seen)
            self.cycle(now)
        else:
            self.send(now, index)

    def hold(self, now: int, request: RequestView) -> None:
        policy = self.flow_control
        self.held += 1
        flows = self.flows.setdefault(request.priority, [])
        if request.tenant not in flows:
            flows.append(request.tenant)
        key = policy.order.key(request, policy.ttl_ps)
        self.waiting.append(Waiting(request.index, request.priority, request.tenant, key, self.held))
        heapq.heappush(self.events, (now + policy.ttl_ps, EXPIRE, request.index, 0))

    def expire(self, now: int, index: int) -> None:
        for held in self.waiting:
            if held.index == index:
                self.waiting.remove(held)
                self.expired.add(index)
                self.ended(now, index)
                return

    def cycle(self, now: int) -> None:
        self.look()
        policy = self.flow_control
        priorities = sorted(set(self.workload.priority.tolist()))
        saturation = policy.saturation.saturation(self.views)
        for band, priority in enumerate(priorities):
            every = policy.opens_every(band, len(priorities), saturation)
            if every == 0 or (self.cycles + self.held) % every:
                return
            heads: dict[str, tuple[float, int]] = {}
            for held in self.waiting:
                if held.priority == priority:
                    heads[held.flow] = min(heads.get(held.flow, (held.key, held.number)), (held.key, held.number))
            if heads:
                flow = policy.fair.choose(self.flows[priority], heads, self.last_flow.get(priority))
                self.last_flow[priority] = flow
                (chosen,) = [held for held in self.waiting if held.number == heads[flow][1]]
                self.waiting.remove(chosen)
                self.send(now, chosen.index)
                return

    def send(self, now: int, index: int) -> None:
        views, request = self.decode_views, self.requests[index]
        seen = RequestView(self.table, index)
        chosen = self.routing.route(seen, views, now / 1e12) if len(views) > 1 else 0
        first, target = request, chosen
        if self.prefill and self.prefill.decider.disaggregate(seen, views, chosen, now / 1e12):
            first, target = self.prefill.requests[index], len(views) + self.send_to_prefill(now, seen)
        self.routed_to[index] = chosen
        views[chosen].routed += 1
        views[chosen].unseen += 1
        overhead = self.overhead
        per_token = overhead.before_queue_ps_per_token * request.prompt_tokens
        first.queue_ps = now + overhead.gateway_ps + overhead.before_queue_ps + per_token
        heapq.heappush(self.events, (first.queue_ps, QUEUE, index, target))

    def send_to_prefill(self, now: int, request: RequestView) -> int:
        views, routing = self.prefill_views, self.prefill.routing
        chosen = routing.route(request, views, now / 1e12) if len(views) > 1 else 0
        self.prefill.routed_to[request.index] = chosen
        views[chosen].routed += 1
        views[chosen].unseen += 1
        return chosen
