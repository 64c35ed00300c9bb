"""llm-d's token-load-scorer: the fewer prompt tokens in flight there, the better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sim.cluster.plugins import must_be_positive
from sim.cluster.routing.arithmetic import token_scores
from sim.cluster.routing.candidates import Candidates, Scorer


@dataclass(slots=True)
class TokenLoadScorer(Scorer):
    """1 - min(x, T) / T, x = tokens in flight there plus the request's tokens that are not cached there."""

    queue_threshold_tokens: float = 4_194_304.0
    reads_prefix: ClassVar[bool] = True

    def __post_init__(self) -> None:
        must_be_positive(self, "queue_threshold_tokens")

    def scores(self, candidates: Candidates) -> list[float]:
        in_flight = [replica.in_flight_tokens for replica in candidates.replicas]
        prompt = candidates.request.prompt_tokens
        return token_scores(in_flight, candidates.prefix_tokens, prompt, self.queue_threshold_tokens)
