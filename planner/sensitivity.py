"""Which parameter moves what: a plan of a run, and what becomes of it with one parameter at a time changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner.parameters import DEFAULTS, Parameters, canonical

if TYPE_CHECKING:
    from planner.space import Space
    from planner.store import Run

Evaluation = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Swing:
    """How far a parameter moves a metric: its least and its greatest value over the options, with the options."""

    metric: str
    low: float
    low_at: Any
    high: float
    high_at: Any
    now: float

    @property
    def size(self) -> float:
        """The logarithm of greatest over least; 0: it does not move, inf: from nothing to something."""
        if self.low == self.high:
            return 0.0
        return math.log(self.high / self.low) if self.low > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Effect:
    """One parameter: its options, each with the evaluation of the plan that has it, and its swings by metric."""

    name: str
    now: Any
    options: tuple[tuple[Any, Evaluation], ...]
    swings: tuple[Swing, ...]  # over all options that were simulated
    within: tuple[Swing, ...]  # over those that are feasible

    @property
    def size(self) -> float:
        """Of its largest swing."""
        return max((swing.size for swing in self.swings), default=0.0)

    def infeasible(self) -> list[Any]:
        """The options that are simulated, or ruled out, and not feasible."""
        return [option for option, evaluation in self.options if evaluation["feasible"] is False]

    def feasible(self) -> list[Any]:
        """The options with which the plan meets all constraints."""
        return [option for option, evaluation in self.options if evaluation["feasible"]]


def metrics_of(run: Run) -> list[str]:
    """The metrics that the run is about: objectives, then constraints."""
    asked = [metric for metric, _ in run.objectives] + [metric for metric, _, _ in run.constraints]
    return list(dict.fromkeys(asked))


def effects(
    base: Evaluation, options: Mapping[str, Sequence[tuple[Any, Evaluation]]], metrics: Sequence[str]
) -> list[Effect]:
    """The effect of each parameter of `options`, the largest first."""
    found = []
    for name, given in options.items():
        good = [(option, evaluation) for option, evaluation in given if evaluation["feasible"]]
        both = [[_swing(base, some, metric) for metric in metrics] for some in (given, good)]
        swings, within = (tuple(swing for swing in some if swing is not None) for some in both)
        found.append(Effect(name, base["parameters"][name], tuple(given), swings, within))
    return sorted(found, key=lambda effect: (-effect.size, effect.name))


def _swing(base: Evaluation, options: Sequence[tuple[Any, Evaluation]], metric: str) -> Swing | None:
    values = [(e["metrics"].get(metric), option) for option, e in options if e["simulated"]]
    known = [(float(value), option) for value, option in values if value is not None and math.isfinite(value)]
    now = base["metrics"].get(metric)
    if not known or now is None or not math.isfinite(now):
        return None
    low, high = min(known, key=lambda item: item[0]), max(known, key=lambda item: item[0])
    return Swing(metric, low[0], low[1], high[0], high[1], float(now))


def evaluated_options(run: Run, base: Evaluation) -> dict[str, list[tuple[Any, Evaluation]]]:
    """By parameter the options that the run itself evaluated with all others as in `base`, where there are two or
    more that were simulated."""
    by_form = {_form(DEFAULTS | evaluation["parameters"]): evaluation for evaluation in run.evaluations}
    found: dict[str, list[tuple[Any, Evaluation]]] = {}
    for name in base["parameters"]:
        parameters = [e["parameters"] for e in run.evaluations if name in e["parameters"]]
        values = {repr(given[name]): given[name] for given in parameters}
        plans = [(value, canonical(DEFAULTS | base["parameters"] | {name: value})) for value in values.values()]
        options = [(value, by_form[form]) for value, plan in plans if (form := _form(plan)) in by_form]
        if sum(bool(evaluation["simulated"]) for _, evaluation in options) > 1:
            found[name] = sorted(options, key=lambda item: _place(item[0]))
    return found


def _form(parameters: Parameters) -> str:
    return repr(sorted(parameters.items(), key=lambda item: item[0]))


def _place(value: Any) -> tuple[int, float, str]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, float(value), "") if number else (1, 0.0, str(value))


def all_options(run: Run, space: Space, base: Evaluation) -> dict[str, list[tuple[Any, Evaluation]]]:
    """By variable of `space` every option with all others as in `base`: what the run did not evaluate is simulated, on
    the same requests. Raises InputError."""
    from planner.search.session import evaluate_plans

    asked = {
        (variable.name, position): DEFAULTS | base["parameters"] | {variable.name: option}
        for variable in space.variables
        for position, option in enumerate(variable.options)
        if len(variable.options) > 1 and not (variable.name == "replicas" and space.sizes)
    }
    evaluations = evaluate_plans(space, list(asked.values()), run)
    found: dict[str, list[tuple[Any, Evaluation]]] = {}
    options = {variable.name: variable.options for variable in space.variables}
    for (name, position), evaluation in zip(asked, evaluations, strict=True):
        found.setdefault(name, []).append((options[name][position], evaluation))
    return found
