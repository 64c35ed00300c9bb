"""What a plan is judged by: constraints on metrics, and objectives to maximise or minimise."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from planner.documents import describe
from sim.errors import InputError
from sim.names import nearest

STATIC_METRICS = ("gpus", "cost_per_hour")  # known from a plan's parameters, without simulation
NEAR = 0.05  # a plan that misses its constraints by no more than this in sum, as shares of the limits, is near them
OPERATORS = ("<=", ">=", "<", ">")
CAPACITY_METRICS = {"max_rate_rps": "max", "min_gpus": "min"}
"""Metrics that take several simulations of a plan, at other rates or sizes, and which way they are better."""

# What a constraint may say of how much is bought or served, rather than of how well: no part of the SLO that a capacity
# is found for.
_VOLUMES = frozenset(
    {
        *STATIC_METRICS,
        *CAPACITY_METRICS,
        "cost_per_million_output_tokens",
        "requests_per_s",
        "output_tokens_per_s",
        "total_tokens_per_s",
        "goodput_rps",
        "duration_s",
        "offered",
        "completed",
    }
)

_CONSTRAINT = re.compile(r"\s*([A-Za-z][\w.]*)\s*(<=|>=|==|<|>|=)\s*(\S+)\s*")
_REQUEST_METRIC = re.compile(r"(ttft|tpot|e2e)_(?:mean|p\d+|max)_ms")


@dataclass(frozen=True, slots=True)
class Constraint:
    """A limit on one metric, as ``ttft_mean_ms <= 300``."""

    metric: str
    operator: str
    limit: float

    def __str__(self) -> str:
        return f"{self.metric} {self.operator} {self.limit:g}"

    def violation(self, value: float) -> float:
        """By how much `value` misses the limit, as a share of it: 0 if it holds, inf if there is no value."""
        if math.isnan(value):
            return math.inf
        excess = value - self.limit if self.operator in ("<=", "<") else self.limit - value
        if excess < 0 or (excess == 0 and self.operator in ("<=", ">=")):
            return 0.0
        return max(excess, 1e-12) / (abs(self.limit) or 1.0)


@dataclass(frozen=True, slots=True)
class Objective:
    """A metric and the direction in which it is better."""

    metric: str
    sense: str  # "max" | "min"

    def cost(self, metrics: Mapping[str, float]) -> float:
        """The metric's value, negated if more is better; inf where it has none."""
        value = metrics.get(self.metric, math.nan)
        if math.isnan(value):
            return math.inf
        return -value if self.sense == "max" else value


def known_metrics() -> tuple[str, ...]:
    """Every flat metric that may stand in `slo` and `objectives`."""
    return tuple(metric_senses())


@cache
def metric_senses() -> dict[str, str]:
    """Of every flat metric, whether more (`max`) or less (`min`) of it is better."""
    from sim.metrics import METRICS

    return METRICS | CAPACITY_METRICS


