"""llm-d's active-request-scorer: the fewer requests the router has in flight there, the better."""

from __future__ import annotations

from dataclasses import dataclass

from sim.cluster.routing.arithmetic import busy_scores
from sim.cluster.routing.candidates import Candidates, Scorer


@dataclass(slots=True)
class ActiveRequestScorer(Scorer):
    """1 up to `idle_threshold` requests in flight; beyond, (max - in flight) / max x `max_busy_score`."""

    idle_threshold: int = 0
    max_busy_score: float = 1.0

    def scores(self, candidates: Candidates) -> list[float]:
        counts = [replica.in_flight for replica in candidates.replicas]
        most, idle = max(counts), self.idle_threshold
        if most <= idle:
            return [1.0] * len(counts)
        return busy_scores(counts, idle, most, self.max_busy_score / most)
