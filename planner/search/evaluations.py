"""The record that a search keeps of a plan: of what its simulation said, or of why there was none."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.evaluate import Evaluator, Outcome, Stopped, timed_out
from planner.goals import CAPACITY_METRICS, judge
from planner.parameters import Parameters
from planner.search.pruning import broken_by_bounds
from planner.search.surroundings import Evaluation
from planner.space import Space
from planner.store import front_ids


def front_of(evaluations: Sequence[Evaluation], space: Space) -> list[str]:
    """Ids of the feasible plans that no other dominates, best first objective first."""
    return front_ids(evaluations, [(objective.metric, objective.sense) for objective in space.objectives])


def evaluation_of(
    plan: str, parameters: Parameters, metrics: dict[str, float], violation: float, why_not: str | None, simulated: bool
) -> Evaluation:
    """The evaluation of a plan; it is feasible where there is no reason why not."""
    return {
        "id": plan,
        "parameters": parameters,
        "simulated": simulated,
        "feasible": why_not is None,
        "why_not": why_not,
        "violation": violation,
        "saturation": None,
        "metrics": metrics,
    }


def unjudged(plan: str, parameters: Parameters, metrics: dict[str, float], why_not: str) -> Evaluation:
    """The evaluation of a plan that was left out for what others are: nobody knows whether it is feasible."""
    return evaluation_of(plan, parameters, metrics, 0.0, why_not, simulated=False) | {"feasible": None}


def judged(space: Space, evaluator: Evaluator, plan: str, parameters: Parameters, outcome: Outcome) -> Evaluation:
    """The evaluation that `outcome` makes under the space's constraints."""
    if outcome.refused is not None or outcome.failed is not None:
        return _not_run(plan, parameters, outcome, outcome.metrics or evaluator.static_metrics(parameters))
    if outcome.stopped is not None:
        stopped = outcome.stopped
        violation, why_not = broken_by_bounds(space.constraints, stopped.bounds, stopped.after)
        evaluation = evaluation_of(plan, parameters, outcome.metrics, violation, why_not, simulated=False)
        return evaluation | {"stopped_early": True, "after": stopped.after, "bounds": stopped.bounds}
    violation, why_not = judge(space.constraints, outcome.metrics)
    missing = [o.metric for o in space.objectives if math.isnan(outcome.metrics.get(o.metric, math.nan))]
    if missing and why_not is None:
        lost = CAPACITY_METRICS.get(missing[0]) and "its queue grows without end at the workload's own rate"
        violation, why_not = math.inf, lost or f"{missing[0]} has no value"
    evaluation = evaluation_of(plan, parameters, outcome.metrics, violation, why_not, simulated=True)
    return evaluation | {"saturation": outcome.saturation}


def _not_run(plan: str, parameters: Parameters, outcome: Outcome, metrics: dict[str, float]) -> Evaluation:
    failure = outcome.failed if outcome.timed_out_s else f"the simulation failed: {outcome.failed}"
    reason = outcome.refused or failure
    evaluation = evaluation_of(plan, parameters, metrics, math.inf, reason, simulated=False)
    evaluation["refused" if outcome.refused else "failed"] = True
    if outcome.timed_out_s is not None:
        evaluation["timed_out_s"] = outcome.timed_out_s
    return evaluation


def outcome_of(evaluation: Evaluation) -> Outcome:
    """The outcome that an evaluation was made of."""
    stopped = Stopped(evaluation["after"], evaluation["bounds"]) if evaluation.get("stopped_early") else None
    limit_s = evaluation.get("timed_out_s")
    if limit_s is not None:
        return timed_out(evaluation["metrics"], limit_s)
    return Outcome(
        metrics=evaluation["metrics"],
        saturation=evaluation.get("saturation"),
        refused=evaluation["why_not"] if evaluation.get("refused") else None,
        stopped=stopped,
    )


def is_ruled_out(evaluation: Evaluation) -> bool:
    """Whether a plan's parameters or bounds said enough, so that it was never tried."""
    tried = any(evaluation.get(key) for key in ("refused", "failed", "stopped_early"))
    return not (evaluation["simulated"] or tried)
