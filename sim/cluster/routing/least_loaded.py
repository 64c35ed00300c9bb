"""The replica with the fewest requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.cluster.policies import ReplicaViews, RequestView, RoutingPolicy


@dataclass(slots=True)
class LeastLoaded(RoutingPolicy):
    """Fewest requests waiting, running, or routed there too late for the scrape to see; the first of equals."""

    _at_scrape: int = field(default=-1, init=False)
    _loads: list[int] = field(default_factory=list, init=False)

    def route(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> int:
        if self._at_scrape != replicas.scrapes:
            self._at_scrape = replicas.scrapes
            self._loads = [replica.waiting + replica.running + replica.unseen for replica in replicas]
        chosen = self._loads.index(min(self._loads))
        self._loads[chosen] += 1
        return chosen
