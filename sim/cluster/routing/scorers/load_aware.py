"""llm-d's load-aware-scorer: half a point for an empty queue, less the longer it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sim.cluster.routing.candidates import Candidates, Scorer


@dataclass(slots=True)
class LoadAwareScorer(Scorer):
    """0.5 (1 - min(waiting, threshold) / threshold): never more than 0.5."""

    threshold: float = 128.0
    scraped_only: ClassVar[bool] = True

    def scores(self, candidates: Candidates) -> list[float]:
        limit = self.threshold
        return [0.5 * (1.0 - min(replica.waiting, limit) / limit) for replica in candidates.replicas]