def service_levels(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """The constraints on how well requests are served: what a plan must hold at the rates that it is said to carry."""
    return tuple(c for c in constraints if c.metric.rpartition(".")[2] not in _VOLUMES)


def check_metric(metric: str, field: str) -> str:
    """`metric`, if there is one of that name. Raises InputError with the nearest name."""
    known = known_metrics()
    if metric not in known:
        known = tuple(name for name in known if ("." in name) == ("." in metric))
        hint = nearest(metric, known) or f"; known: {', '.join(known)}"
        raise InputError(field, f"unknown metric {metric!r}{hint}")
    return metric


def parse_constraint(text: object, field: str) -> Constraint:
    """The constraint that `text` writes. Raises InputError on `field`."""
    match = _CONSTRAINT.fullmatch(text) if isinstance(text, str) else None
    form = "must be `metric <= number` (or >=, <, >)"
    if match is None:
        raise InputError(field, f"{form}, got {describe(text)}")
    metric, operator, number = match.groups()
    if operator not in OPERATORS:
        raise InputError(field, f"{form}, got the operator {operator}")
    try:
        limit = float(number)
    except ValueError:
        raise InputError(field, f"{form}, and {number!r} is not a number") from None
    if not math.isfinite(limit):
        raise InputError(field, f"the limit must be a finite number, got {number}")
    if limit < 0:
        raise InputError(field, f"the limit must be at least 0, got {number}: no metric is negative")
    return Constraint(check_metric(metric, field), operator, limit)


def parse_constraints(texts: Iterable[object], field: str = "slo") -> tuple[Constraint, ...]:
    """The constraints of a list. Raises InputError, also where one metric is bounded twice the same way."""
    found: list[Constraint] = []
    for position, text in enumerate(texts):
        constraint = parse_constraint(text, f"{field}[{position}]")
        if any(c.metric == constraint.metric and c.operator[0] == constraint.operator[0] for c in found):
            raise InputError(
                f"{field}[{position}]", f"{constraint.metric} already has a limit {constraint.operator[0]}"
            )
        found.append(constraint)
    return tuple(found)


def parse_objectives(items: Iterable[Mapping[str, str]], field: str = "objectives") -> tuple[Objective, ...]:
    """The objectives of a list of ``maximize: metric`` and ``minimize: metric``. Raises InputError."""
    found: list[Objective] = []
    for position, item in enumerate(items):
        path = f"{field}[{position}]"
        if len(item) != 1 or next(iter(item)) not in ("maximize", "minimize"):
            raise InputError(path, f"must be `maximize: metric` or `minimize: metric`, got {describe(dict(item))}")
        ((verb, metric),) = item.items()
        check_metric(metric, f"{path}.{verb}")
        if any(objective.metric == metric for objective in found):
            raise InputError(path, f"{metric} is an objective already")
        found.append(Objective(metric, "max" if verb == "maximize" else "min"))
    if not found:
        raise InputError(field, "is empty; give at least one `maximize: metric` or `minimize: metric`")
    return tuple(found)


def check_classes(constraints: Iterable[Constraint], objectives: Iterable[Objective], present: Collection[str]) -> None:
    """Raise InputError for the first metric of an SLO class that no request has: nothing could be said of it, and a
    limit on it would hold whatever a plan does. `present` are the classes that requests have."""
    named = [(f"slo[{i}]", constraint.metric) for i, constraint in enumerate(constraints)]
    named += [(f"objectives[{i}]", objective.metric) for i, objective in enumerate(objectives)]
    for field, metric in named:
        slo_class, dot, _ = metric.rpartition(".")
        if dot and slo_class not in present:
            there = f"they are {', '.join(sorted(present))}" if present else "give its clients an slo_class"
            raise InputError(field, f"{metric}: no request of the workload is of class {slo_class}; {there}")


def request_slo(constraints: Iterable[Constraint]) -> dict[str, float]:
    """The limits in ms that goodput holds each request to: per latency, the tightest of its constraints."""
    limits: dict[str, float] = {}
    for constraint in constraints:
        match = _REQUEST_METRIC.fullmatch(constraint.metric)
        if match and constraint.operator in ("<=", "<"):
            name = f"{match.group(1)}_ms"
            limits[name] = min(constraint.limit, limits.get(name, math.inf))
    return limits


def metric_values(summary: Mapping[str, Any]) -> dict[str, float]:
    """The flat metrics of a simulation's summary as numbers, nan where one has no value."""
    from sim.metrics import flatten

    return {
        name: math.nan if value is None else float(value)
        for name, value in flatten(summary).items()
        if value is None or isinstance(value, int | float)
    }


def judge(constraints: Iterable[Constraint], metrics: Mapping[str, float]) -> tuple[float, str | None]:
    """(sum of relative violations, what is violated in words or None) of the constraints whose metric is there.

    A metric that is missing altogether is not judged: a plan that was not simulated has its static metrics only.
    """
    total = 0.0
    broken = []
    for constraint in constraints:
        if constraint.metric not in metrics:
            continue
        value = metrics[constraint.metric]
        violation = constraint.violation(value)
        if violation > 0:
            total += violation
            shown = "has no value" if math.isnan(value) else f"is {value:.6g}"
            broken.append(f"{constraint.metric} {shown}, must be {constraint.operator} {constraint.limit:g}")
    return total, "; ".join(broken) or None
