"""Two plans side by side, request by request where they serve the same ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.goals import CAPACITY_METRICS, metric_senses
from planner.plan import Plan, simulate_plan
from planner.report import names
from planner.run_plans import plan_at
from sim.errors import InputError
from sim.metrics import flatten

if TYPE_CHECKING:
    from sim.result import Result

SHOWN = (
    "gpus",
    "cost_per_hour",
    "cost_per_million_output_tokens",
    "completed",
    "output_tokens_per_s",
    "max_rate_rps",
    "goodput_rps",
    "slo_attainment",
    "ttft_mean_ms",
    "ttft_p90_ms",
    "ttft_p99_ms",
    "tpot_mean_ms",
    "tpot_p99_ms",
    "itl_mean_ms",
    "itl_p99_ms",
    "e2e_mean_ms",
    "e2e_p99_ms",
    "queue_mean_ms",
    "preemptions",
    "prefix_hit_rate",
    "kv_utilization_mean",
    "seats_mean_utilization",
    "replica_utilization_mean",
)
NOISE = 0.0005  # differences below this share are not shown as such


@dataclass(slots=True)
class Side:
    """One of the two plans, simulated."""

    name: str
    plan: Plan
    result: Result
    metrics: dict[str, float | None]
    asked: tuple[str, ...] = ()  # that objectives and constraints are about

    @property
    def saturation(self) -> str:
        """`stable`, `backlogged` or `overloaded`."""
        return str(self.result.summary()["saturation"])


def side(path: Path) -> Side:
    """The plan at `path`, simulated. Raises InputError."""
    try:
        chosen = plan_at(path)
    except InputError as error:
        at = "" if error.field == str(path) else f"{error.field}: "
        raise InputError(str(path), f"{at}{error.problem}") from None
    known = {metric: value for metric, value in chosen.metrics.items() if metric in CAPACITY_METRICS}
    return side_of(chosen.plan, chosen.name, known, chosen.asked)


def side_of(
    plan: Plan, name: str, known: Mapping[str, float] | None = None, asked: Sequence[str] | None = None
) -> Side:
    """A plan, simulated, with what else is `known` of its metrics. Raises InputError."""
    result = simulate_plan(plan)
    metrics = flatten(result.summary()) | dict(known or {})
    asked = [constraint.metric for constraint in plan.constraints] if asked is None else asked
    return Side(f"{names.plan_label(plan.deployment)} {name}", plan, result, metrics, tuple(asked))


def shown_metrics(first: Side, second: Side) -> list[str]:
    """The metrics to compare: the usual ones, and each that an objective or a constraint of either plan is about, next
    to those of its kind."""
    shown = [*SHOWN]
    for metric in dict.fromkeys([*first.asked, *second.asked]):
        if metric not in shown:
            kind = metric.partition("_")[0]
            alike = [place for place, other in enumerate(shown) if other.partition("_")[0] == kind]
            shown.insert(alike[-1] + 1 if alike else len(shown), metric)
    return shown


def differing(first: Side, second: Side) -> list[tuple[str, str, str]]:
    """(parameter, A's, B's) of every parameter in which they differ, the model, load and seed among them."""
    rows = []
    for name, a, b in (("model", first.plan.model, second.plan.model), ("seed", first.plan.seed, second.plan.seed)):
        if a != b:
            rows.append((name, str(a), str(b)))
    if first.plan.workload != second.plan.workload:
        rows.append(("workload", _words(first.plan.workload), _words(second.plan.workload)))
    ours, theirs = first.plan.deployment, second.plan.deployment
    for name in ours:
        a, b = names.setting(ours[name]), names.setting(theirs.get(name))
        if a != b:
            rows.append((name, a, b))
    return rows


def _words(workload: Mapping[str, Any]) -> str:
    from planner.report.workload_words import workload_words

    return workload_words(workload)


def pairwise(first: Side, second: Side) -> dict[str, float]:
    """By latency: the share of requests, served by both, that B answers sooner. Empty unless the requests are the
    same."""
    if first.plan.workload != second.plan.workload or first.plan.seed != second.plan.seed:
        return {}
    found = {}
    for name in ("ttft", "tpot", "e2e"):
        a, b = (getattr(each.result.records, f"{name}_ms") for each in (first, second))
        both = np.isfinite(a) & np.isfinite(b)
        if both.any():
            found[name] = float((b[both] < a[both]).mean())
    return found


def comparison_dict(first: Side, second: Side) -> dict[str, Any]:
    """What `planner compare --json` writes."""
    return {
        "a": {"name": first.name, "saturation": first.saturation, "metrics": first.metrics},
        "b": {"name": second.name, "saturation": second.saturation, "metrics": second.metrics},
        "differs": [{"parameter": name, "a": a, "b": b} for name, a, b in differing(first, second)],
        "sooner_with_b": pairwise(first, second),
    }


def change_words(metric: str, a: float | None, b: float | None) -> str:
    """What B changes in a metric, and whether that is better: "-12.0% better"; "=" where it is next to nothing."""
    if a is None or b is None or not a or math.isnan(a) or math.isnan(b) or abs(b / a - 1) < NOISE:
        return "=" if a == b or (a and b and abs(b / a - 1) < NOISE) else ""
    fuller = metric.endswith(("utilization", "utilization_mean"))
    better = "" if fuller else " better" if (b > a) == (metric_senses()[metric] == "max") else " worse"
    return f"{100 * (b / a - 1):+.1f}%{better}"
