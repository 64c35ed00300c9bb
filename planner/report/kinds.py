"""What came of each kind of plan, where a space has several: of each GPU, with prefill pools and without."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from planner.report import explain, names, reasons, verdict

if TYPE_CHECKING:
    from planner.store import Run

Rows = list[tuple[str, str]]


def best_of_kinds(run: Run) -> Rows:
    """(kind, its cheapest feasible plan in words, or else the nearest one and what it lacks); empty where all plans
    are of one kind."""
    gpus = sorted({str(plan["parameters"].get("gpu")) for plan in run.evaluations})
    rows = _rows(run, gpus, lambda plan: str(plan["parameters"].get("gpu"))) if len(gpus) > 1 else []
    pools = sorted({_pools(plan) for plan in run.evaluations}, reverse=True)
    return rows + (_rows(run, pools, _pools) if len(pools) > 1 else [])


def _pools(plan: verdict.Evaluation) -> str:
    return "prefill pools" if plan["parameters"].get("prefill_replicas") else "no prefill pool"


def _rows(run: Run, kinds: Sequence[str], kind_of: Callable[[verdict.Evaluation], str]) -> Rows:
    return [(kind, _best(run, [plan for plan in run.evaluations if kind_of(plan) == kind])) for kind in kinds]


def _best(run: Run, plans: list[dict[str, Any]]) -> str:
    """The best of the plans of one kind, in words."""
    starred = verdict.recommended(run)
    feasible = [plan for plan in plans if plan["feasible"]]
    if starred is not None and any(plan["id"] == starred["id"] for plan in feasible):
        return f"{_described(run, starred)}, the recommended plan"
    if feasible:
        return _described(run, verdict.cheapest(run, feasible))
    near = [plan for plan in plans if math.isfinite(plan["violation"]) and _was_simulated(plan)]
    if near:
        nearest = min(near, key=lambda plan: (plan["violation"], str(plan["id"])))
        return f"none meets the SLO; nearest {_named(nearest)}, {_lacks(run, nearest)}"
    simulated, others = reasons.ruled_out(replace(run, evaluations=plans))
    why = f" ({(simulated + others)[0].text})" if simulated or others else ""
    return f"none {'meets the SLO' if any(map(_was_simulated, plans)) else 'was simulated'}{why}"


def _was_simulated(plan: verdict.Evaluation) -> bool:
    return bool(plan["simulated"] or plan.get("stopped_early"))


def _named(plan: verdict.Evaluation) -> str:
    price = names.measure("cost_per_hour", plan["metrics"].get("cost_per_hour"))
    return f"{names.plan_label(plan['parameters'])} {plan['id']} at {price}"


def _described(run: Run, plan: verdict.Evaluation) -> str:
    metrics = (verdict.ttft_metric(run), verdict.tpot_metric(run))
    figures = [f"{names.metric_name(m)} {names.measure(m, plan['metrics'].get(m))}" for m in metrics]
    sure = verdict.confidence(plan)
    figures += [f"SLO confidence {names.percent(sure)}"] if sure is not None and run.constraints else []
    return ", ".join([_named(plan), *figures])


def _lacks(run: Run, plan: verdict.Evaluation) -> str:
    """What keeps a plan from being feasible."""
    if plan["simulated"] and verdict.broken(run, plan):
        return explain.margin_words(run, plan)
    return reasons.words(plan)
