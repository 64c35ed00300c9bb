"""The plans of a run as the interactive front reads them, in the offline report and on the service's page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from planner.goals import metric_senses
from planner.report import content, names, verdict

if TYPE_CHECKING:
    from planner.store import Run

SHARES = tuple(
    m for m in content.KEPT_METRICS if m.endswith(("utilization", "utilization_mean", "hit_rate", "attainment"))
)


def front_document(run: Run) -> dict[str, Any]:
    """What `page/plans.js` describes: metrics, parameters that vary, constraints, and the plans with their figures.

    Figures are to six digits, parameters are words. Nothing in it is infinite or nan.
    """
    plans, left_out = content.chosen_plans(run)
    asked = [metric for metric, _ in run.objectives] + [metric for metric, _, _ in run.constraints]
    metrics = [m for m in dict.fromkeys([*asked, *content.KEPT_METRICS]) if any(_has(plan, m) for plan in plans)]
    varying = names.varying([plan["parameters"] for plan in plans], but=())
    known, front, starred = content.extras(run), set(run.front), verdict.recommended(run)
    return {
        "metrics": [_metric(run, metric) for metric in metrics],
        "parameters": varying,
        "constraints": [[m, operator, limit] for m, operator, limit in run.constraints],
        "objectives": [metric for metric, _ in run.objectives],
        "left_out": left_out,
        "starred": starred["id"] if starred is not None else None,
        "plans": [
            {
                "id": plan["id"],
                "label": names.plan_label(plan["parameters"]),
                "state": "front" if plan["id"] in front else "feasible" if plan["feasible"] else "broken",
                "p": [names.setting(plan["parameters"].get(name)) for name in varying],
                "m": [_rounded(plan["metrics"].get(metric)) for metric in metrics],
                "why_not": plan["why_not"],
                "saturation": plan.get("saturation"),
                **_certainty(known.get(plan["id"], {}), metrics),
                **({"limit": content.limit_words(run, plan)} if plan["id"] in front else {}),
            }
            for plan in plans
        ],
    }


def _has(plan: verdict.Evaluation, metric: str) -> bool:
    value = plan["metrics"].get(metric)
    return value is not None and math.isfinite(value)


def _metric(run: Run, metric: str) -> dict[str, Any]:
    """How the page names a metric; which way it is better, empty for how full something is, which is no merit."""
    share = metric in SHARES
    usual = (
        ""
        if metric in SHARES and metric not in ("slo_attainment", "prefix_hit_rate")
        else metric_senses().get(metric, "")
    )
    sense = dict(run.objectives).get(metric) or usual
    return {"name": metric, "label": names.axis_label(metric), "sense": sense, "share": share}


def _rounded(value: Any) -> float | None:
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None


def _certainty(given: Mapping[str, Any], metrics: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if content.confidence_words(given):
        found["confidence"] = content.confidence_words(given)
    if content.validated_words(given):
        found["validated"] = content.validated_words(given)
    intervals = {index: content.interval(given, metric) for index, metric in enumerate(metrics)}
    kept = {str(index): [_rounded(end) for end in ends] for index, ends in intervals.items() if ends}
    return found | ({"intervals": kept} if kept else {})
