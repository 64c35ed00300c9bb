"""vLLM's own balancer in front of its data-parallel engines."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.cluster.policies import ReplicaViews, RequestView, RoutingPolicy


@dataclass(slots=True)
class VllmDataParallel(RoutingPolicy):
    """The least 4 x waiting + running, the first of equals; what it sends counts as waiting until the next scrape."""

    _at_scrape: int = field(default=-1, init=False)
    _loads: list[int] = field(default_factory=list, init=False)

    def route(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> int:
        if self._at_scrape != replicas.scrapes:
            self._at_scrape = replicas.scrapes
            self._loads = [4 * replica.waiting + replica.running for replica in replicas]
        chosen = self._loads.index(min(self._loads))
        self._loads[chosen] += 4
        return chosen
