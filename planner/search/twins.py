"""Candidates that turn out to be the same: what a run never used cannot have mattered to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planner.evaluate import Outcome
from planner.parameters import Parameters, content_id


class Twins:
    """Finds candidates that differ only in their preemption policy, and the outcomes that hold for all of them.

    A policy that chooses whom to preempt is never asked in a run without preemptions: that run's outcome is, bit
    for bit, the outcome of the same candidate with any other preemption policy.
    """

    def __init__(self) -> None:
        self._outcomes: dict[str, Outcome] = {}

    @staticmethod
    def _key(parameters: Mapping[str, Any]) -> str:
        return content_id({name: value for name, value in parameters.items() if name != "preemption"})

    def first_of_each(self, candidates: Mapping[str, Parameters]) -> list[str]:
        """Ids of the candidates to evaluate first: one of each set of twins."""
        first: dict[str, str] = {}
        for plan, parameters in candidates.items():
            first.setdefault(self._key(parameters), plan)
        return list(first.values())

    def learn(self, parameters: Parameters, outcome: Outcome) -> None:
        """Remember an outcome if it holds for the candidate's twins too."""
        if outcome.failed is None and (outcome.refused is not None or outcome.metrics.get("preemptions") == 0):
            self._outcomes[self._key(parameters)] = outcome

    def outcome(self, parameters: Parameters) -> Outcome | None:
        """The outcome of a twin that holds for this candidate too, if there is one."""
        return self._outcomes.get(self._key(parameters))

    def split(self, candidates: Iterable[tuple[str, Parameters]]) -> tuple[dict[str, Outcome], dict[str, Parameters]]:
        """(outcomes that are known by now, candidates that are still to be evaluated)."""
        known: dict[str, Outcome] = {}
        unknown: dict[str, Parameters] = {}
        for plan, parameters in candidates:
            outcome = self.outcome(parameters)
            if outcome is not None:
                known[plan] = outcome
            else:
                unknown[plan] = parameters
        return known, unknown
