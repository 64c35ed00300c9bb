"""Candidates that turn out to be the same: what a run never used cannot have mattered to it."""

from __future__ import annotations

from collections.abc import Mapping
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

    def key(self, parameters: Mapping[str, Any]) -> str:
        """Equal for twins, and only for them."""
        return content_id({name: value for name, value in parameters.items() if name != "preemption"})

    def learn(self, parameters: Parameters, outcome: Outcome) -> bool:
        """Remember an outcome if it holds for the candidate's twins too; whether it does."""
        holds = outcome.failed is None and (outcome.refused is not None or outcome.metrics.get("preemptions") == 0)
        if holds:
            self._outcomes[self.key(parameters)] = outcome
        return holds

    def outcome(self, parameters: Parameters) -> Outcome | None:
        """The outcome of a twin that holds for this candidate too, if there is one."""
        return self._outcomes.get(self.key(parameters))
