"""Who of the waiting is next: scheduling policies. One needs only a `key`."""

from __future__ import annotations


class SchedulingPolicy:
    """Orders the waiting by `key`, smallest first, ties by (queue time, index). Subclass it to bring your own.

    ``class ShortOutputs(SchedulingPolicy)`` with a method ``key(priority, prompt_tokens, queue_ps)`` is all there is.
    """

    def key(self, priority: int, prompt_tokens: int, queue_ps: int) -> float:
        """The place in the queue of a request of that priority (lower is more urgent) and length, queued at that time
        in ps. Asked once each time the request is queued, so it must not change meanwhile."""
        raise NotImplementedError


class Fcfs(SchedulingPolicy):
    """vLLM's default: in order of arrival. Here, and only here, the preempted go to the front of the queue."""

    def key(self, priority: int, prompt_tokens: int, queue_ps: int) -> float:
        return 0.0


class PriorityScheduling(SchedulingPolicy):
    """vLLM's `--scheduling-policy priority`: the lowest priority value first."""

    def key(self, priority: int, prompt_tokens: int, queue_ps: int) -> float:
        return priority


class ShortestJobFirst(SchedulingPolicy):
    """The shortest prompt first."""

    def key(self, priority: int, prompt_tokens: int, queue_ps: int) -> float:
        return prompt_tokens
