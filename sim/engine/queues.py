"""The requests that wait for a replica, in the order in which they will be admitted."""

from __future__ import annotations

import heapq
from collections import deque

from sim.engine.scheduling import SchedulingPolicy


class WaitingQueue:
    """Requests that wait for a replica, by index."""

    def push(self, index: int, priority: int, prompt_tokens: int, queue_ps: int) -> None:
        """Queue a request that has not run yet."""
        raise NotImplementedError

    def push_preempted(self, index: int, priority: int, prompt_tokens: int, queue_ps: int) -> None:
        """Bring back a request that has run before."""
        raise NotImplementedError

    def head(self) -> int:
        """Who is admitted next; there is one."""
        raise NotImplementedError

    def pop(self) -> int:
        """Take out the head."""
        raise NotImplementedError


class FcfsQueue(WaitingQueue):
    """First come, first served; the preempted go to the front."""

    def __init__(self) -> None:
        self._queue: deque[int] = deque()

    def push(self, index: int, priority: int, prompt_tokens: int, queue_ps: int) -> None:
        self._queue.append(index)

    def push_preempted(self, index: int, priority: int, prompt_tokens: int, queue_ps: int) -> None:
        self._queue.appendleft(index)

    def head(self) -> int:
        return self._queue[0]

    def pop(self) -> int:
        return self._queue.popleft()


class KeyedQueue(WaitingQueue):
    """The waiting in the order of a scheduling policy; the preempted return by their key."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._policy = policy
        self._heap: list[tuple[float, int, int]] = []

    def push(self, index: int, priority: int, prompt_tokens: int, queue_ps: int) -> None:
        heapq.heappush(self._heap, (self._policy.key(priority, prompt_tokens, queue_ps), queue_ps, index))

    def push_preempted(self, index: int, priority: int, prompt_tokens: int, queue_ps: int) -> None:
        self.push(index, priority, prompt_tokens, queue_ps)

    def head(self) -> int:
        return self._heap[0][2]

    def pop(self) -> int:
        return heapq.heappop(self._heap)[2]
