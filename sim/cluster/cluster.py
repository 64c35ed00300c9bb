"""The gateway and its replicas on one clock: requests arrive, are admitted, held back, routed, queued, served."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from random import Random
from typing import Final

from sim.cluster.admission.always_admit import AlwaysAdmit
from sim.cluster.arrivals import Arrivals
from sim.cluster.flow_control._base import FlowControlPolicy
from sim.cluster.flow_control.none import NoFlowControl
from sim.cluster.flow_control.queue import GatewayQueue
from sim.cluster.policies import (
    AdmissionPolicy,
    DisaggregationPolicy,
    ReplicaViews,
    RequestView,
    RoutingPolicy,
)
from sim.cluster.pool import Pool
from sim.engine.link import Link
from sim.engine.replica import NEVER, Replica
from sim.engine.requests import EXPIRED, REJECTED, SHED, RequestTable
from sim.errors import InputError
from sim.latency import RequestOverhead
from sim.so_far import Looks
from sim.workload import Workload

_LEAST_DRAIN_PS: Final = 10**9


@dataclass(slots=True)
class Prefill:
    """What a cluster with disaggregation has beside its replicas, which are then the decode pool.

    In `table`, the prefill replicas' own, every request has one output token: when that is made its prefill has ended.
    """

    table: RequestTable
    replicas: list[Replica]
    links: list[Link]  # into each replica of the decode pool
    decider: DisaggregationPolicy
    routing: RoutingPolicy


class Cluster:
    """Serves a workload. The results are in the table and in the replicas.

    A scrape at time s sees what was queued and what ended before s. Whether a request is admitted is decided the
    moment it arrives, and where to the moment it is sent on: then too, unless flow control holds it back. It is queued
    in the engine after the gateway's, client's and tokenizer's time. At one time, in this order: the scrape, what
    expires at the gateway, a cycle of flow control, arrivals, what is queued in the engines, the engines' boundaries.

    With a prefill pool the replica that a request will decode in is chosen first, then whether and where its prompt is
    prefilled before (llm-d's order). Admission and flow control see both pools, the decode pool first.
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
        prefill: Prefill | None = None,
    ) -> None:
        self._table = table
        self._overhead = overhead
        self._routing = routing
        self._admission = admission
        self._interval_ps = snapshot_interval_ps
        self._decode = Pool(replicas, block_size, None if prefill is None else prefill.links)
        self._views = self._decode.views  # of all replicas
        self._prefill = prefill
        self._prefill_pool: Pool | None = None
        self._prefilled: list[int] = []  # requests whose prefill has just ended
        self._fetched: list[tuple[int, int]] = []  # (time, request) of transfers whose end has just become known
        self._let_go: list[tuple[int, int]] = []  # a heap of (time, request): its blocks in the prefill pool are free
        if prefill is not None:
            self._prefill_pool = Pool(prefill.replicas, block_size)
            self._views = ReplicaViews([*self._decode.views, *self._prefill_pool.views])
            for replica in prefill.replicas:
                replica.finished = self._prefilled
                replica.keeps_blocks = True
            for replica in replicas:
                replica.fetched = self._fetched
        self._asked = RequestView(table, 0)  # what policies see of the request that they are asked about
        self._scraped_ps = -1
        self._admits_all = type(admission) is AlwaysAdmit  # a subclass may shed
        self._flow: FlowControlPolicy | None = None
        self._queue: GatewayQueue | None = None
        if flow_control is not None and type(flow_control) is not NoFlowControl:
            self._flow = flow_control
            self._queue = GatewayQueue(flow_control, table)
        self._reads_replicas = (
            (routing.reads_replicas and len(replicas) > 1) or admission.reads_replicas or self._queue is not None
        )
        if prefill is not None:
            routes = prefill.routing.reads_replicas and len(prefill.replicas) > 1
            self._reads_replicas = self._reads_replicas or routes or prefill.decider.reads_replicas
        self._looks: Looks | None = None
        self._until_tick = 0  # events; never 0 again where nobody looks

    def watch(self, looks: Looks) -> None:
        """Let `looks` see the run while it goes on."""
        self._looks = looks
        self._until_tick = looks.every

    def run(self, workload: Workload) -> None:
        """Serve all of `workload`, or as much as its time limit allows."""
        end_ps = min(workload.time_limit_ps + 1, NEVER) if workload.time_limit_ps else NEVER
        if workload.answers_bring_requests or self._queue is not None or self._prefill is not None:
            self._run_events(workload, end_ps)
        elif self._reads_replicas:
            self._run_open(end_ps)
        else:
            self._run_blind(end_ps)

    # -- three ways to drive the replicas ----------------------------------------------------------------------------

    def _run_blind(self, end_ps: int) -> None:
        """Open loop, policies that do not look at the replicas: each replica can be simulated on its own."""
        table = self._table
        replicas = self._decode.replicas
        queued: list[list[tuple[int, int]]] = [[] for _ in replicas]
        for index, arrival_ps in enumerate(table.arrival_ps):
            if arrival_ps >= end_ps:
                break
            if self._admit(index, arrival_ps):
                queued[self._choose(index, arrival_ps)].append((self._queue_ps(index, arrival_ps), index))
        for replica, requests in zip(replicas, queued, strict=True):
            if self._overhead.before_queue_ps_per_token:
                requests.sort()
            for queue_ps, index in requests:
                if queue_ps >= end_ps:
                    break
                replica.advance(queue_ps)
                replica.enqueue(index, queue_ps)
                self._until_tick -= 1
                if self._until_tick == 0:
                    self._tick(queue_ps)
            if self._looks is not None:
                self._drain(self._looks, end_ps, replica)
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
            self._until_tick -= 1
            if self._until_tick == 0:
                self._tick(arrival_ps)
        if self._looks is not None:
            self._drain(self._looks, end_ps, None)
        self._advance(end_ps)

    def _run_events(self, workload: Workload, end_ps: int) -> None:
        """Event by event: closed loops and sessions (an answer brings a request), a gateway with a queue, and pools."""
        arrivals = Arrivals(workload, self._table, self._overhead.last_token_ps)
        watched = workload.answers_bring_requests
        interval, queue = self._interval_ps, self._queue
        scrape_ps = 0 if self._reads_replicas and interval else NEVER
        cycle_ps = NEVER
        if watched:
            for replica in self._decode.replicas:
                replica.finished = arrivals.ended
        while True:
            held = queue is not None and len(queue) > 0
            expiry_ps = queue.next_expiry_ps() if queue is not None and held else NEVER
            now = min(arrivals.next_ps(), cycle_ps, expiry_ps)
            if held and scrape_ps < now:
                now = scrape_ps
            if watched or (held and self._flow is not None and self._flow.saturation.reads_in_flight):
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
            self._set_now(now)
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
            self._until_tick -= 1
            if self._until_tick == 0:
                self._tick(now)
        if self._looks is not None:
            self._drain(self._looks, end_ps, None)
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

    # -- who looks on ------------------------------------------------------------------------------------------------

    def _tick(self, now: int) -> None:
        assert self._looks is not None
        self._until_tick = self._looks.tick(now)

    def _drain(self, looks: Looks, end_ps: int, one: Replica | None) -> None:
        """Nothing arrives any more: advance all replicas, or `one`, and look, in strides that grow if little ends."""
        few = max(1, len(self._table) // 32)
        now = one.due_ps if one is not None else self._next_due_ps()
        stride = max(_LEAST_DRAIN_PS, now // 32) if now < end_ps else 0
        done, few = looks.done(), max(1, len(self._table) // 32)
        while now < end_ps:
            until = min(now + stride, end_ps)
            if one is not None:
                one.advance(until)
                now = one.due_ps
            else:
                self._advance(until)
                now = self._next_due_ps()
            if now < end_ps:
                looks.drains(until)
            if (ended := looks.done()) - done < few:
                stride *= 2
            done = ended

    # -- one request -------------------------------------------------------------------------------------------------

    def _admit(self, index: int, now: int) -> bool:
        """Whether a request that arrives is neither too long nor shed by admission."""
        outcome = self._table.outcome
        if outcome[index] == REJECTED:
            return False
        if self._admits_all:
            return True
        self._set_now(now)
        self._asked.index = index
        if self._admission.admit(self._asked, self._views, now / 1e12):
            return True
        outcome[index] = SHED
        return False

    def _choose(self, index: int, now: int) -> int:
        """The replica that a request goes to."""
        chosen, replicas = 0, len(self._decode.replicas)
        if replicas > 1:
            self._set_now(now)
            self._asked.index = index
            chosen = self._routing.route(self._asked, self._decode.views, now / 1e12)
            if not 0 <= chosen < replicas:
                raise InputError("deployment.routing", f"chose replica {chosen} of {replicas}")
        self._table.replica[index] = chosen
        return chosen

    def _queue_ps(self, index: int, sent_ps: int) -> int:
        overhead = self._overhead
        per_token = overhead.before_queue_ps_per_token * self._table.prompt_tokens[index]
        return sent_ps + overhead.gateway_ps + overhead.before_queue_ps + per_token

    def _send(self, index: int, now: int) -> None:
        """Choose a replica, and send the request on its way; by a prefill replica where the decider says so."""
        chosen = self._choose(index, now)
        tokens = self._table.prompt_tokens[index]
        queue_ps = self._queue_ps(index, now)
        first = -1 if self._prefill is None else self._choose_prefill(index, chosen, now)
        self._decode.count_routed(chosen, tokens)
        if self._prefill_pool is None or first < 0:
            self._decode.send(index, chosen, queue_ps)
        else:
            self._prefill_pool.count_routed(first, tokens)
            self._prefill_pool.send(index, first, queue_ps)

    def _choose_prefill(self, index: int, decode: int, now: int) -> int:
        """The prefill replica that a request goes to first, -1 if replica `decode`, where it decodes, prefills it."""
        prefill, pool = self._prefill, self._prefill_pool
        assert prefill is not None
        assert pool is not None
        self._set_now(now)
        request = self._asked
        request.index = index
        if not prefill.decider.disaggregate(request, self._decode.views, decode, now / 1e12):
            return -1
        chosen, replicas = 0, len(prefill.replicas)
        if replicas > 1:
            chosen = prefill.routing.route(request, pool.views, now / 1e12)
            if not 0 <= chosen < replicas:
                raise InputError("deployment.prefill_routing", f"chose replica {chosen} of {replicas}")
        prefill.table.replica[index] = chosen
        return chosen

    def _hand_over(self) -> None:
        """Those whose prefill has ended are sent to where they decode: another server, which tokenizes them again."""
        assert self._prefill is not None
        overhead, table = self._overhead, self._table
        for index in self._prefilled:
            tokens = table.prompt_tokens[index]
            before_ps = overhead.before_queue_ps + overhead.before_queue_ps_per_token * tokens
            # At least 1 ps: it comes after every boundary of that moment.
            queue_ps = self._prefill.table.finish_ps[index] + max(1, overhead.last_token_ps + before_ps)
            self._decode.send(index, table.replica[index], queue_ps, tokens)
        self._prefilled.clear()

    # -- the replicas ------------------------------------------------------------------------------------------------

    def _set_now(self, now: int) -> None:
        self._views.now_ps = now
        if self._prefill_pool is not None:
            self._prefill_pool.views.now_ps = now
            self._decode.views.now_ps = now

    def _advance(self, until_ps: int) -> None:
        """Queue what is due and handle every boundary, strictly before `until_ps`."""
        if self._prefill_pool is not None:
            self._advance_pools(self._prefill_pool, until_ps)
        self._decode.advance(until_ps)

    def _advance_pools(self, prefill: Pool, until_ps: int) -> None:
        """The same of both pools: neither gets so far ahead that it could miss what it hears from the other.

        The decode pool hears of a prefill's end 1 ps later or more. The prefill pool gets blocks back, which matters
        at its next boundary, or at once where a replica has nothing but requests that wait for blocks.
        """
        decode, let_go = self._decode, self._let_go
        while True:
            prefill_ps = min(prefill.next_due_ps(), let_go[0][0] if let_go else NEVER)
            decode_ps = decode.next_due_ps()
            if prefill_ps >= until_ps and decode_ps >= until_ps:
                return
            if prefill_ps <= decode_ps:
                while let_go and let_go[0][0] <= prefill_ps:
                    at_ps, index = heapq.heappop(let_go)
                    prefill.let_go(index, self._prefill_replica(index), at_ps)
                prefill.advance(prefill_ps + 1)
                if self._prefilled:
                    self._hand_over()
            else:
                decode.advance(decode_ps + 1 if prefill.starved() else min(prefill_ps, until_ps))
                for end_ps, index in self._fetched:
                    heapq.heappush(let_go, (end_ps + 1, index))  # after every boundary of that moment
                self._fetched.clear()

    def _prefill_replica(self, index: int) -> int:
        assert self._prefill is not None
        return self._prefill.table.replica[index]

    def _next_due_ps(self) -> int:
        """When the next request is queued in an engine, or an engine needs attention."""
        due_ps = self._decode.next_due_ps()
        if self._prefill_pool is not None:
            due_ps = min(due_ps, self._prefill_pool.next_due_ps())
        return min(due_ps, self._let_go[0][0]) if self._let_go else due_ps

    def _scrape(self, now: int) -> None:
        """What the router knows of its replicas is now what they are."""
        self._scraped_ps = now
        self._decode.scrape(now)
        if self._prefill_pool is not None:
            self._prefill_pool.scrape(now)
            self._views.scraped_ps = now
            self._views.scrapes += 1


def policy_random(seed: int, purpose: str) -> Random:
    """The random stream of a policy: its draws never shift those of another."""
    return Random(f"{seed}/{purpose}")
