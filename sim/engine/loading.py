"""Requests put aside while their KV is loaded: they hold blocks and no seat (vLLM: WAITING_FOR_REMOTE_KVS)."""

from __future__ import annotations

import heapq

from sim.engine.batch import Sequence


class Aside:
    """Those whose load has not ended, and the ready ones, whose load has, in the order in which they were put aside."""

    def __init__(self) -> None:
        self.num = 0
        self.num_loading = 0  # the others are ready
        self._loading: list[tuple[int, int, Sequence]] = []  # a heap of (end of the load, number, who)
        self._ready: list[tuple[int, Sequence]] = []  # a heap of (number, who)
        self._number = 0

    def put(self, sequence: Sequence, end_ps: int) -> None:
        """Put a sequence aside until its load ends."""
        self.num += 1
        self.num_loading += 1
        self._number += 1
        heapq.heappush(self._loading, (end_ps, self._number, sequence))

    def next_end_ps(self) -> int:
        """When the next load ends; there is one."""
        return self._loading[0][0]

    def wake(self, now: int) -> None:
        """Loads that have ended by `now` make their requests ready."""
        loading = self._loading
        while loading and loading[0][0] <= now:
            _, number, sequence = heapq.heappop(loading)
            heapq.heappush(self._ready, (number, sequence))
            self.num_loading -= 1

    def pop(self) -> Sequence:
        """Take out the first of the ready; there is one."""
        self.num -= 1
        return heapq.heappop(self._ready)[1]
