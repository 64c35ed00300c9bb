"""A session stays where it began."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.cluster.policies import ReplicaViews, RequestView, RoutingPolicy


@dataclass(slots=True)
class SessionAffinity(RoutingPolicy):
    """The replica of the session's first request; a new session, or a request without one, goes where the fewest
    requests are in flight. See `RequestView.session`.
    """

    _home: dict[int | str, int] = field(default_factory=dict, init=False)

    def route(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> int:
        session = request.session
        home = None if session is None else self._home.get(session)
        if home is None:
            loads = [replica.in_flight for replica in replicas]
            home = loads.index(min(loads))
            if session is not None:
                self._home[session] = home
        return home
