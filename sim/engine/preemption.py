"""Who gives way when the KV cache is full: preemption policies."""

from __future__ import annotations


class PreemptionPolicy:
    """Chooses a victim. Subclass it to bring your own."""

    def victim(self, candidates: list[tuple[int, int, int]]) -> int:
        """The position in `candidates` of the request to preempt; they are (priority, queue time in ps, request index)
        of the running requests that may be preempted, in order of admission, at least one."""
        raise NotImplementedError


class PreemptLast(PreemptionPolicy):
    """vLLM's rule under fcfs: the one admitted last."""

    def victim(self, candidates: list[tuple[int, int, int]]) -> int:
        return len(candidates) - 1


class PreemptLeastUrgent(PreemptionPolicy):
    """vLLM's rule under priority scheduling: the greatest (priority, queue time)."""

    def victim(self, candidates: list[tuple[int, int, int]]) -> int:
        return candidates.index(max(candidates))
