"""How sure a front is: its plans, and those near it, under other seeds, more load, and latencies that are off."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from planner.confidence import error_factors, error_levels, regime_of_plan
from planner.evaluate import Evaluator, Outcome, Trial
from planner.goals import CAPACITY_METRICS, NEAR, judge
from planner.parameters import Parameters, to_deployment
from planner.search.capacities import Capacities
from planner.search.pareto import front_order, non_dominated
from planner.search.surroundings import Evaluation
from planner.space import Space

MOST, MOST_NEAR = 12, 8  # plans of the front and near it that are tried, where no seeds are asked for
MOST_UNDER_SEEDS = 64
MORE_LOAD = 1.05  # that a plan not on a cliff carries as well
DRAWS = 10  # of seeds and errors


class Tries(Protocol):
    """What simulates trials."""

    capacities: Capacities | None

    def trials(self, trials: Mapping[str, Trial]) -> dict[str, Outcome]:
        """Their outcomes, by name."""
        ...


@dataclass(frozen=True, slots=True)
class Draw:
    """A seed, and how wrong the latency model is: quantiles of the errors of steps and of overheads."""

    seed: int
    levels: tuple[float, float]


def draws_of(space: Space) -> list[Draw]:
    """At least `DRAWS`, the errors stratified, the seeds in turn."""
    count = max(DRAWS, space.seeds)
    count += count % 7 == 0
    return [Draw(space.seed + n % space.seeds, levels) for n, levels in enumerate(error_levels(count))]


def try_plans(space: Space, evaluator: Evaluator, search: Tries, evaluations: Sequence[Evaluation]) -> None:
    """Note in the evaluations of the front, and of plans near it, how sure they are.

    `slo_confidence`: the share of draws of seed and error in which the plan is feasible; `front_confidence`: in which
    it is on the front of the plans tried. An error is common to all plans of a draw, each off by what its own regime
    has been off at that quantile. With several seeds also `seed_confidence`, the share of seeds under which it is
    feasible by the model as it is, and `cliff`: it is feasible, but not at 5% more load or not under each seed.
    Plans of equal objectives share one trial where no seeds are asked for.
    """
    groups = _chosen(space, evaluations)
    plans = {group[0]["id"]: group[0]["parameters"] for group in groups}
    found: dict[str, Evaluation] = {plan: {} for plan in plans}
    _under_draws(space, evaluator, search, plans, found)
    if space.seeds > 1:
        _under_seeds(space, search, {group[0]["id"]: group[0] for group in groups}, found)
    for group in groups:
        for evaluation in group:
            evaluation.update(found[group[0]["id"]])


def _under_draws(
    space: Space, evaluator: Evaluator, search: Tries, plans: Mapping[str, Parameters], found: dict[str, Evaluation]
) -> None:
    draws = draws_of(space)
    trials = {}
    for plan, parameters in plans.items():
        regime = regime_of_plan(to_deployment(parameters, evaluator.model, evaluator.gpus), evaluator.workload)
        for number, draw in enumerate(draws):
            steps, overheads = error_factors(regime, *draw.levels)
            trial = Trial(parameters, seed=draw.seed, step_factor=steps, overhead_factor=overheads)
            trials[f"{plan} {number}"] = trial
    outcomes = search.trials(trials)
    for plan in plans:
        holding = [_meets(space, outcomes[f"{plan} {number}"]) for number in range(len(draws))]
        found[plan]["slo_confidence"] = sum(holding) / len(draws)
    if search.capacities is not None:
        if space.seeds == 1:
            return  # what each plan carries in each draw takes several simulations more
        outcomes = _with_capacities(space, search.capacities, trials, outcomes)
    fronts = [_front(space, {plan: outcomes[f"{plan} {number}"] for plan in plans}) for number in range(len(draws))]
    for plan in plans:
        found[plan]["front_confidence"] = sum(plan in front for front in fronts) / len(draws)


def _with_capacities(
    space: Space, capacities: Capacities, trials: Mapping[str, Trial], outcomes: Mapping[str, Outcome]
) -> dict[str, Outcome]:
    """The outcomes with what each plan carries in its draw; its size is what it is."""
    done = {
        name: Outcome(outcome.metrics | {"min_gpus": outcome.metrics["gpus"]}, outcome.saturation, outcome.refused)
        for name, outcome in outcomes.items()
    }
    if space.asks("max_rate_rps"):
        good = {name: (trials[name], outcome) for name, outcome in done.items() if capacities.holds(outcome)}
        done |= dict(capacities.max_rates(good))
    return done


def _under_seeds(space: Space, search: Tries, plans: Mapping[str, Evaluation], found: dict[str, Evaluation]) -> None:
    parameters: dict[str, Parameters] = {plan: evaluation["parameters"] for plan, evaluation in plans.items()}
    rounds = [{plan: Outcome(evaluation["metrics"]) for plan, evaluation in plans.items()}]
    for seed in range(space.seed + 1, space.seed + space.seeds):
        rounds.append(search.trials({plan: Trial(parameters[plan], seed=seed) for plan in plans}))
    loaded: dict[str, Outcome] = {}
    if _is_open(space):
        loaded = search.trials({plan: Trial(parameters[plan], rate_scale=MORE_LOAD) for plan in plans})
    for plan, evaluation in found.items():
        feasible = [_meets(space, outcomes[plan]) for outcomes in rounds]
        evaluation["seed_confidence"] = sum(feasible) / len(rounds)
        carries = plan not in loaded or _meets(space, loaded[plan])
        evaluation["cliff"] = bool(feasible[0] and not (carries and all(feasible)))


def _chosen(space: Space, evaluations: Sequence[Evaluation]) -> list[list[Evaluation]]:
    """The front, then the plans that would be on it if constraints were a little wider, as far as there is room: each
    with those that share its trials."""
    simulated = [e for e in evaluations if e["simulated"]]
    feasible = [e for e in simulated if e["feasible"]]
    wide = [e for e in simulated if e["feasible"] or 0 < e["violation"] <= NEAR]
    groups: dict[Any, list[Evaluation]] = {}
    counts = []
    for some in (feasible, wide):
        costs = np.array([[o.cost(e["metrics"]) for o in space.objectives] for e in some], dtype=np.float64)
        for position in front_order(costs) if len(some) else []:
            evaluation = some[position]
            key = evaluation["id"] if space.seeds > 1 else tuple(costs[position])
            group = groups.setdefault(key, [])
            if evaluation not in group:
                group.append(evaluation)
        counts.append(len(groups))
    every = list(groups.values())
    if space.seeds > 1:
        return every[:MOST_UNDER_SEEDS]
    return every[: min(MOST, counts[0])] + every[counts[0] :][:MOST_NEAR]


def _is_open(space: Space) -> bool:
    arrival = space.workload.get("arrival")
    return not (isinstance(arrival, Mapping) and arrival.get("process") == "closed")


def _meets(space: Space, outcome: Outcome) -> bool:
    """Whether it is feasible, as far as one simulation tells."""
    runs = outcome.refused is None and outcome.failed is None
    values = [outcome.metrics.get(o.metric, math.nan) for o in space.objectives if o.metric not in CAPACITY_METRICS]
    return runs and judge(space.constraints, outcome.metrics)[1] is None and not any(map(math.isnan, values))


def _front(space: Space, outcomes: Mapping[str, Outcome]) -> set[str]:
    plans = [plan for plan, outcome in outcomes.items() if _meets(space, outcome)]
    if not plans:
        return set()
    costs = np.array([[o.cost(outcomes[p].metrics) for o in space.objectives] for p in plans], dtype=np.float64)
    return {plan for plan, on in zip(plans, non_dominated(costs), strict=True) if on}
