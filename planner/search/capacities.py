"""`max_rate_rps` and `min_gpus` of candidates: several simulations each, in waves over all candidates of a round.

Every probe is a simulation of its own, so that the store keeps it and any executor runs it. What is found depends on
the candidate alone, as long as a plan that breaks its SLO at a rate breaks it at every higher one; what others carry
only says where to begin, and which single probe shows that a candidate is dominated.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from planner.boundary import FARTHEST, Boundary, excess, nearest_step, rate_scale
from planner.capacity import carries, is_burst, offered_rate
from planner.evaluate import Evaluator, Outcome, Trial
from planner.goals import judge, service_levels
from planner.parameters import Parameters
from planner.search.pruning import Bounding, Cost, best_costs, most_promising_first, rounds
from planner.search.sizes import Sizes
from planner.space import Space

FIRST_ROUND, LARGEST_ROUND = 8, 128  # candidates, each worth several simulations
FILL = 0.75  # of seats or KV blocks, at which a plan without a precedent is first tried
NO_RATE = 16.0  # times its own rate, beyond which it is not tried first

Candidate = Parameters | Trial
Probe = Callable[[Mapping[str, Candidate]], Mapping[str, Outcome]]
Simulated = Callable[[dict[str, Parameters]], Iterator[tuple[str, Outcome]]]


@dataclass(slots=True)
class Carried:
    """What became of a candidate: its parameters, the replicas that it takes among them, and its outcome. With a
    `rival` it was not followed up: that plan carries `below_rps`, which this one does not, and is nowhere worse."""

    parameters: Parameters
    outcome: Outcome
    rival: str | None = None
    below_rps: float = math.nan


@dataclass(slots=True)
class Precedents:
    """The steps that candidates were found to reach, for others like them to begin at."""

    _found: dict[str, tuple[Parameters, int]] = field(default_factory=dict)
    _pending: dict[str, tuple[Parameters, int]] = field(default_factory=dict)

    def note(self, plan: str, parameters: Parameters, step: int) -> None:
        """A plan was found to reach that step."""
        self._pending[plan] = parameters, step

    def settle(self) -> None:
        """From now on what was noted counts: between rounds, so that it does not depend on who ends first."""
        self._found.update(self._pending)
        self._pending.clear()

    def nearest(self, parameters: Parameters) -> tuple[Parameters, int] | None:
        """Of the same GPU and tensor parallelism the one that differs in the fewest parameters, replicas aside."""
        best: tuple[int, str] | None = None
        for plan, (other, _) in self._found.items():
            if any(other[name] != parameters[name] for name in ("gpu", "tensor_parallel_size")):
                continue
            differing = sum(other[name] != value for name, value in parameters.items() if name != "replicas")
            best = min(best or (differing, plan), (differing, plan))
        return None if best is None else self._found[best[1]]


class Capacities:
    """Finds what candidates of `space` carry; `probe` simulates what it is given and returns the outcomes."""

    def __init__(self, space: Space, evaluator: Evaluator, probe: Probe, bounds: Bounding | None = None) -> None:
        self._space = space
        self._evaluator = evaluator
        self._probe = probe
        self._bounds = bounds
        self._levels = service_levels(space.constraints)
        self._rates, self._counts = Precedents(), Precedents()
        self.too_short: set[str] = set()  # plans whose rate is as high as the workload can show, and may be higher
        self._asks_rate = space.asks("max_rate_rps")
        self.sizes = Sizes(space, evaluator, bounds) if space.sizes else None
        places = [i for i, o in enumerate(space.objectives) if (o.metric, o.sense) == ("max_rate_rps", "max")]
        self._place = places[0] if places else None

    def note(self, plan: str, parameters: Parameters, metrics: Mapping[str, float]) -> None:
        """A plan has these metrics: a precedent for the rounds to come."""
        if metrics.get("max_rate_rps", math.nan) > 0:
            self._rates.note(plan, parameters, self._step(metrics["max_rate_rps"]))
        if metrics.get("min_gpus", math.nan) > 0:
            self._counts.note(plan, parameters, parameters["replicas"])

    def holds(self, outcome: Outcome) -> bool:
        """Whether an outcome holds the SLO that capacities are found for."""
        return carries(self._levels, outcome)

    def _step(self, rate_rps: float) -> int:
        return nearest_step(rate_rps / offered_rate(self._evaluator.workload))

    def rounds(self, todo: Mapping[str, Parameters], best: Mapping[str, Cost]) -> Iterable[list[str]]:
        """The candidates in small rounds, those first that may carry most for the rest of their costs: what they carry
        settles others with one probe."""
        assert self._bounds is not None
        costs = dict(best)
        if self._place is not None:
            for plan, cost in best.items():
                ceiling = self._bounds.work_ceiling_rps(todo[plan])
                costs[plan] = (*cost[: self._place], -ceiling, *cost[self._place + 1 :])
        return rounds(most_promising_first(costs), FIRST_ROUND, LARGEST_ROUND)

    # -- a round of a search -------------------------------------------------------------------------------------------

    def outcomes(
        self, todo: dict[str, Parameters], simulated: Simulated, front: Mapping[Cost, str] | None
    ) -> Iterator[tuple[str, Carried]]:
        """What becomes of each candidate of `todo`, as it is known; `simulated` simulates them at the search's rate.

        With a `front`, one that cannot be on it is followed up no further than to the rate that shows it.
        """
        self._rates.settle()
        self._counts.settle()
        held: dict[str, tuple[int, float]] = {}  # rates tried because another plan carries them, that hold
        if front and self._bounds is not None and self.sizes is None:
            best = {plan: best_costs(self._space.objectives, self._bounds.of(todo[plan])) for plan in todo}
            outdone = self._outdone(todo, best, front, held)
            yield from outdone.items()
            todo = {plan: parameters for plan, parameters in todo.items() if plan not in outdone}
        good: dict[str, tuple[Candidate, Outcome]] = {}
        settled: dict[str, Parameters] = {}
        for plan, parameters, outcome in self._sized(todo) if self.sizes else _as_they_are(todo, simulated):
            broken = judge(self._space.constraints, outcome.metrics)[1]
            if self._asks_rate and broken is None and carries(self._levels, outcome):
                good[plan], settled[plan] = (parameters, outcome), parameters
            else:
                yield plan, Carried(parameters, outcome)
        if front:
            costs = {p: tuple(o.cost(out.metrics) for o in self._space.objectives) for p, (_, out) in good.items()}
            outdone = self._outdone(settled, costs, front, held)
            yield from outdone.items()
            good = {plan: found for plan, found in good.items() if plan not in outdone}
        for plan, outcome in self.max_rates(good, held=held):
            yield plan, Carried(settled[plan], outcome)

    # -- rates ---------------------------------------------------------------------------------------------------------

    def max_rates(
        self,
        todo: Mapping[str, tuple[Candidate, Outcome]],
        hints: Mapping[str, int] | None = None,
        held: Mapping[str, tuple[int, float]] | None = None,
    ) -> Iterator[tuple[str, Outcome]]:
        """The outcomes with `max_rate_rps`, as they are known, of candidates that hold the SLO in these outcomes.

        `hints` are steps to begin at, `held` steps that hold, and by how much.
        """
        searches: dict[str, Boundary] = {}
        for plan, (candidate, outcome) in todo.items():
            step, beyond = (held or {}).get(plan, (0, excess(self._levels, outcome.metrics)))
            hint, width = step + 1, 1
            if hints is not None:
                hint = hints[plan]
            elif not step:
                hint, width = self._hint(_parameters(candidate), outcome)
            searches[plan] = Boundary(0, FARTHEST, hint, width)
            searches[plan].given(step, beyond)
        while searches:
            wave: dict[str, tuple[Candidate, int]] = {}
            for plan, search in list(searches.items()):
                rate = search.next()
                if rate is None:
                    yield plan, self._with_rate(*todo[plan], searches.pop(plan).low or 0)
                else:
                    wave[plan] = todo[plan][0], rate
            self._learn(searches, wave)

    def _learn(self, searches: Mapping[str, Boundary], wave: Mapping[str, tuple[Candidate, int]]) -> None:
        for plan, outcome in self._probe({plan: _faster(*item) for plan, item in wave.items()}).items():
            holds, burst = carries(self._levels, outcome), is_burst(outcome)
            if holds and burst:
                self.too_short.add(plan)
            elif not holds:
                self.too_short.discard(plan)
            searches[plan].learn(wave[plan][1], holds and not burst, excess(self._levels, outcome.metrics))

    def _with_rate(self, candidate: Candidate, outcome: Outcome, step: int) -> Outcome:
        workload = self._evaluator.requests_of(candidate if isinstance(candidate, Trial) else None)
        rate = offered_rate(workload) * rate_scale(step)
        return dataclasses.replace(outcome, metrics=outcome.metrics | {"max_rate_rps": rate})

    def _hint(self, parameters: Parameters, outcome: Outcome) -> tuple[int, int]:
        """(step to begin at, how far to go on from there): as a plan like it reached, else by how full it is."""
        found = self._rates.nearest(parameters)
        if found is not None:
            other, step = found
            return step + nearest_step(parameters["replicas"] / other["replicas"]), 8
        full = max(outcome.metrics.get(name) or 0.0 for name in ("seats_mean_utilization", "kv_utilization_mean"))
        return nearest_step(min(NO_RATE, max(1.05, FILL / full if full > 0 else NO_RATE))), 24

    def _outdone(
        self,
        todo: Mapping[str, Parameters],
        costs: Mapping[str, Cost],
        front: Mapping[Cost, str],
        held: dict[str, tuple[int, float]],
    ) -> dict[str, Carried]:
        """The candidates that break the SLO at a rate that a plan carries which is nowhere worse than `costs`.

        Where it is somewhere better, they must carry more than it does. Rates that hold are noted in `held`.
        """
        rivals: dict[str, str] = {}
        wave: dict[str, tuple[Candidate, int]] = {}
        for plan, cost in costs.items():
            step, rival = self._floor(cost, front)
            if rival is not None and step > held.get(plan, (0, 0.0))[0]:
                rivals[plan], wave[plan] = rival, (todo[plan], step)
        outdone = {}
        for plan, outcome in self._probe({plan: _faster(*item) for plan, item in wave.items()}).items():
            step = wave[plan][1]
            if outcome.refused is not None or outcome.failed is not None:
                continue  # simulated as it is, it says so itself
            if carries(self._levels, outcome) and not is_burst(outcome):
                held[plan] = step, excess(self._levels, outcome.metrics)
            else:
                rate = offered_rate(self._evaluator.workload) * rate_scale(step)
                static = self._evaluator.static_metrics(todo[plan])
                outdone[plan] = Carried(todo[plan], Outcome(static), rivals[plan], rate)
        return outdone

    def _floor(self, cost: Cost, front: Mapping[Cost, str]) -> tuple[int, str | None]:
        """(the step that a candidate must reach lest a plan of the front dominate it, that plan)."""
        most: tuple[int, str | None] = 0, None
        place = self._place
        if place is None:
            return most
        others = [i for i in range(len(cost)) if i != place]
        for rival, plan in sorted(front.items(), key=lambda item: item[1]):
            if all(rival[i] <= cost[i] for i in others):
                step = self._step(-rival[place]) + any(rival[i] < cost[i] for i in others)
                most = max(most, (step, plan), key=lambda item: item[0])
        return most

    # -- sizes ---------------------------------------------------------------------------------------------------------

    def _sized(self, todo: Mapping[str, Parameters]) -> Iterator[tuple[str, Parameters, Outcome]]:
        """(plan, its parameters, its outcome) with the fewest replicas that hold, `min_gpus` among the metrics; with
        the most that are allowed where none do."""
        assert self.sizes is not None
        options, searches = {}, {}
        known: dict[str, dict[int, Outcome]] = {plan: {} for plan in todo}
        for plan, parameters in todo.items():
            # A step is so many options fewer than the most: the fewer replicas, the further.
            options[plan] = (self.sizes.possible(parameters) or self.sizes.allowed(parameters)[-1:])[::-1]
            last = len(options[plan]) - 1
            searches[plan] = Boundary(0, last, self._first_size(parameters, options[plan]), 1)
        while searches:
            wave: dict[str, tuple[Parameters, int]] = {}
            for plan, search in list(searches.items()):
                step = search.next()
                if step is not None:
                    wave[plan] = todo[plan] | {"replicas": options[plan][step]}, step
                    continue
                found = searches.pop(plan).low
                outcome = known[plan][found or 0]
                if found is not None:
                    size = {"min_gpus": outcome.metrics["gpus"]}
                    outcome = dataclasses.replace(outcome, metrics=outcome.metrics | size)
                yield plan, todo[plan] | {"replicas": options[plan][found or 0]}, outcome
            for plan, outcome in self._probe({plan: parameters for plan, (parameters, _) in wave.items()}).items():
                step = wave[plan][1]
                known[plan][step] = outcome
                searches[plan].learn(step, carries(self._levels, outcome), excess(self._levels, outcome.metrics))

    def _first_size(self, parameters: Parameters, options: list[int]) -> int:
        """The step to begin at: as many replicas as a plan like it takes, else the fewest that bounds allow."""
        found = self._counts.nearest(parameters)
        if found is None:
            return len(options) - 1
        return min(range(len(options)), key=lambda step: (abs(options[step] - found[1]), step))


def _as_they_are(todo: dict[str, Parameters], simulated: Simulated) -> Iterator[tuple[str, Parameters, Outcome]]:
    for plan, outcome in simulated(todo):
        yield plan, todo[plan], outcome


def _parameters(candidate: Candidate) -> Parameters:
    return candidate.parameters if isinstance(candidate, Trial) else candidate


def _faster(candidate: Candidate, step: int) -> Candidate:
    """The same candidate at another rate; as it is at step 0, so that it has one name in every search."""
    if step == 0:
        return candidate
    trial = candidate if isinstance(candidate, Trial) else Trial(candidate)
    return dataclasses.replace(trial, rate_scale=trial.rate_scale * rate_scale(step))
