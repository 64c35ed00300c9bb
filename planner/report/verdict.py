"""Which plan to take, and how far each is from its limits: pure functions of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner.parameters import DEFAULTS
from planner.report import names

if TYPE_CHECKING:
    from planner.store import Run

Evaluation = Mapping[str, Any]

SURE = 0.8  # share of draws from which on a plan is said to hold
ALIKE = 0.03  # latencies and other objectives that are worse than the best by no more than this share count as equal
RULE = "the cheapest plan of the front{sure}; among equally cheap ones, {order}"


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
    plans: list[Evaluation] = sorted(run.front_evaluations(), key=lambda plan: _preference(run, plan))
    if plans:
        best = _choice(run, plans)
        plans = [best, *(plan for plan in plans if plan is not best)]
    return plans


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
    """The plan that the tool stars, by `rule`; None where no plan is feasible."""
    plans = front(run)
    return plans[0] if plans else None


def confidence(plan: Evaluation) -> float | None:
    """The share of draws in which a plan holds; None where that was not tried."""
    value = plan.get("slo_confidence")
    return float(value) if isinstance(value, int | float) else None


def _choice(run: Run, plans: Sequence[Evaluation]) -> Evaluation:
    """The plan to take of `plans`: what counts first leaves the best by it, and what counts next chooses among those.

    Values count as equal by their distance from the best one left, never from each other, so that there is one order.
    """
    known = [sure for plan in plans if (sure := confidence(plan)) is not None]
    if known:
        least = SURE if max(known) >= SURE else max(known)
        plans = [plan for plan in plans if (confidence(plan) or 0.0) >= least and confidence(plan) is not None]
    plans = _lowest(plans, [_cost(plan) for plan in plans])
    plans = _lowest(plans, [_refused_percent(plan) for plan in plans])
    for metric, sense in _deciding(run):
        sign = -1.0 if sense == "max" else 1.0
        plans = _lowest(plans, [_or_inf(plan["metrics"].get(metric), sign) for plan in plans], ALIKE)
    return min(plans, key=lambda plan: (_unusual(plan), str(plan["id"])))


def _lowest(plans: Sequence[Evaluation], values: Sequence[float], alike: float = 0.0) -> list[Evaluation]:
    """The plans whose value is the lowest, or above it by no more than this share of it."""
    best = min(values)
    most = best + alike * abs(best) if math.isfinite(best) else best
    return [plan for plan, value in zip(plans, values, strict=True) if value <= most]


def _deciding(run: Run) -> list[tuple[str, str]]:
    """What decides between equally cheap plans, in order: TTFT, then the run's other objectives."""
    ttft = ttft_metric(run)
    others = [(metric, sense) for metric, sense in run.objectives if metric not in (ttft, "cost_per_hour")]
    return [(ttft, "min"), *others]


def rule(run: Run) -> str:
    """The rule by which a plan is starred, in words."""
    plans = run.front_evaluations()
    order = ["the fewest requests refused"] if any(_refused_percent(plan) for plan in plans) else []
    order += [
        f"the {'highest' if sense == 'max' else 'lowest'} {names.metric_name(metric)}"
        for metric, sense in _deciding(run)
        if metric != "gpus"
    ]
    tried = bool(run.constraints) and any(confidence(plan) is not None for plan in plans)
    sure = f" that holds in at least {names.percent(SURE)} of draws" if tried else ""
    alike = f" (within {ALIKE:.0%} counts as equal)"
    return RULE.format(sure=sure, order=", then ".join(order) + alike)


def passed_over(run: Run) -> str:
    """What the recommended plan's confidence cost, in a sentence: that no plan is sure to hold, or a cheaper one that
    holds too seldom; empty where there is nothing to say."""
    plans = front(run)
    if not plans or not run.constraints:
        return ""
    best = plans[0]
    held = confidence(best)
    sentence = ""
    if held is not None and held < SURE:
        sentence = (
            f"No plan is sure to hold: {_label(run, best)} holds in {names.percent(held)} of draws, the most of any."
        )
    cheaper = [plan for plan in plans[1:] if _cost(plan) < _cost(best)]
    if cheaper:
        sure = confidence(cheaper[0])
        holds = "was not tried in draws" if sure is None else f"holds in {names.percent(sure)} of draws"
        sentence += f" {_label(run, cheaper[0])} is cheaper and {holds}."
    return sentence.strip()


def _label(run: Run, plan: Evaluation) -> str:
    """A plan's size, with its GPU where the front has several."""
    gpus = {other["parameters"].get("gpu") for other in run.front_evaluations()}
    label = names.plan_label(plan["parameters"])
    return f"{label} on {plan['parameters'].get('gpu')}" if len(gpus) > 1 else label


def _refused_percent(plan: Evaluation) -> int:
    """Requests shed or rejected, in whole percent: a plan must not win on latency by serving less."""
    offered = plan["metrics"].get("offered") or math.nan
    refused = sum(plan["metrics"].get(name) or 0.0 for name in ("shed", "expired", "rejected"))
    share = 100 * refused / offered
    return 0 if math.isnan(share) else math.ceil(share)


def _preference(run: Run, plan: Evaluation) -> tuple[float, int, float, float, int, str]:
    """Sorts by cost, requests refused, TTFT, throughput; of equals, the nearest to vLLM's defaults comes first."""
    metrics = plan["metrics"]
    return (
        _cost(plan),
        _refused_percent(plan),
        _or_inf(metrics.get(ttft_metric(run))),
        -float(metrics.get("output_tokens_per_s") or 0.0),
        _unusual(plan),
        str(plan["id"]),
    )


def _unusual(plan: Evaluation) -> int:
    """How many settings are not vLLM's defaults."""
    return sum(value != DEFAULTS.get(name) for name, value in plan["parameters"].items())


def _cost(plan: Evaluation) -> float:
    return _or_inf(plan["metrics"].get("cost_per_hour", plan["metrics"].get("gpus")))


def _or_inf(value: Any, sign: float = 1.0) -> float:
    return math.inf if value is None or math.isnan(value) else sign * float(value)


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


def cheapest(run: Run, plans: Iterable[Evaluation]) -> Evaluation:
    """The cheapest of some plans; of equally cheap ones that which refuses the fewest requests, then the fastest."""
    return min(plans, key=lambda plan: _preference(run, plan))


def broken(run: Run, plan: Evaluation) -> Sequence[Margin]:
    """The constraints that the plan breaks, the worst first."""
    return sorted((m for m in margins(run, plan) if _breaks(m)), key=lambda margin: margin.headroom)


def _breaks(margin: Margin) -> bool:
    return margin.headroom < 0 or (margin.headroom == 0 and margin.operator in ("<", ">"))
