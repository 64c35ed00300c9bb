"""The replica with the fewest requests."""

from __future__ import annotations

from dataclasses import dataclass

from sim.cluster.policies import ReplicaViews, RequestView, RoutingPolicy


@dataclass(slots=True)
class LeastLoaded(RoutingPolicy):
    """Fewest requests waiting, running, or routed there too late for the scrape to see; the first of equals."""

    def route(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> int:
        loads = [replica.waiting + replica.running + replica.unseen for replica in replicas]
        return loads.index(min(loads))
