"""What a run has to say, as the page and scripts read it: pure functions of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from planner.report import content, names, reasons, verdict
from planner.report.content import MAX_PLANS
from planner.report.kinds import best_of_kinds
from planner.service.live_front import point, shown_metrics
from planner.store import Run, front_document

Evaluation = Mapping[str, Any]


def goals(run: Run) -> dict[str, Any]:
    """The run's objectives and constraints."""
    return {
        "objectives": [{"metric": metric, "sense": sense} for metric, sense in run.objectives],
        "constraints": [{"metric": m, "operator": operator, "limit": limit} for m, operator, limit in run.constraints],
    }


def front(run: Run) -> dict[str, Any]:
    """The front as in `front.json`, each plan with what limits it in words."""
    document = front_document(run)
    varying = names.varying([e["parameters"] for e in run.front_evaluations()])
    for plan, evaluation in zip(document["plans"], run.front_evaluations(), strict=True):
        plan |= {
            "label": names.plan_label(evaluation["parameters"]),
            "gpu": evaluation["parameters"].get("gpu"),
            "limit": content.limit_words(run, evaluation),
            "settings": names.settings(evaluation["parameters"], [name for name in varying if name != "gpu"]),
        }
    return document | {"complete": is_complete(run), "recommended": recommended(run), "varying": varying}


def is_complete(run: Run) -> bool:
    """Whether the search came to its end."""
    return run.manifest.get("status") == "done"


def recommended(run: Run) -> str | None:
    """The id of the plan that the tool stars."""
    plan = verdict.recommended(run)
    return None if plan is None else str(plan["id"])


def front_points(run: Run, most: int) -> dict[str, Any]:
    """The front as the event stream sends it."""
    metrics = shown_metrics(run.objectives, [metric for metric, _, _ in run.constraints])
    return {"plans": [point(dict(e), metrics) for e in run.front_evaluations()[:most]], "exact": run.exact}


def answer(run: Run) -> dict[str, Any]:
    """The question and its answer in words."""
    plan = verdict.recommended(run)
    simulated, refused = reasons.ruled_out(run)
    stem = content.file_stem(run)
    found = {
        "headline": content.headline(run),
        "question": content.question(run),
        "searched": content.searched(run),
        "recommended": recommended(run),
        "why": None,
        "costs": [],
        "margins": [],
        "certainty": [],
        "kinds": [(f"Best with {kind}", words) for kind, words in best_of_kinds(run)],
        "ruled_out": {
            "simulated": [asdict(reason) for reason in simulated],
            "not_simulated": [asdict(reason) for reason in refused],
        },
        "nearest": [] if plan is not None else [_nearest(run, each) for each in verdict.least_violating(run)],
        "fidelity": content.fidelity_words(run),
        "versions": content.versions(run),
        "reproduce": f"planner search {stem}.yaml --out {stem}",
        "complete": is_complete(run),
    }
    if plan is not None:
        found |= {"why": content.why(run)} | _judged(run, plan)
    return found


def _nearest(run: Run, plan: Evaluation) -> dict[str, Any]:
    return {
        "id": plan["id"],
        "label": names.plan_label(plan["parameters"]),
        "gpu": plan["parameters"].get("gpu"),
        "lacks": content.limit_words(run, plan),
    }


def _judged(run: Run, plan: Evaluation) -> dict[str, Any]:
    """What a plan costs, how far it is from the limits, and how sure that is."""
    given = content.extras(run).get(str(plan["id"]), {})
    margins = [
        asdict(margin) | {"words": names.constraint(margin.metric, margin.operator, margin.limit)}
        for margin in verdict.margins(run, plan)
    ]
    return {"costs": content.costs(plan), "margins": margins, "certainty": content.certainty(given)}


def points(run: Run) -> dict[str, Any]:
    """Every simulated plan in columns, the front first; those beyond `MAX_PLANS` that miss the limits most are left
    out."""
    plans, left_out = content.chosen_plans(run)
    on_front = set(run.front)
    metrics = shown_metrics(run.objectives, [metric for metric, _, _ in run.constraints])
    return {
        "ids": [plan["id"] for plan in plans],
        "feasible": [int(bool(plan["feasible"])) for plan in plans],
        "front": [int(plan["id"] in on_front) for plan in plans],
        "label": [names.plan_label(plan["parameters"]) for plan in plans],
        "gpu": [plan["parameters"].get("gpu") for plan in plans],
        "metrics": {name: [plan["metrics"].get(name) for plan in plans] for name in metrics},
        "total": len(plans) + left_out,
        "left_out": left_out,
        "most": MAX_PLANS,
    }


def evaluations(
    run: Run,
    simulated: bool | None,
    feasible: bool | None,
    sort: str | None,
    descending: bool,
    limit: int,
    offset: int,
) -> dict[str, Any]:
    """A page of the evaluations. `sort` is a metric, `id` or `violation`; without one they are in the order of the
    search. What has no value comes last whichever way they are sorted."""
    chosen = [
        evaluation
        for evaluation in run.evaluations
        if (simulated is None or bool(evaluation["simulated"]) == simulated)
        and (feasible is None or bool(evaluation["feasible"]) == feasible)
    ]
    if sort is not None:
        chosen = _sorted(chosen, sort, descending)
    on_front = set(run.front)
    page = [
        dict(evaluation) | {"front": evaluation["id"] in on_front, "label": names.plan_label(evaluation["parameters"])}
        for evaluation in chosen[offset : offset + limit]
    ]
    return {"evaluations": page, "total": len(chosen), "limit": limit, "offset": offset}


def _sorted(plans: list[dict[str, Any]], key: str, descending: bool) -> list[dict[str, Any]]:
    if key == "id":
        return sorted(plans, key=lambda plan: str(plan["id"]), reverse=descending)

    def value(plan: dict[str, Any]) -> float:
        given = plan["violation"] if key == "violation" else plan["metrics"].get(key)
        return math.nan if given is None else float(given)

    valued = [plan for plan in plans if not math.isnan(value(plan))]
    without = [plan for plan in plans if math.isnan(value(plan))]
    return sorted(valued, key=value, reverse=descending) + without


def plan_detail(run: Run, plan: Evaluation, text: str | None) -> dict[str, Any]:
    """One plan: everything that is known of it; `text` is its plan.yaml, where it has one."""
    varying = names.varying([each["parameters"] for each in run.evaluations])
    given = content.extras(run).get(str(plan["id"]), {})
    kept = ("id", "parameters", "metrics", "simulated", "feasible", "why_not", "saturation")
    return {
        **{name: plan.get(name) for name in kept},
        "label": names.plan_label(plan["parameters"]),
        "gpu": plan["parameters"].get("gpu"),
        "settings": names.settings(plan["parameters"], [name for name in varying if name != "gpu"]),
        "front": plan["id"] in run.front,
        "recommended": plan["id"] == recommended(run),
        "limit": content.limit_words(run, plan),
        "certainty_sentence": content.certainty_sentence(run, given),
        "plan_yaml": text,
        **_judged(run, plan),
    }
