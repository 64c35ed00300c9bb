"""Any replica, with equal chances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sim.cluster.policies import ReplicaViews, RequestView, RoutingPolicy


@dataclass(slots=True)
class RandomChoice(RoutingPolicy):
    """A replica drawn uniformly."""

    reads_replicas: ClassVar[bool] = False

    def route(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> int:
        return self.random.randrange(len(replicas))
