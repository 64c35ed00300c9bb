"""Sheds what no replica is estimated to answer in time, as llm-d's latency-SLO admitter."""

from __future__ import annotations

from dataclasses import dataclass

from sim.cluster.plugins import must_be_positive
from sim.cluster.policies import AdmissionPolicy, ReplicaViews, RequestView
from sim.cluster.routing.prefix_affinity import PREFILL_TOKENS_PER_S


@dataclass(slots=True)
class LatencySLO(AdmissionPolicy):
    """Sheds a sheddable request whose estimated TTFT exceeds `ttft_ms` on every replica.

    The estimate is that of llm-d's prefix-cache-affinity-filter, the request itself included: (prompt tokens in
    flight + its own) / `tokens_per_s`.
    """

    ttft_ms: float = 1000.0
    tokens_per_s: float = PREFILL_TOKENS_PER_S

    def __post_init__(self) -> None:
        must_be_positive(self, "ttft_ms", "tokens_per_s")

    def admit(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> bool:
        if not request.sheddable:
            return True
        tokens = min(replica.in_flight_tokens for replica in replicas) + request.prompt_tokens
        return tokens / self.tokens_per_s * 1e3 <= self.ttft_ms
