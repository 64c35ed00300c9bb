"""A naive cluster over stepping oracles: one event after the other, every scrape taken, nothing skipped."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from sim.cluster.policies import AdmissionPolicy, ReplicaView, RequestView, RoutingPolicy
from sim.engine.requests import RequestTable
from sim.latency import RequestOverhead
from sim.workload import Workload
from tests.oracle import UNSET, OracleReplica, OracleRequest

# What happens first of what happens at the same time.
SCRAPE, ARRIVE, QUEUE, BOUNDARY = range(4)


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

    shed: set[int] = field(default_factory=set)
    arrived_ps: dict[int, int] = field(default_factory=dict)
    routed_to: dict[int, int] = field(default_factory=dict)
    queued: set[int] = field(default_factory=set)

    def run(self) -> None:
        workload = self.workload
        table = RequestTable(workload)  # for the views only
        limit = workload.time_limit_ps or 1 << 60
        views = [ReplicaView(num_blocks=r.num_blocks, block_size=self.block_size) for r in self.replicas]
        events: list[tuple[int, int, int, int]] = []
        self.next_user = len(workload)
        if workload.users:
            self.next_user = min(workload.users, len(workload))
            for user in range(self.next_user):
                start = 0 if workload.user_start_ps is None else int(workload.user_start_ps[user])
                heapq.heappush(events, (start, ARRIVE, user, 0))
        else:
            for index, arrival in enumerate(workload.arrival_ps.tolist()):
                heapq.heappush(events, (arrival, ARRIVE, index, 0))
        if self.interval_ps:
            heapq.heappush(events, (0, SCRAPE, 0, 0))
        while True:
            boundaries = [r.next_boundary_ps() for r in self.replicas]
            boundary = min(1 << 60 if at is None else at for at in boundaries)
            work_left = boundary < 1 << 60 or any(kind != SCRAPE for _, kind, _, _ in events)
            if not work_left:
                return
            if events and (events[0][0], events[0][1]) <= (boundary, BOUNDARY):
                now, kind, index, chosen = heapq.heappop(events)
                if now > limit:
                    return
                if kind == SCRAPE:
                    self.scrape(views)
                    if not workload.users and not any(kind == ARRIVE for _, kind, _, _ in events):
                        continue  # nobody will look
                    heapq.heappush(events, (now + self.interval_ps, SCRAPE, 0, 0))
                elif kind == ARRIVE:
                    self.arrive(now, index, table, views, events)
                else:
                    self.replicas[chosen].enqueue(index, self.requests[index])
                    self.queued.add(index)
            else:
                if boundary > limit:
                    return
                before = self.finished()
                for replica in self.replicas:
                    replica.advance(boundary + 1)
                for _ in range(self.finished() - before):
                    self.next_of_user(boundary, events)

    def finished(self) -> int:
        return sum(request.finish_ps != UNSET for request in self.requests)

    def next_of_user(self, now: int, events: list[tuple[int, int, int, int]]) -> None:
        if self.workload.users and self.next_user < len(self.workload):
            at = now + max(1, self.overhead.last_token_ps + self.workload.think_time_ps)
            heapq.heappush(events, (at, ARRIVE, self.next_user, 0))
            self.next_user += 1

    def scrape(self, views: list[ReplicaView]) -> None:
        queued = [0] * len(views)
        for index, chosen in self.routed_to.items():
            queued[chosen] += index in self.queued
        for number, (view, replica) in enumerate(zip(views, self.replicas, strict=True)):
            view.waiting = replica.num_waiting
            view.running = replica.num_running
            view.kv_usage = replica.used_blocks / replica.num_blocks
            view.unseen = view.routed - queued[number]

    def arrive(
        self,
        now: int,
        index: int,
        table: RequestTable,
        views: list[ReplicaView],
        events: list[tuple[int, int, int, int]],
    ) -> None:
        self.arrived_ps[index] = now
        request = self.requests[index]
        replica = self.replicas[0]
        tokens = request.prompt_tokens + request.output_tokens
        if tokens > replica.max_model_len or tokens - 1 > replica.num_blocks * self.block_size:
            request.rejected = True
            self.next_of_user(now, events)
            return
        if not self.interval_ps:
            self.scrape(views)
        for number, view in enumerate(views):
            done = [i for i, r in enumerate(self.requests) if r.finish_ps != UNSET and self.routed_to[i] == number]
            view.in_flight = view.routed - len(done)
        seen = RequestView(table, index)
        if not self.admission.admit(seen, views, now / 1e12):
            self.shed.add(index)
            self.next_of_user(now, events)
            return
        chosen = self.routing.route(seen, views, now / 1e12) if len(views) > 1 else 0
        self.routed_to[index] = chosen
        views[chosen].routed += 1
        views[chosen].unseen += 1
        overhead = self.overhead
        per_token = overhead.before_queue_ps_per_token * request.prompt_tokens
        request.queue_ps = now + overhead.gateway_ps + overhead.before_queue_ps + per_token
        heapq.heappush(events, (request.queue_ps, QUEUE, index, chosen))
