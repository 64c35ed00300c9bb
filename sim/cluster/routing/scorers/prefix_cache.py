"""llm-d's prefix-cache-scorer: the more of the prompt is believed cached there, the better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sim.cluster.plugins import must_be_positive
from sim.cluster.routing.arithmetic import shares
from sim.cluster.routing.candidates import Candidates, Scorer
from sim.errors import InputError


@dataclass(slots=True)
class PrefixCacheScorer(Scorer):
    """a min(1, match / scale)^2 + (1 - a) match / total, with a = `match_length_weight` and match in tokens."""

    match_length_weight: float = 0.0
    match_length_scale_tokens: float = 8192.0
    reads_prefix: ClassVar[bool] = True

    def __post_init__(self) -> None:
        must_be_positive(self, "match_length_scale_tokens")
        if self.match_length_weight > 1:
            raise InputError("match_length_weight", f"must be at most 1, got {self.match_length_weight!r}")

    def scores(self, candidates: Candidates) -> list[float]:
        matches, total = candidates.prefix_tokens, candidates.prefix_total
        if total == 0:
            return [0.0] * len(matches)
        a, scale = self.match_length_weight, self.match_length_scale_tokens
        if a == 0:
            return shares(matches, total)
        return [a * min(1.0, match / scale) ** 2 + (1.0 - a) * match / total for match in matches]
