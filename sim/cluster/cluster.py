"""The gateway and its replicas on one clock: requests arrive, are admitted, held back, routed, queued, served."""

from __future__ import annotations

import heapq
from functools import partial
from random import Random

from sim.cluster.admission.always_admit import AlwaysAdmit
from sim.cluster.flow_control._base import FlowControlPolicy
from sim.cluster.flow_control.none import NoFlowControl
from sim.cluster.flow_control.queue import GatewayQueue
from sim.cluster.policies import AdmissionPolicy, ReplicaView, ReplicaViews, RequestView, RoutingPolicy
from sim.engine.replica import NEVER, Replica
from sim.engine.requests import EXPIRED, REJECTED, SHED, RequestTable
from sim.errors import InputError
from sim.latency import RequestOverhead
from sim.workload import Workload


class Cluster:
    """Serves a workload. The results are in the table and in the replicas.

    A scrape at time s sees what was queued and what ended before s. Whether a request is admitted is decided the
    moment it arrives, and where to the moment it is sent on: then too, unless flow control holds it back. It is queued
    in the engine after the gateway's, client's and tokenizer's time. At one time, in this order: the scrape, what
    expires at the gateway, a cycle of flow control, arrivals, what is queued in the engines, the engines' boundaries.
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
        flow_control: FlowControlPolicy | None = None,
    ) -> None:
        self._table = table
        self._replicas = replicas
        self._overhead = overhead
        self._routing = routing
        self._admission = admission
        self._interval_ps = snapshot_interval_ps
        self._block_size = block_size
        self._views = ReplicaViews(
            [
                ReplicaView(
                    num_blocks=replica.pool.num_blocks,
                    block_size=block_size,
                    look_up=partial(self._cached_tokens, number),
                )
                for number, replica in enumerate(replicas)
            ]
        )
        self._scraped_ps = -1
        self._routed_tokens = [0] * len(replicas)
        self._completed = [0] * len(replicas)
        self._on_the_way: list[tuple[int, int, int]] = []  # (queue time, request, replica)
        self._due_ps = [NEVER] * len(replicas)  # when each replica needs attention
        self._due: list[tuple[int, int]] = []  # a heap of (due time, replica); outdated where it is not in _due_ps
        self._admits_all = type(admission) is AlwaysAdmit  # a subclass may shed
        self._flow: FlowControlPolicy | None = None
        self._queue: GatewayQueue | None = None
        if flow_control is not None and type(flow_control) is not NoFlowControl:
            self._flow = flow_control
            self._queue = GatewayQueue(flow_control, table)
        self._reads_replicas = (
            (routing.reads_replicas and len(replicas) > 1) or admission.reads_replicas or self._queue is not None
        )

    def run(self, workload: Workload) -> None:
        """Serve all of `workload`, or as much as its time limit allows."""
        end_ps = min(workload.time_limit_ps + 1, NEVER) if workload.time_limit_ps else NEVER
        if workload.users or self._queue is not None:
            self._run_events(workload, end_ps)
        elif self._reads_replicas:
            self._run_open(end_ps)
        else:
            self._run_blind(end_ps)

    # -- three ways to drive the replicas ----------------------------------------------------------------------------

    def _run_blind(self, end_ps: int) -> None:
        """Open loop, policies that do not look at the replicas: each replica can be simulated on its own."""
        table = self._table
        queued: list[list[tuple[int, int]]] = [[] for _ in self._replicas]
        for index, arrival_ps in enumerate(table.arrival_ps):
            if arrival_ps >= end_ps:
                break
            if self._admit(index, arrival_ps):
                queued[self._choose(index, arrival_ps)].append((self._queue_ps(index, arrival_ps), index))
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
            if scrape_ps > self._scraped_ps or not interval:
                self._advance(scrape_ps)
                self._scrape(scrape_ps)
            self._advance(arrival_ps)
            if self._admit(index, arrival_ps):
                self._send(index, arrival_ps)
        self._advance(end_ps)

    def _run_events(self, workload: Workload, end_ps: int) -> None:
        """Event by event: a closed loop, where an answer brings the next request, or a gateway with a queue."""
        # At least 1 ps: a request that an answer brings comes after every boundary of that moment.
        delay_ps = max(1, self._overhead.last_token_ps + workload.think_time_ps)
        arrivals = _Arrivals(workload, self._table, delay_ps)
        interval, queue = self._interval_ps, self._queue
        scrape_ps = 0 if self._reads_replicas and interval else NEVER
        cycle_ps = NEVER
        if workload.users:
            for replica in self._replicas:
                replica.finished = arrivals.ended
        while True:
            held = queue is not None and len(queue) > 0
            expiry_ps = queue.next_expiry_ps() if queue is not None and held else NEVER
            now = min(arrivals.next_ps(), cycle_ps, expiry_ps)
            if held and scrape_ps < now:
                now = scrape_ps
            if workload.users or (held and self._flow is not None and self._flow.saturation.reads_in_flight):
                now = min(now, self._next_due_ps())
            if now >= end_ps:
                break
            if scrape_ps <= now:
                scrape_ps = now - now % interval
                self._advance(scrape_ps)
                self._scrape(scrape_ps)
                if queue is not None and held and scrape_ps == now and now % queue.cycle_ps == 0:
                    cycle_ps = now
                scrape_ps += interval
            self._advance(now)
            self._views.now_ps = now
            if queue is not None and expiry_ps == now:
                for index in queue.expire(now):
                    self._table.outcome[index] = EXPIRED
                    arrivals.ended.append(index)
            elif cycle_ps == now:
                self._cycle(now)
                cycle_ps = NEVER
            elif arrivals.next_ps() == now:
                self._arrive(arrivals.pop(now), now, arrivals.ended)
            else:
                self._advance(now + 1)
            arrivals.follow(now)
            if queue is not None and cycle_ps != now:
                cycle_ps = queue.next_cycle_ps(self._views, live=interval == 0)
        self._advance(end_ps)

    def _arrive(self, index: int, now: int, ended: list[int]) -> None:
        """A request arrives at a gateway that may have a queue; it is added to `ended` if it is turned away."""
        if self._reads_replicas and not self._interval_ps:
            self._scrape(now)
        if not self._admit(index, now):
            ended.append(index)
        elif self._queue is None:
            self._send(index, now)
        elif self._queue.push(RequestView(self._table, index), now):
            self._cycle(now)
        else:
            self._table.outcome[index] = SHED
            ended.append(index)

    def _cycle(self, now: int) -> None:
        """A cycle of flow control: at most one request is sent on."""
        assert self._queue is not None
        if not self._interval_ps:
            self._scrape(now)
        index = self._queue.cycle(self._views)
        if index >= 0:
            self._send(index, now)

    # -- one request -------------------------------------------------------------------------------------------------

    def _admit(self, index: int, now: int) -> bool:
        """Whether a request that arrives is neither too long nor shed by admission."""
        outcome = self._table.outcome
        if outcome[index] == REJECTED:
            return False
        if self._admits_all:
            return True
        self._views.now_ps = now
        if self._admission.admit(RequestView(self._table, index), self._views, now / 1e12):
            return True
        outcome[index] = SHED
        return False

    def _choose(self, index: int, now: int) -> int:
        """The replica that a request goes to."""
        chosen, replicas = 0, len(self._replicas)
        if replicas > 1:
            self._views.now_ps = now
            chosen = self._routing.route(RequestView(self._table, index), self._views, now / 1e12)
            if not 0 <= chosen < replicas:
                raise InputError("deployment.routing", f"chose replica {chosen} of {replicas}")
        self._table.replica[index] = chosen
        return chosen

    def _queue_ps(self, index: int, sent_ps: int) -> int:
        overhead = self._overhead
        per_token = overhead.before_queue_ps_per_token * self._table.prompt_tokens[index]
        return sent_ps + overhead.gateway_ps + overhead.before_queue_ps + per_token

    def _send(self, index: int, now: int) -> None:
        """Choose a replica, and send the request on its way."""
        chosen = self._choose(index, now)
        tokens = self._table.prompt_tokens[index]
        view = self._views[chosen]
        view.routed += 1
        view.unseen += 1
        view.in_flight += 1
        view.in_flight_tokens += tokens
        self._routed_tokens[chosen] += tokens
        heapq.heappush(self._on_the_way, (self._queue_ps(index, now), index, chosen))

    # -- the replicas ------------------------------------------------------------------------------------------------

    def _advance(self, until_ps: int) -> None:
        """Queue what is due and handle every boundary, strictly before `until_ps`."""
        on_the_way, due = self._on_the_way, self._due
        while on_the_way and on_the_way[0][0] < until_ps:
            queue_ps, index, chosen = heapq.heappop(on_the_way)
            replica = self._replicas[chosen]
            replica.advance(queue_ps)
            replica.enqueue(index, queue_ps)
            self._note(chosen)
        while due and due[0][0] < until_ps:
            due_ps, number = heapq.heappop(due)
            if due_ps == self._due_ps[number]:
                self._due_ps[number] = NEVER
                self._replicas[number].advance(until_ps)
                self._note(number)

    def _note(self, number: int) -> None:
        """A replica has moved: when it is due next, and what the router's own counts are."""
        replica = self._replicas[number]
        due_ps = replica.due_ps
        if due_ps != self._due_ps[number]:
            self._due_ps[number] = due_ps
            if due_ps != NEVER:
                heapq.heappush(self._due, (due_ps, number))
        completed = replica.stats.completed
        if completed != self._completed[number]:
            self._completed[number] = completed
            view = self._views[number]
            view.in_flight = view.routed - completed
            view.in_flight_tokens = self._routed_tokens[number] - replica.stats.completed_prompt_tokens

    def _next_due_ps(self) -> int:
        """When the next request is queued in an engine, or an engine needs attention."""
        due = self._due
        while due and due[0][0] != self._due_ps[due[0][1]]:
            heapq.heappop(due)
        queue_ps = self._on_the_way[0][0] if self._on_the_way else NEVER
        return min(queue_ps, due[0][0]) if due else queue_ps

    def _scrape(self, now: int) -> None:
        """What the router knows of its replicas is now what they are."""
        self._scraped_ps = now
        views = self._views
        views.scraped_ps = now
        views.scrapes += 1
        for view, replica in zip(views, self._replicas, strict=True):
            view.waiting = replica.num_waiting
            view.running = replica.num_running
            view.kv_usage = replica.used_blocks(now) / replica.pool.num_blocks
            view.unseen = view.routed - replica.stats.requests

    def _cached_tokens(self, number: int, index: int) -> int:
        """Leading tokens of a request's prompt that a replica's prefix cache holds now."""
        replica = self._replicas[number]
        next_ps = replica.next_ps
        cached = replica.cached_blocks(index, self._views.now_ps) * self._block_size
        if replica.next_ps != next_ps:
            self._note(number)  # the look has cut a run of steps
        return cached


