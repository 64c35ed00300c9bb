"""The replica with the fewest prompt tokens in flight."""

from __future__ import annotations

from dataclasses import dataclass

from sim.cluster.policies import ReplicaViews, RequestView, RoutingPolicy


@dataclass(slots=True)
class LeastOutstandingTokens(RoutingPolicy):
    """Fewest prompt tokens of requests routed there and not finished, by the router's own live count; the first of
    equals.
    """

    def route(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> int:
        loads = [replica.in_flight_tokens for replica in replicas]
        return loads.index(min(loads))
