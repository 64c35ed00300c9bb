"""BLIS's tier-shed: less urgent classes are shed while any replica has too much to do."""

from __future__ import annotations

from dataclasses import dataclass

from sim.cluster.policies import AdmissionPolicy, ReplicaViews, RequestView


@dataclass(slots=True)
class TierShed(AdmissionPolicy):
    """Sheds requests of llm-d priority below `min_priority` while the greatest waiting + running + in flight of a
    replica exceeds `overload_threshold`. A request that was scraped counts twice: it is in flight, too.
    """

    overload_threshold: float = 128.0
    min_priority: int = 0

    def admit(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> bool:
        if -request.priority >= self.min_priority:
            return True
        return max(r.waiting + r.running + r.in_flight for r in replicas) <= self.overload_threshold
