"""Requests put aside while their KV is loaded: they hold blocks and no seat (vLLM: WAITING_FOR_REMOTE_KVS)."""

from __future__ import annotations

import heapq

from sim.engine.batch import Sequence


class Aside:
    """Those whose load has not ended, and the ready ones, whose load has, in the order in which they were put aside."""

    def __init__(self) -> None:
        self._loading: list[tuple[int, int, Sequence]] = []  # a heap of (end of the load, number, who)
        self._ready: list[tuple[int, Sequence]] = []  # a heap of (number, who)
        self._number = 0

    def put(self, sequence: Sequence, end_ps: int) -> None:
        """Put a sequence aside until its load ends."""
        self._number += 1
        heapq.heappush(self._loading, (end_ps, self._number, sequence))

    def next_end_ps(self) -> int:
        """When the next load ends; there is one."""
        return self._loading[0][0]

    def wake(self, now: int) -> int:
        """Loads that have ended by `now` make their requests ready; returns how many."""
        loading = self._loading
        ended = 0
        while loading and loading[0][0] <= now:
            _, number, sequence = heapq.heappop(loading)
            heapq.heappush(self._ready, (number, sequence))
            ended += 1
        return ended

    def pop(self) -> Sequence:
        """Take out the first of the ready; there is one."""
        return heapq.heappop(self._ready)[1]
