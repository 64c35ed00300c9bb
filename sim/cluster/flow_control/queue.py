"""The requests that wait at the gateway: bands by priority, flows by tenant, and the cycles that send them on."""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import Final

from sim.cluster.flow_control._base import FlowControlPolicy
from sim.cluster.policies import ReplicaViews, RequestView
from sim.engine.requests import RequestTable

NEVER: Final = 1 << 61


class _Band:
    """The waiting requests of one priority."""

    __slots__ = ("flows", "last", "size")

    def __init__(self) -> None:
        self.size = 0
        self.flows: dict[str, list[tuple[float, int, int]]] = {}  # heaps of (ordering key, number, request)
        self.last: str | None = None


class GatewayQueue:
    """Holds requests until a cycle sends them on: at every multiple of the cycle time, and whenever one is queued.

    A cycle goes through the bands from the most urgent one; it ends at the first that is not open, even an empty one,
    or with the first request that it finds. Cycles are numbered, so that those that could send nothing are skipped.
    """

    def __init__(self, policy: FlowControlPolicy, table: RequestTable) -> None:
        self._policy = policy
        self._table = table
        self.cycle_ps: Final = policy.cycle_ps
        self._ttl_ps = policy.ttl_ps
        priorities = sorted(set(table.priority)) if table.priority is not None else [0]
        self._bands = [_Band() for _ in priorities]
        self._band_of = {priority: number for number, priority in enumerate(priorities)}
        self._deadlines: deque[tuple[int, int]] = deque()
        self._waiting: set[int] = set()
        self._queued = 0  # ever: each was a cycle, too

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, request: RequestView, now_ps: int) -> bool:
        """Queue a request; False if its band is full."""
        band = self._bands[self._band_of[request.priority]]
        if band.size >= self._policy.max_requests:
            return False
        flow = band.flows.setdefault(request.tenant, [])
        self._queued += 1
        heapq.heappush(flow, (self._policy.order.key(request, self._ttl_ps), self._queued, request.index))
        band.size += 1
        self._waiting.add(request.index)
        self._deadlines.append((now_ps + self._ttl_ps, request.index))
        return True

    def next_expiry_ps(self) -> int:
        """When the next request expires, if it is not sent on before."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][1] not in self._waiting:
            deadlines.popleft()
        return deadlines[0][0] if deadlines else NEVER

    def expire(self, now_ps: int) -> list[int]:
        """Drop the requests whose time is up."""
        expired = []
        while self.next_expiry_ps() <= now_ps:
            index = self._deadlines.popleft()[1]
            self._waiting.remove(index)
            band = self._bands[self._band_of[RequestView(self._table, index).priority]]
            band.size -= 1
            expired.append(index)
        return expired

    def cycle(self, replicas: ReplicaViews) -> int:
        """One cycle, now: the request that is sent on, or -1."""
        saturation = self._policy.saturation.saturation(replicas)
        number = replicas.now_ps // self.cycle_ps + self._queued
        for position, band in enumerate(self._bands):
            every = self._policy.opens_every(position, len(self._bands), saturation)
            if every == 0 or number % every:
                return -1
            if band.size:
                return self._pop(band)
        return -1

    def next_cycle_ps(self, replicas: ReplicaViews, live: bool) -> int:
        """The next cycle by the clock that may send something, unless something changes before. `live`: the replicas
        are scraped at each cycle, so that any may.
        """
        if not self._waiting:
            return NEVER
        if live:
            return (replicas.now_ps // self.cycle_ps + 1) * self.cycle_ps
        saturation = self._policy.saturation.saturation(replicas)
        every = 1
        for position, band in enumerate(self._bands):
            opens = self._policy.opens_every(position, len(self._bands), saturation)
            if opens == 0:
                every = 0
                break
            every = math.lcm(every, opens)
            if band.size:
                break
        clock = replicas.now_ps // self.cycle_ps
        planned = (clock + every - (clock + self._queued) % every) * self.cycle_ps if every else NEVER
        stale_ps = replicas.scraped_ps + self._policy.saturation.stale_after_ps
        if self._policy.saturation.stale_after_ps and replicas.now_ps <= stale_ps:
            planned = min(planned, (stale_ps // self.cycle_ps + 1) * self.cycle_ps)
        return planned

    def _pop(self, band: _Band) -> int:
        """The request of a band that is next by fairness and ordering."""
        heads = {}
        for name, flow in band.flows.items():
            while flow and flow[0][2] not in self._waiting:
                heapq.heappop(flow)  # expired
            if flow:
                heads[name] = flow[0][:2]
        band.last = self._policy.fair.choose(list(band.flows), heads, band.last)
        index = heapq.heappop(band.flows[band.last])[2]
        band.size -= 1
        self._waiting.remove(index)
        return index
