"""Power of two choices: the less loaded of a few replicas drawn at random."""

from __future__ import annotations

from dataclasses import dataclass

from sim.cluster.plugins import must_be_positive
from sim.cluster.policies import ReplicaViews, RequestView, RoutingPolicy


@dataclass(slots=True)
class PowerOfTwo(RoutingPolicy):
    """Of `choices` different replicas drawn uniformly, the one with the fewest requests in flight; the first drawn of
    equals.
    """

    choices: int = 2

    def __post_init__(self) -> None:
        must_be_positive(self, "choices")

    def route(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> int:
        drawn = self.random.sample(range(len(replicas)), min(max(1, int(self.choices)), len(replicas)))
        return min(drawn, key=lambda number: replicas[number].in_flight)
