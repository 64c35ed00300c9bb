"""llm-d's probabilistic admitter: the fuller the replicas, the likelier a sheddable request is shed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sim.cluster.policies import AdmissionPolicy, ReplicaView, RequestView


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

    def admit(self, request: RequestView, replicas: Sequence[ReplicaView], now_s: float) -> bool:
        if request.priority <= 0:
            return True
        saturation = sum(
            max(replica.waiting / self.queue_depth_threshold, replica.kv_usage / self.kv_cache_util_threshold)
            for replica in replicas
        ) / len(replicas)
        return self.random.random() >= min(self.k * math.pow(saturation, self.power), 1.0)
