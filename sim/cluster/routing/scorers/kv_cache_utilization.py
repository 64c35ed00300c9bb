"""llm-d's kv-cache-utilization-scorer: the emptier the KV cache, the better."""

from __future__ import annotations

from typing import ClassVar

from sim.cluster.routing.candidates import Candidates, Scorer


class KVCacheUtilizationScorer(Scorer):
    """1 - KV usage."""

    scraped_only: ClassVar[bool] = True

    def scores(self, candidates: Candidates) -> list[float]:
        return [1.0 - replica.kv_usage for replica in candidates.replicas]
