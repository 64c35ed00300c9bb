"""llm-d's session-affinity-scorer: a session goes back to where it was."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.cluster.routing.candidates import Candidates, Scorer


@dataclass(slots=True)
class SessionAffinityScorer(Scorer):
    """1 for the replica that answered the session's request before, else 0. See `RequestView.session`."""

    _home: dict[int | str, int] = field(default_factory=dict, init=False)

    def scores(self, candidates: Candidates) -> list[float]:
        ids, session = candidates.ids, candidates.request.session
        scores = [0.0] * len(ids)
        home = -1 if session is None else self._home.get(session, -1)
        if home in ids:
            scores[ids.index(home)] = 1.0
        return scores

    def routed(self, candidates: Candidates, chosen: int) -> None:
        session = candidates.request.session
        if session is not None:
            self._home[session] = chosen
