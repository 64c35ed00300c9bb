"""llm-d's probabilistic admitter: the fuller the replicas, the likelier a sheddable request is shed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sim.cluster.plugins import must_be_positive
from sim.cluster.policies import AdmissionPolicy, ReplicaViews, RequestView
from sim.cluster.saturation import mean_utilization


@dataclass(slots=True)
class Probabilistic(AdmissionPolicy):
    """Sheds a request of sheddable class with probability min(k x saturation^power, 1).

    Saturation is the mean over replicas of max(waiting / queue_depth_threshold, KV usage / kv_cache_util_threshold).
    A class of llm-d priority 0 or more (here a priority value of 0 or less) is always admitted. Defaults are llm-d's.
    """

    queue_depth_threshold: float = 5.0
    kv_cache_util_threshold: float = 0.8
    power: float = 5.0
    k: float = 300.0

    def __post_init__(self) -> None:
        must_be_positive(self, "queue_depth_threshold", "kv_cache_util_threshold")

    def shed_probability(self, saturation: float) -> float:
        """Of a sheddable request; 1 from a saturation of k^(-1 / power) on, 0.3196 with llm-d's defaults."""
        return min(self.k * math.pow(saturation, self.power), 1.0)

    def admit(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> bool:
        if not request.sheddable:
            return True
        saturation = mean_utilization(replicas, self.queue_depth_threshold, self.kv_cache_util_threshold)
        return self.random.random() >= self.shed_probability(saturation)
