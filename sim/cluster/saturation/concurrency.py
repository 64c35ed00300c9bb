"""llm-d's concurrency-detector: what the router itself has in flight."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sim.cluster.plugins import must_be_positive
from sim.cluster.policies import ReplicaViews
from sim.cluster.saturation._base import SaturationDetector
from sim.errors import InputError

MODES = ("requests", "tokens", "hybrid")


@dataclass(slots=True)
class ConcurrencyDetector(SaturationDetector):
    """The mean over replicas of requests in flight / `max_concurrency`, of prompt tokens in flight /
    `max_token_concurrency`, or (hybrid) of the greater of the two.
    """

    max_concurrency: float = 100.0
    max_token_concurrency: float = 1_000_000.0
    concurrency_mode: str = "requests"

    def __post_init__(self) -> None:
        must_be_positive(self, "max_concurrency", "max_token_concurrency")
        if self.concurrency_mode not in MODES:
            raise InputError("concurrency_mode", f"must be one of {', '.join(MODES)}, got {self.concurrency_mode!r}")

    def saturation(self, replicas: ReplicaViews) -> float:
        requests, tokens = self.max_concurrency, self.max_token_concurrency
        if self.concurrency_mode == "requests":
            return sum(replica.in_flight for replica in replicas) / requests / len(replicas)
        if self.concurrency_mode == "tokens":
            return sum(replica.in_flight_tokens for replica in replicas) / tokens / len(replicas)
        loads = [max(replica.in_flight / requests, replica.in_flight_tokens / tokens) for replica in replicas]
        return math.fsum(loads) / len(replicas)
