"""How sure a front is: its plans, and those that just miss a constraint, under other seeds and a little more load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from planner.evaluate import Outcome, Trial
from planner.goals import NEAR, judge
from planner.parameters import Parameters
from planner.search.pareto import non_dominated
from planner.space import Space

MOST = 64  # plans that are tried
MORE_LOAD = 1.05  # that a plan not on a cliff carries as well


class Tries(Protocol):
    """What simulates trials."""

    def trials(self, trials: Mapping[str, Trial]) -> dict[str, Outcome]:
        """Their outcomes, by plan id."""
        ...


def try_under_seeds(space: Space, search: Tries, evaluations: Sequence[dict[str, Any]]) -> None:
    """Note in the evaluations of the front, and of plans near a constraint: `seed_confidence`, the share of seeds under
    which the plan is feasible; `front_confidence`, the share under which it is on the front of those tried; and
    `cliff`: it is feasible, but not at 5% more load or not under each seed."""
    by_id = {evaluation["id"]: evaluation for evaluation in evaluations}
    chosen = _chosen(space, evaluations)
    parameters: dict[str, Parameters] = {plan: by_id[plan]["parameters"] for plan in chosen}
    rounds = [{plan: Outcome(by_id[plan]["metrics"]) for plan in chosen}]
    for seed in range(space.seed + 1, space.seed + space.seeds):
        rounds.append(search.trials({plan: Trial(parameters[plan], seed=seed) for plan in chosen}))
    loaded: dict[str, Outcome] = {}
    if _is_open(space):
        loaded = search.trials({plan: Trial(parameters[plan], rate_scale=MORE_LOAD) for plan in chosen})
    feasible = {plan: [_holds(space, outcomes[plan]) for outcomes in rounds] for plan in chosen}
    fronts = [_front(space, outcomes) for outcomes in rounds]
    for plan in chosen:
        evaluation = by_id[plan]
        evaluation["seed_confidence"] = sum(feasible[plan]) / len(rounds)
        evaluation["front_confidence"] = sum(plan in front for front in fronts) / len(rounds)
        carries = plan not in loaded or _holds(space, loaded[plan])
        evaluation["cliff"] = bool(feasible[plan][0] and not (carries and all(feasible[plan])))


def _chosen(space: Space, evaluations: Sequence[dict[str, Any]]) -> list[str]:
    """The front, then the plans that would be on it if constraints were a little wider, as far as there is room."""
    simulated = [e for e in evaluations if e["simulated"]]
    wide = [e for e in simulated if e["feasible"] or 0 < e["violation"] <= NEAR]
    chosen: list[str] = []
    for group in ([e for e in simulated if e["feasible"]], wide):
        costs = np.array([[o.cost(e["metrics"]) for o in space.objectives] for e in group], dtype=np.float64)
        if len(group):
            chosen += [e["id"] for e, on in zip(group, non_dominated(costs), strict=True) if on]
    return list(dict.fromkeys(chosen))[:MOST]


def _is_open(space: Space) -> bool:
    arrival = space.workload.get("arrival")
    return not (isinstance(arrival, Mapping) and arrival.get("process") == "closed")


def _holds(space: Space, outcome: Outcome) -> bool:
    runs = outcome.refused is None and outcome.failed is None
    values = [outcome.metrics.get(objective.metric, math.nan) for objective in space.objectives]
    return runs and judge(space.constraints, outcome.metrics)[1] is None and not any(map(math.isnan, values))


def _front(space: Space, outcomes: Mapping[str, Outcome]) -> set[str]:
    plans = [plan for plan, outcome in outcomes.items() if _holds(space, outcome)]
    if not plans:
        return set()
    costs = np.array([[o.cost(outcomes[p].metrics) for o in space.objectives] for p in plans], dtype=np.float64)
    return {plan for plan, on in zip(plans, non_dominated(costs), strict=True) if on}