class _Arrivals:
    """When requests arrive: as the workload says, or (closed loop) when a user is free."""

    def __init__(self, workload: Workload, table: RequestTable, delay_ps: int) -> None:
        self.ended: list[int] = []  # requests that have just ended, in a closed loop
        self._table = table
        self._delay_ps = delay_ps
        self._count = len(table)
        self._closed = workload.users > 0
        self._heap: list[tuple[int, int]] = []
        self._next = 0  # the first request that is not in the heap
        if self._closed:
            starts = workload.user_start_ps
            self._next = min(workload.users, self._count)
            self._heap = sorted((0 if starts is None else int(starts[user]), user) for user in range(self._next))

    def next_ps(self) -> int:
        if self._closed:
            return self._heap[0][0] if self._heap else NEVER
        return self._table.arrival_ps[self._next] if self._next < self._count else NEVER

    def pop(self, now: int) -> int:
        """The request that arrives now."""
        if not self._closed:
            self._next += 1
            return self._next - 1
        index = heapq.heappop(self._heap)[1]
        self._table.arrival_ps[index] = now
        return index

    def follow(self, now: int) -> None:
        """Each of those that have ended brings the next request of its user."""
        while self.ended:
            self.ended.pop()
            if self._closed and self._next < self._count:
                heapq.heappush(self._heap, (now + self._delay_ps, self._next))
                self._next += 1


def policy_random(seed: int, purpose: str) -> Random:
    """The random stream of a policy: its draws never shift those of another."""
    return Random(f"{seed}/{purpose}")
