"""Each replica in turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from sim.cluster.policies import ReplicaViews, RequestView, RoutingPolicy


@dataclass(slots=True)
class RoundRobin(RoutingPolicy):
    """The replicas in turn, whatever their state."""

    reads_replicas: ClassVar[bool] = False
    _next: int = field(default=0, init=False)

    def route(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> int:
        chosen = self._next
        self._next = (chosen + 1) % len(replicas)
        return chosen
