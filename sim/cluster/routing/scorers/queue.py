"""llm-d's queue-scorer: the fewer wait, the better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sim.cluster.routing.candidates import Candidates, Scorer


def spread(counts: Sequence[int]) -> list[float]:
    """(max - count) / (max - min) of each; 1 where all are equal."""
    most, least = max(counts), min(counts)
    width = most - least
    return [(most - count) / width for count in counts] if width else [1.0] * len(counts)


class QueueScorer(Scorer):
    """(max waiting - waiting) / (max - min); 1 if all are equal."""

    scraped_only: ClassVar[bool] = True

    def scores(self, candidates: Candidates) -> list[float]:
        return spread([replica.waiting for replica in candidates.replicas])
