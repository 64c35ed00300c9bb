"""llm-d's utilization-detector: queues and KV usage, as scraped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from sim.cluster.plugins import must_be_positive
from sim.cluster.policies import ReplicaViews
from sim.cluster.saturation._base import SaturationDetector, mean_utilization

PS_PER_MS = 1_000_000_000


@dataclass(slots=True)
class UtilizationDetector(SaturationDetector):
    """The mean of max(waiting / queue_depth_threshold, KV usage / kv_cache_util_threshold).

    A replica whose metrics are older than `metrics_staleness_threshold_ms` counts as saturated (1).
    """

    queue_depth_threshold: float = 5.0
    kv_cache_util_threshold: float = 0.8
    metrics_staleness_threshold_ms: float = 200.0
    reads_in_flight: ClassVar[bool] = False
    stale_after_ps: int = field(default=0, init=False)
    _at_scrape: int = field(default=-1, init=False)
    _value: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        must_be_positive(self, "queue_depth_threshold", "kv_cache_util_threshold", "metrics_staleness_threshold_ms")
        self.stale_after_ps = max(1, round(self.metrics_staleness_threshold_ms * PS_PER_MS))

    def saturation(self, replicas: ReplicaViews) -> float:
        if replicas.now_ps - replicas.scraped_ps > self.stale_after_ps:
            return 1.0
        if self._at_scrape != replicas.scrapes:
            self._at_scrape = replicas.scrapes
            self._value = mean_utilization(replicas, self.queue_depth_threshold, self.kv_cache_util_threshold)
        return self._value
