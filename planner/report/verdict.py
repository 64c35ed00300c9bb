"""Which plan to take, and how far each is from its limits: pure functions of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner.parameters import DEFAULTS
from planner.report import names

if TYPE_CHECKING:
    from planner.store import Run

Evaluation = Mapping[str, Any]

RULE = "the cheapest plan of the front; among equally cheap ones, {fewest}the lowest {ttft}"


@dataclass(frozen=True, slots=True)
class Margin:
    """How a plan stands to one constraint; `headroom` is a share of the limit, negative where it is broken."""

    metric: str
    operator: str
    limit: float
    value: float
    headroom: float

    @property
    def is_budget(self) -> bool:
        """Whether the constraint bounds what is bought rather than how well it serves."""
        return self.metric in names.BUDGETS


def ttft_metric(run: Run) -> str:
    """The TTFT that this run is about: the one constrained or optimised, else the mean."""
    asked = [metric for metric, _, _ in run.constraints] + [metric for metric, _ in run.objectives]
    return next((metric for metric in asked if metric.startswith("ttft_")), "ttft_mean_ms")


def tpot_metric(run: Run) -> str:
    """The TPOT that this run is about: the one constrained or optimised, else the mean."""
    asked = [metric for metric, _, _ in run.constraints] + [metric for metric, _ in run.objectives]
    return next((metric for metric in asked if metric.startswith("tpot_")), "tpot_mean_ms")


def asks(run: Run, metric: str) -> bool:
    """Whether an objective or a constraint of the run is about `metric`."""
    return any(metric == asked for asked, *_ in (*run.objectives, *run.constraints))


def front(run: Run) -> list[Evaluation]:
    """The plans of the front, the recommended one first, the others by cost and then TTFT."""
    return sorted(run.front_evaluations(), key=lambda plan: _preference(run, plan))


def distinct(run: Run, plans: Sequence[Evaluation]) -> list[tuple[Evaluation, list[Evaluation]]]:
    """The plans without repeats: each with those behind it that have its size, price and objective values."""
    groups: dict[tuple[Any, ...], list[Evaluation]] = {}
    for plan in plans:
        metrics = plan["metrics"]
        values = tuple(metrics.get(metric) for metric, _ in run.objectives)
        key = (
            names.plan_label(plan["parameters"]),
            plan["parameters"].get("gpu"),
            metrics.get("cost_per_hour"),
            values,
        )
        groups.setdefault(key, []).append(plan)
    return [(group[0], group[1:]) for group in groups.values()]


def recommended(run: Run) -> Evaluation | None:
    """The plan that the tool stars, by `RULE`; None where no plan is feasible."""
    plans = front(run)
    return plans[0] if plans else None


def rule(run: Run) -> str:
    """The rule by which a plan is starred, in words."""
    refusing = any(_refused_percent(plan) for plan in run.front_evaluations())
    fewest = "the fewest requests refused, then " if refusing else ""
    return RULE.format(fewest=fewest, ttft=names.metric_name(ttft_metric(run)))


def _refused_percent(plan: Evaluation) -> int:
    """Requests shed or rejected, in whole percent: a plan must not win on latency by serving less."""
    offered = plan["metrics"].get("offered") or math.nan
    refused = sum(plan["metrics"].get(name) or 0.0 for name in ("shed", "expired", "rejected"))
    share = 100 * refused / offered
    return 0 if math.isnan(share) else math.ceil(share)


def _preference(run: Run, plan: Evaluation) -> tuple[float, int, float, float, int, str]:
    """Sorts by cost, requests refused, TTFT, throughput; of equals, the nearest to vLLM's defaults comes first."""
    metrics = plan["metrics"]
    unusual = sum(value != DEFAULTS.get(name) for name, value in plan["parameters"].items())
    cost = metrics.get("cost_per_hour", metrics.get("gpus"))
    return (
        _or_inf(cost),
        _refused_percent(plan),
        _or_inf(metrics.get(ttft_metric(run))),
        -float(metrics.get("output_tokens_per_s") or 0.0),
        unusual,
        str(plan["id"]),
    )


def _or_inf(value: Any) -> float:
    return math.inf if value is None or math.isnan(value) else float(value)


def margins(run: Run, plan: Evaluation) -> list[Margin]:
    """The plan's margin to every constraint whose metric it has, in the constraints' order."""
    found = []
    for metric, operator, limit in run.constraints:
        value = plan["metrics"].get(metric)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        distance = limit - value if operator in ("<=", "<") else value - limit
        if operator == "==":
            distance = -abs(value - limit)
        headroom = distance / abs(limit) if limit else math.copysign(math.inf, distance) if distance else 0.0
        found.append(Margin(metric, operator, float(limit), float(value), headroom))
    return found


def tightest(run: Run, plan: Evaluation) -> Margin | None:
    """The service-level constraint that the plan is nearest to breaking; a budget only where nothing else is asked."""
    found = margins(run, plan)
    levels = [margin for margin in found if not margin.is_budget]
    return min(levels or found, key=lambda margin: margin.headroom, default=None)


def least_violating(run: Run, count: int = 5) -> list[Evaluation]:
    """Of each size, the simulated plan that comes nearest to being feasible; the nearest sizes first."""
    plans = [plan for plan in run.evaluations if plan["simulated"] and not plan["feasible"]]
    plans.sort(key=lambda plan: (_or_inf(plan["violation"]), *_preference(run, plan)))
    nearest: dict[tuple[Any, ...], Evaluation] = {}
    for plan in plans:
        nearest.setdefault((names.plan_label(plan["parameters"]), plan["parameters"].get("gpu")), plan)
    return list(nearest.values())[:count]


def binding(run: Run) -> list[tuple[str, int, int]]:
    """Of each constraint: (it in words, simulated plans that break it, those that break nothing else), worst first."""
    broken: dict[str, list[int]] = {}
    for plan in run.evaluations:
        if not plan["simulated"]:
            continue
        found = [names.constraint(m.metric, m.operator, m.limit) for m in margins(run, plan) if _breaks(m)]
        for text in found:
            count = broken.setdefault(text, [0, 0])
            count[0] += 1
            count[1] += len(found) == 1
    return sorted(((text, a, b) for text, (a, b) in broken.items()), key=lambda item: (-item[2], -item[1], item[0]))


def refusals(run: Run) -> list[tuple[str, int]]:
    """Why candidates were not simulated, with how many, the most frequent first."""
    counts: dict[str, int] = {}
    for plan in run.evaluations:
        if not plan["simulated"]:
            reason = str(plan["why_not"]).rstrip(".")
            counts[reason] = counts.get(reason, 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def broken(run: Run, plan: Evaluation) -> Sequence[Margin]:
    """The constraints that the plan breaks, the worst first."""
    return sorted((m for m in margins(run, plan) if _breaks(m)), key=lambda margin: margin.headroom)


def _breaks(margin: Margin) -> bool:
    return margin.headroom < 0 or (margin.headroom == 0 and margin.operator in ("<", ">"))
