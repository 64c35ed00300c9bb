"""Which candidates need no simulation: their bounds break a constraint, or are dominated as they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from planner.goals import STATIC_METRICS, Constraint, Objective, metric_senses

FIRST_ROUND = 32  # of a pruned search: enough for a pool of workers, few enough to learn from early
LARGEST_ROUND = 512

Cost = tuple[float, ...]


class Bounding(Protocol):
    """What knows bounds on the metrics of a candidate."""

    def of(self, parameters: Mapping[str, Any]) -> Mapping[str, float]:
        """Bounds by flat metric: from below for what is better low, from above for what is better high."""
        ...

    def work_ceiling_rps(self, parameters: Mapping[str, Any]) -> float:
        """An arrival rate about which a candidate has no time left, to rank by."""
        ...


def broken_by_bounds(
    constraints: Iterable[Constraint], bounds: Mapping[str, float], how: str = "by its bound"
) -> tuple[float, str | None]:
    """(sum of the relative violations that are sure, what is violated in words or None); `how` says what makes sure."""
    senses = metric_senses()
    total = 0.0
    broken = []
    for constraint in constraints:
        sense = senses[constraint.metric]
        bounded = constraint.operator in (("<=", "<") if sense == "min" else (">=", ">"))
        if constraint.metric in STATIC_METRICS or constraint.metric not in bounds or not bounded:
            continue
        value = bounds[constraint.metric]
        violation = constraint.violation(value)
        if violation > 0:
            total += violation
            side = "at least" if sense == "min" else "at most"
            must = f"must be {constraint.operator} {constraint.limit:g}"
            shown = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
            broken.append(f"{constraint.metric} is {side} {shown} {how}, {must}")
    return total, "; ".join(broken) or None


def best_costs(objectives: Sequence[Objective], bounds: Mapping[str, float]) -> Cost:
    """The costs that a candidate with these bounds cannot be below; -inf where nothing is known."""
    senses = metric_senses()
    costs = []
    for objective in objectives:
        better_low = objective.sense == "min"
        known = objective.metric in bounds and (senses[objective.metric] == "min") == better_low
        static = objective.metric in STATIC_METRICS and objective.metric in bounds
        costs.append(objective.cost(bounds) if known or static else float("-inf"))
    return tuple(costs)


def dominates(better: Cost, cost: Cost) -> bool:
    """Whether a plan of costs `better` is nowhere worse than one of `cost` and somewhere better."""
    return all(a <= b for a, b in zip(better, cost, strict=True)) and better != cost


def most_promising_first(costs: Mapping[str, Cost]) -> list[str]:
    """Plans by the sum of their best costs, each as a share of its range; ties in the order given."""
    if not costs:
        return []
    columns = list(zip(*costs.values(), strict=True))
    finite = [[value for value in column if value > float("-inf")] for column in columns]
    lows = [min(column, default=0.0) for column in finite]
    spans = [(max(column, default=0.0) - low) or 1.0 for column, low in zip(finite, lows, strict=True)]

    def promise(plan: str) -> float:
        parts = zip(costs[plan], lows, spans, strict=True)
        return math.fsum(max(0.0, (value - low) / span) if value > float("-inf") else 0.0 for value, low, span in parts)

    return sorted(costs, key=promise)


def rounds(plans: Sequence[str], first: int = FIRST_ROUND, largest: int = LARGEST_ROUND) -> Iterable[list[str]]:
    """`plans` in order, in rounds that double in size: what is learnt in one rules out plans of the next.

    The sizes depend on nothing but how many there are, so that the same plans are simulated whoever simulates.
    """
    start, size = 0, first
    while start < len(plans):
        yield list(plans[start : start + size])
        start += size
        size = min(2 * size, largest)
