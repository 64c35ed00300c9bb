"""The gateway and its replicas on one clock: requests arrive, are admitted, routed, queued, served."""

from __future__ import annotations

import heapq
from random import Random

from sim.cluster.admission.always_admit import AlwaysAdmit
from sim.cluster.policies import AdmissionPolicy, ReplicaView, RequestView, RoutingPolicy
from sim.engine.replica import NEVER, Replica
from sim.engine.requests import REJECTED, SHED, RequestTable
from sim.errors import InputError
from sim.latency import RequestOverhead
from sim.workload import Workload


class Cluster:
    """Serves a workload. The results are in the table and in the replicas.

    A scrape at time s sees what was queued and what ended before s. Whether a request is admitted, and where to, is
    decided the moment it arrives; it is queued in the engine after the gateway's, client's and tokenizer's time.
    """

    def __init__(
        self,
        table: RequestTable,
        replicas: list[Replica],
        overhead: RequestOverhead,
        routing: RoutingPolicy,
        admission: AdmissionPolicy,
        snapshot_interval_ps: int,
        block_size: int,
    ) -> None:
        self._table = table
        self._replicas = replicas
        self._overhead = overhead
        self._routing = routing
        self._admission = admission
        self._interval_ps = snapshot_interval_ps
        self._views = [ReplicaView(num_blocks=replica.pool.num_blocks, block_size=block_size) for replica in replicas]
        self._scraped_ps = -1
        self._on_the_way: list[tuple[int, int, int]] = []  # (queue time, request, replica)
        self._admits_all = type(admission) is AlwaysAdmit  # a subclass may shed
        self._reads_replicas = (routing.reads_replicas and len(replicas) > 1) or admission.reads_replicas

    def run(self, workload: Workload) -> None:
        """Serve all of `workload`, or as much as its time limit allows."""
        end_ps = min(workload.time_limit_ps + 1, NEVER) if workload.time_limit_ps else NEVER
        if workload.users:
            self._run_closed(workload, end_ps)
        elif self._reads_replicas:
            self._run_open(end_ps)
        else:
            self._run_blind(end_ps)

    # -- three ways to drive the replicas
    # ---------------------------------------------------------------------------------

    def _run_blind(self, end_ps: int) -> None:
        """Open loop, policies that do not look at the replicas: each replica can be simulated on its own."""
        table = self._table
        queued: list[list[tuple[int, int]]] = [[] for _ in self._replicas]
        for index, arrival_ps in enumerate(table.arrival_ps):
            if arrival_ps >= end_ps:
                break
            chosen = self._decide(index, arrival_ps)
            if chosen >= 0:
                queued[chosen].append((self._queue_ps(index, arrival_ps), index))
        for replica, requests in zip(self._replicas, queued, strict=True):
            if self._overhead.before_queue_ps_per_token:
                requests.sort()
            for queue_ps, index in requests:
                if queue_ps >= end_ps:
                    break
                replica.advance(queue_ps)
                replica.enqueue(index, queue_ps)
            replica.advance(end_ps)

    def _run_open(self, end_ps: int) -> None:
        """Open loop, with policies that look at the replicas when a request arrives."""
        interval = self._interval_ps
        for index, arrival_ps in enumerate(self._table.arrival_ps):
            if arrival_ps >= end_ps:
                break
            scrape_ps = arrival_ps - arrival_ps % interval if interval else arrival_ps
            if scrape_ps > self._scraped_ps:
                self._advance(scrape_ps)
                self._scrape(scrape_ps)
            self._advance(arrival_ps)
            self._route(index, arrival_ps)
        self._advance(end_ps)

    def _run_closed(self, workload: Workload, end_ps: int) -> None:
        """Closed loop: an answer that ends brings the next request."""
        users = min(workload.users, len(workload))
        starts = workload.user_start_ps
        arrivals = sorted((0 if starts is None else int(starts[user]), user) for user in range(users))
        waiting_from = users
        interval = self._interval_ps
        scrape_ps = 0 if self._reads_replicas and interval else NEVER
        # At least 1 ps: a request that an answer brings comes after every boundary of that moment.
        delay_ps = max(1, self._overhead.last_token_ps + workload.think_time_ps)
        finished: list[int] = []
        for replica in self._replicas:
            replica.finished = finished
        while True:
            boundary_ps = min(replica.next_ps for replica in self._replicas)
            arrival_ps = arrivals[0][0] if arrivals else NEVER
            queue_ps = self._on_the_way[0][0] if self._on_the_way else NEVER
            now = min(boundary_ps, arrival_ps, queue_ps)
            if now >= end_ps:
                return
            if scrape_ps <= now:
                scrape_ps = now - now % interval
                self._scrape(scrape_ps)
                scrape_ps += interval
            if arrival_ps == now:
                index = heapq.heappop(arrivals)[1]
                self._table.arrival_ps[index] = now
                if self._reads_replicas and not interval:
                    self._scrape(now)
                if not self._route(index, now):
                    finished.append(index)  # refused: the user goes on with the next
            elif queue_ps == now:
                _, index, replica_index = heapq.heappop(self._on_the_way)
                self._replicas[replica_index].enqueue(index, now)
            else:
                for replica in self._replicas:
                    replica.advance(now + 1)
            while finished:
                finished.pop()
                if waiting_from < len(workload):
                    heapq.heappush(arrivals, (now + delay_ps, waiting_from))
                    waiting_from += 1

    # -- one request
    # ---------------------------------------------------------------------------------------------------------

    def _decide(self, index: int, now: int) -> int:
        """The replica that the request goes to; -1 if it is rejected or shed."""
        table = self._table
        if table.outcome[index] == REJECTED:
            return -1
        chosen = 0
        if not self._admits_all or len(self._replicas) > 1:
            request = RequestView(table, index)
            now_s = now / 1e12
            if not self._admits_all and not self._admission.admit(request, self._views, now_s):
                table.outcome[index] = SHED
                return -1
            if len(self._replicas) > 1:
                chosen = self._routing.route(request, self._views, now_s)
                if not 0 <= chosen < len(self._replicas):
                    raise InputError("deployment.routing", f"chose replica {chosen} of {len(self._replicas)}")
        table.replica[index] = chosen
        return chosen

    def _queue_ps(self, index: int, arrival_ps: int) -> int:
        overhead = self._overhead
        per_token = overhead.before_queue_ps_per_token * self._table.prompt_tokens[index]
        return arrival_ps + overhead.gateway_ps + overhead.before_queue_ps + per_token

    def _route(self, index: int, now: int) -> bool:
        """Decide, and send the request on its way; False if it is rejected or shed."""
        if self._reads_replicas:
            for view, replica in zip(self._views, self._replicas, strict=True):
                view.in_flight = view.routed - replica.stats.completed
        chosen = self._decide(index, now)
        if chosen < 0:
            return False
        view = self._views[chosen]
        view.routed += 1
        view.unseen += 1
        heapq.heappush(self._on_the_way, (self._queue_ps(index, now), index, chosen))
        return True

    def _advance(self, until_ps: int) -> None:
        """Queue what is due and handle every boundary, strictly before `until_ps`."""
        while self._on_the_way and self._on_the_way[0][0] < until_ps:
            queue_ps, index, chosen = heapq.heappop(self._on_the_way)
            self._replicas[chosen].advance(queue_ps)
            self._replicas[chosen].enqueue(index, queue_ps)
        for replica in self._replicas:
            replica.advance(until_ps)

    def _scrape(self, now: int) -> None:
        """What the router knows of its replicas is now what they are."""
        self._scraped_ps = now
        for view, replica in zip(self._views, self._replicas, strict=True):
            view.waiting = replica.num_waiting
            view.running = replica.num_running
            view.kv_usage = replica.used_blocks(now) / replica.pool.num_blocks
            view.unseen = view.routed - replica.stats.requests


def policy_random(seed: int, purpose: str) -> Random:
    """The random stream of a policy: its draws never shift those of another."""
    return Random(f"{seed}/{purpose}")
