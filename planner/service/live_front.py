"""The front of a search that is still going on, from the evaluations that it has written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.report import names
from planner.report.content import KEPT_METRICS
from planner.service.evaluations import EvaluationsFile
from planner.store import front_ids

if TYPE_CHECKING:
    from planner.space import Space

Evaluation = dict[str, Any]


class LiveFront:
    """Follows `evaluations.jsonl`; the front is kept as plans come in, so that only those on it are looked at again."""

    def __init__(self, space: Space, out: Path) -> None:
        self._file = EvaluationsFile(out)
        self._objectives = [(objective.metric, objective.sense) for objective in space.objectives]
        self._metrics = shown_metrics(self._objectives, [constraint.metric for constraint in space.constraints])
        self._front: list[Evaluation] = []
        self._sent: list[str] | None = None

    def changed(self) -> list[dict[str, Any]] | None:
        """The points of the front, best first objective first; None where it is what was asked for last."""
        fresh = [evaluation for evaluation in self._file.fresh() if evaluation["feasible"]]
        if fresh:
            by_id = {evaluation["id"]: evaluation for evaluation in [*self._front, *fresh]}
            self._front = [by_id[plan] for plan in front_ids(by_id.values(), self._objectives)]
        ids = [evaluation["id"] for evaluation in self._front]
        if ids == self._sent or (not ids and self._sent is None):
            return None
        self._sent = ids
        return [point(evaluation, self._metrics) for evaluation in self._front]


def shown_metrics(objectives: Iterable[tuple[str, str]], constrained: Iterable[str]) -> list[str]:
    """The metrics that a point of a front comes with: those asked for, and those that any plan is looked at by."""
    return list(dict.fromkeys([*(metric for metric, _ in objectives), *constrained, *KEPT_METRICS]))


def point(evaluation: Evaluation, metrics: Iterable[str]) -> dict[str, Any]:
    """A plan as a front draws it."""
    kept = evaluation["metrics"]
    return {
        "id": evaluation["id"],
        "label": names.plan_label(evaluation["parameters"]),
        "gpu": evaluation["parameters"].get("gpu"),
        "metrics": {name: _number(kept[name]) for name in metrics if name in kept},
        "parameters": evaluation["parameters"],
    }


def _number(value: float) -> float | None:
    return value if value == value and abs(value) != float("inf") else None
