"""How sure a front is: its plans, and those near it, under other seeds, more load, and latencies that are off."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from planner.confidence import (
    error_factors,
    error_levels,
    level_in_draw,
    measured_over_predicted,
    regime_of_plan,
    serves_all,
)
from planner.evaluate import Evaluator, Outcome, Trial
from planner.goals import CAPACITY_METRICS, NEAR
from planner.parameters import Parameters, to_deployment
from planner.regimes import Regime
from planner.search.capacities import Capacities
from planner.search.pareto import front_order, non_dominated
from planner.search.surroundings import Evaluation
from planner.space import Space
from sim.workload import Workload

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

    `slo_confidence`: the share of the `confidence_draws` draws of seed and error in which the plan holds: re-simulated
    with steps and overheads off by that error it meets the SLO, and so do the figures of the model as it is, each times
    what it has been off at that quantile, so that no plan whose 90% interval crosses a limit is sure.
    `confidence_breaks`: {constraint: draws that break it}. `front_confidence`: the share in which it is on the front of
    the plans tried. An error is common to all plans of a draw, each off by what its own regime has been off at that
    quantile. With several seeds also `seed_confidence`, the share of seeds under which it is feasible by the model as
    it is, and `cliff`: it is feasible, but not at 5% more load or not under each seed.
    Plans of equal objectives share one trial where no seeds are asked for.
    """
    groups = _chosen(space, evaluations)
    found: dict[str, Evaluation] = {group[0]["id"]: {} for group in groups}
    _under_draws(space, evaluator, search, groups, found)
    if space.seeds > 1:
        _under_seeds(space, search, {group[0]["id"]: group[0] for group in groups}, found)
    for group in groups:
        for evaluation in group:
            evaluation.update(found[group[0]["id"]])


def _under_draws(
    space: Space,
    evaluator: Evaluator,
    search: Tries,
    groups: Sequence[Sequence[Evaluation]],
    found: dict[str, Evaluation],
) -> None:
    draws = draws_of(space)
    plans = {group[0]["id"]: group[0]["parameters"] for group in groups}
    trials = {}
    for plan, parameters in plans.items():
        regime = _regime(evaluator, parameters)
        for number, draw in enumerate(draws):
            steps, overheads = error_factors(regime, *draw.levels)
            trial = Trial(parameters, seed=draw.seed, step_factor=steps, overhead_factor=overheads)
            trials[f"{plan} {number}"] = trial
    outcomes = search.trials(trials)
    holding: dict[str, list[bool]] = {}
    for group in groups:
        tried = [outcomes[f"{group[0]['id']} {number}"] for number in range(len(draws))]
        for evaluation in group:
            regime = _regime(evaluator, evaluation["parameters"])
            broken = [
                _broken(space, outcome) | _off_limits(space, evaluator.workload, regime, evaluation, draw)
                for draw, outcome in zip(draws, tried, strict=True)
            ]
            holding[evaluation["id"]] = [not breaks for breaks in broken]
            evaluation.update(_sure(broken))
    if search.capacities is not None:
        if space.seeds == 1:
            return  # what each plan carries in each draw takes several simulations more
        outcomes = _with_capacities(space, search.capacities, trials, outcomes)
    fronts = [
        _front(space, {plan: outcomes[f"{plan} {number}"] for plan in plans if holding[plan][number]})
        for number in range(len(draws))
    ]
    for plan in plans:
        found[plan]["front_confidence"] = sum(plan in front for front in fronts) / len(draws)


def _sure(broken: Sequence[Collection[str]]) -> Evaluation:
    """What an evaluation says of its draws, from what each breaks."""
    counts: dict[str, int] = {}
    for breaks in broken:
        for constraint in sorted(breaks):
            counts[constraint] = counts.get(constraint, 0) + 1
    return {
        "slo_confidence": sum(not breaks for breaks in broken) / len(broken),
        "confidence_draws": len(broken),
        "confidence_breaks": dict(sorted(counts.items())),
    }


def _off_limits(space: Space, load: Workload, regime: Regime, evaluation: Evaluation, draw: Draw) -> set[str]:
    """The constraints that a plan's own figures miss once they are off by what they have been at a draw's quantiles."""
    capped = serves_all(load, evaluation.get("saturation"))
    found = set()
    for constraint in space.constraints:
        metric, value = constraint.metric, evaluation["metrics"].get(constraint.metric, math.nan)
        ratio = measured_over_predicted(regime, metric, level_in_draw(metric, *draw.levels))
        if ratio is None or math.isnan(value):
            continue
        if metric == "output_tokens_per_s" and capped:
            ratio = min(1.0, ratio)
        if constraint.violation(value * ratio) > 0:
            found.add(str(constraint))
    return found


def _regime(evaluator: Evaluator, parameters: Parameters) -> Regime:
    return regime_of_plan(to_deployment(parameters, evaluator.model, evaluator.gpus), evaluator.workload)


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
    most, near = (MOST_UNDER_SEEDS, MOST_UNDER_SEEDS) if space.seeds > 1 else (MOST, MOST_NEAR)
    tried = _some_of_front(every[: counts[0]], most)
    near = min(near, MOST_UNDER_SEEDS - len(tried))
    return tried + every[counts[0] :][:near]


def _some_of_front(groups: list[list[Evaluation]], most: int) -> list[list[Evaluation]]:
    """As many groups of the front, in its order: of too many the cheapest half of them, since one of the cheap is
    recommended, and the first others."""

    def cost(position: int) -> tuple[float, int]:
        metrics = groups[position][0]["metrics"]
        value = metrics.get("cost_per_hour", metrics.get("gpus", math.nan))
        return (math.inf if math.isnan(value) else value, position)

    kept = sorted(range(len(groups)), key=cost)[: most // 2] if len(groups) > most else []
    rest = [position for position in range(len(groups)) if position not in kept]
    return [groups[position] for position in sorted(kept + rest[: most - len(kept)])]


def _is_open(space: Space) -> bool:
    arrival = space.workload.get("arrival")
    return not (isinstance(arrival, Mapping) and arrival.get("process") == "closed")


def _meets(space: Space, outcome: Outcome) -> bool:
    """Whether it is feasible, as far as one simulation tells."""
    return not _broken(space, outcome)


def _broken(space: Space, outcome: Outcome) -> set[str]:
    """What keeps an outcome from being feasible, as far as one simulation tells."""
    if outcome.refused is not None or outcome.failed is not None:
        return {"it runs"}
    judged = [c for c in space.constraints if c.metric in outcome.metrics]
    found = {str(c) for c in judged if c.violation(outcome.metrics[c.metric]) > 0}
    values = {o.metric: outcome.metrics.get(o.metric, math.nan) for o in space.objectives}
    missing = [m for m, value in values.items() if m not in CAPACITY_METRICS and math.isnan(value)]
    return found | {f"{metric} has a value" for metric in missing}


def _front(space: Space, outcomes: Mapping[str, Outcome]) -> set[str]:
    plans = [plan for plan, outcome in outcomes.items() if _meets(space, outcome)]
    if not plans:
        return set()
    costs = np.array([[o.cost(outcomes[p].metrics) for o in space.objectives] for p in plans], dtype=np.float64)
    return {plan for plan, on in zip(plans, non_dominated(costs), strict=True) if on}
