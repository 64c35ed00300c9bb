"""llm-d's running-requests-size-scorer: the fewer run, the better."""

from __future__ import annotations

from typing import ClassVar

from sim.cluster.routing.candidates import Candidates, Scorer
from sim.cluster.routing.scorers.queue import spread


class RunningRequestsScorer(Scorer):
    """(max running - running) / (max - min); 1 if all are equal."""

    scraped_only: ClassVar[bool] = True

    def scores(self, candidates: Candidates) -> list[float]:
        return spread([replica.running for replica in candidates.replicas])
