"""When requests arrive: at their times, when a user of a closed loop is free, or after a session's last answer."""

from __future__ import annotations

import heapq
from array import array
from typing import Final

import numpy as np

from sim.engine.replica import NEVER
from sim.engine.requests import RequestTable
from sim.errors import InputError
from sim.workload import IntColumn, Workload


class Arrivals:
    """The arrivals still to come. Note in `ended` who has ended, however it did, then call `follow`."""

    def __init__(self, workload: Workload, table: RequestTable, last_token_ps: int) -> None:
        self.ended: Final[list[int]] = []
        self._table: Final = table
        self._last_token_ps: Final = last_token_ps
        self._think_time_ps: Final = workload.think_time_ps
        self._closed: Final = workload.users > 0
        self._heap: Final[list[tuple[int, int]]] = []  # (time, request) of those that a user or an answer brings
        self._next = 0  # position in `_starts` of the first that is still to come
        self._follower: array[int] | None = None  # of each request, -1: nobody
        self._think_ps: array[int] = array("q")  # of those that follow another
        follows = workload.follows
        if follows is None:
            starts = np.arange(len(table), dtype=np.int64)
        else:
            self._follower = array("q", _followers(follows).tobytes())
            self._think_ps = array("q", workload.arrival_ps.tobytes())
            starts = np.flatnonzero(follows < 0)
        self._starts: array[int] = array("q", starts.astype(np.int64).tobytes())  # who follows nobody
        if self._closed:
            begins = workload.user_start_ps
            self._next = min(workload.users, len(self._starts))
            for user in range(self._next):
                heapq.heappush(self._heap, (0 if begins is None else int(begins[user]), self._starts[user]))

    def next_ps(self) -> int:
        """When the next request arrives, as far as is known now."""
        at = self._heap[0][0] if self._heap else NEVER
        if not self._closed and self._next < len(self._starts):
            start_ps = self._table.arrival_ps[self._starts[self._next]]
            if start_ps < at:
                at = start_ps
        return at

    def pop(self, now: int) -> int:
        """The request that arrives now: the first in the workload's order of those that do."""
        heap = self._heap
        if not self._closed and self._next < len(self._starts):
            index = self._starts[self._next]
            if self._table.arrival_ps[index] == now and (not heap or (now, index) < heap[0]):
                self._next += 1
                return index
        index = heapq.heappop(heap)[1]
        self._table.arrival_ps[index] = now
        return index

    def follow(self, now: int) -> None:
        """Each of those that have ended now brings the next request of its session, or of its user.

        It comes at least 1 ps later: after every boundary of that moment.
        """
        while self.ended:
            index = self.ended.pop()
            follower = -1 if self._follower is None else self._follower[index]
            think_ps = self._think_time_ps
            if follower >= 0:
                think_ps = self._think_ps[follower]
            elif self._closed and self._next < len(self._starts):
                follower = self._starts[self._next]
                self._next += 1
            else:
                continue
            delay_ps = self._last_token_ps + think_ps
            heapq.heappush(self._heap, (now + (delay_ps if delay_ps > 1 else 1), follower))


def _followers(follows: IntColumn) -> IntColumn:
    """Who follows each request, -1 where nobody does."""
    rows = np.flatnonzero(follows >= 0)
    followed = follows[rows]
    if (followed >= rows).any() or len(np.unique(followed)) < len(rows):
        raise InputError("workload.follows", "each must name an earlier request that no other one follows")
    followers = np.full(len(follows), -1, np.int64)
    followers[followed] = rows
    return followers
