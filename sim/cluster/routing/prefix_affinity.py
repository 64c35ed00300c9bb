"""llm-d's prefix-cache-affinity-filter: where the prefix is, unless the queue there is far longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sim.cluster.plugins import must_be_positive
from sim.cluster.routing.candidates import Candidates, Filter

PREFILL_TOKENS_PER_S = 15928.0
"""llm-d's estimate of a replica's prefill rate."""


@dataclass(slots=True)
class PrefixCacheAffinityFilter(Filter):
    """Keeps the sticky replicas: those that match `affinity_threshold` of the prompt or more.

    All stay if none is sticky, or if the best sticky one's TTFT (tokens in flight / `tokens_per_s`) exceeds the best
    other's by more than `max_ttft_penalty_ms`.
    """

    affinity_threshold: float = 0.8
    max_ttft_penalty_ms: float = 18_000.0
    tokens_per_s: float = PREFILL_TOKENS_PER_S
    reads_prefix: ClassVar[bool] = True

    def __post_init__(self) -> None:
        must_be_positive(self, "tokens_per_s")

    def keep(self, candidates: Candidates) -> Sequence[int]:
        everybody = range(len(candidates.ids))
        if candidates.prefix_total == 0:
            return everybody
        needed = self.affinity_threshold * candidates.prefix_total
        if max(candidates.prefix_tokens) < needed:
            return everybody
        sticky = [i for i in everybody if candidates.prefix_tokens[i] >= needed]
        if len(sticky) == len(everybody):
            return everybody
        stuck = set(sticky)
        tokens = [replica.in_flight_tokens for replica in candidates.replicas]
        ahead = min(tokens[i] for i in sticky) - min(tokens[i] for i in everybody if i not in stuck)
        return everybody if ahead / self.tokens_per_s * 1e3 > self.max_ttft_penalty_ms else sticky
