"""The loop of every search: ask, leave out what is known or ruled out, evaluate the rest, keep it, tell."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.early_stop import hopeless
from planner.evaluate import Evaluator, Outcome, Trial
from planner.executors import Executor
from planner.goals import CAPACITY_METRICS, judge
from planner.interrupts import Interrupts
from planner.parameters import Parameters
from planner.search._base import Choice, Method
from planner.search.capacities import Capacities, Carried
from planner.search.choosing import Identity, choose_method
from planner.search.evaluations import evaluation_of, is_ruled_out, judged, outcome_of, unjudged
from planner.search.pruning import (
    Bounding,
    Cost,
    best_costs,
    broken_by_bounds,
    dominates,
    most_promising_first,
    rounds,
)
from planner.search.screening import Screening
from planner.search.simulations import Simulations
from planner.search.surroundings import Evaluation, Found, Keeper, Progress, Reuse
from planner.search.twins import Twins
from planner.space import DEFAULT_BUDGET, MAX_EXHAUSTIVE, Space

RULED_OUT_EACH = 10  # plans that may be ruled out for each that the budget lets simulate, lest a search never end

MOST_NEAREST = 16  # plans that are simulated to show how near they come, where nothing is feasible


@dataclass(slots=True)
class _Front:
    """The front so far, kept as plans come in: of each cost on it, the first plan in order of id."""

    plans: dict[Cost, str] = field(default_factory=dict)

    def add(self, cost: Cost, plan: str) -> None:
        if cost in self.plans:
            self.plans[cost] = min(plan, self.plans[cost])
        elif not any(dominates(other, cost) for other in self.plans):
            for other in [other for other in self.plans if dominates(cost, other)]:
                del self.plans[other]
            self.plans[cost] = plan


class Search:
    """One search over `space`. Its evaluations depend on the space and its seed, never on who evaluates."""

    def __init__(
        self,
        space: Space,
        evaluator: Evaluator,
        executor: Executor,
        keeper: Keeper,
        known: dict[str, Evaluation] | None = None,
        show: Callable[[Progress], None] = lambda progress: None,
        interrupts: Interrupts | None = None,
        twins: Twins | None = None,
        bounds: Bounding | None = None,
        reuse: Reuse | None = None,
    ) -> None:
        self._space = space
        self._evaluator = evaluator
        self._keeper = keeper
        self._show = show
        self._interrupts = interrupts or Interrupts()
        self.simulations = Simulations(evaluator, executor, self._interrupts, twins or Twins(), reuse)
        self._identity = Identity(space, evaluator)
        # What an earlier run found under other prices, or another SLO to count goodput by, is not known of this one.
        self._known = {p: e for p, e in (known or {}).items() if p == self._identity.of_parameters(e["parameters"])}
        self._by_id: dict[str, Evaluation] = {}  # in the order asked for
        asks_capacity = any(map(space.asks, CAPACITY_METRICS))
        self.capacities = Capacities(space, evaluator, self.simulations.probe, bounds) if asks_capacity else None
        sized = self.capacities is not None and self.capacities.sizes is not None and bounds is not None
        self._bounds: Bounding | None = self.capacities.sizes if self.capacities is not None and sized else bounds
        self._dominance = bounds is not None and space.method != "exhaustive"  # who asks for all gets every verdict
        self._progress = Progress(workers=executor.workers)
        self._candidates: int | None = None  # to simulate at most, were there no budget
        self._budget = math.inf
        self._cut_short = False  # by the budget, in the middle of what a method asked for
        self._screens = False
        self._nearest = False  # plans are simulated that are known to miss the constraints
        self._front = _Front()
        self._round_front: dict[Cost, str] = {}  # as it was before the round
        self._started = time.monotonic()

    def run(self) -> Found:
        """Search until the method has nothing left to ask, the budget is spent, or an interrupt."""
        method, self._candidates = choose_method(self._space, self._identity, self._evaluator)
        self._screens = method.name == "screening"
        # A method that learns by how much a plan misses its constraints must be told, and what finds a capacity.
        learns = method.learns_from_violations or self.capacities is not None
        self.simulations.may_stop = self._space.early_stop and not learns
        limited = method.name not in ("exhaustive", "screening")
        self._budget = budget = self._space.budget or (DEFAULT_BUDGET if limited else math.inf)
        self._progress.expected = self._expected()
        whole = method.name == "exhaustive" and self._space.size <= MAX_EXHAUSTIVE
        most_ruled_out = math.inf if whole else RULED_OUT_EACH * budget
        interrupted = complete = False
        try:
            while not complete and self._progress.done < budget and self._progress.ruled_out < most_ruled_out:
                with self._interrupts.allowed():  # also where nothing is ever simulated
                    choices = method.ask()
                complete = not choices
                if choices:
                    self._evaluate(choices, budget, method)
            complete = complete or (not self._cut_short and not method.ask())
            if not self._progress.feasible:
                self._simulate_nearest()
        except KeyboardInterrupt:
            interrupted = True
            self._keep_known()
        unsure = any(e.get("failed") or e.get("screened") for e in self._by_id.values())
        exact = complete and not interrupted and not unsure
        return Found(list(self._by_id.values()), exact, interrupted, method.name)

    def _expected(self) -> int | None:
        """How many simulations there will be at most, where that is known."""
        if self._candidates is None:
            return None
        # What is simulated where nothing is feasible comes on top of the budget.
        return max(self._progress.done, int(min(self._candidates, self._budget)))

    def _keep_known(self) -> None:
        """Take over what an earlier run evaluated and this one has not come to, lest a second interrupt lose it."""
        self._nearest = True
        for plan, kept in self._known.items():
            evaluation = None if plan in self._by_id else self._known_evaluation(plan, kept["parameters"])
            if evaluation is not None:
                self._by_id[plan] = evaluation

    def _evaluate(self, choices: list[Choice], budget: float, method: Method) -> None:
        """Evaluate what is new among `choices` as far as the budget goes, and tell the method about all of them."""
        plans = [self._identity.of(choice) for choice in choices]
        ended: dict[str, Evaluation | None] = {}
        todo: dict[str, Parameters] = {}
        room = budget - self._progress.done
        for plan, parameters in {p: q for p, q in plans if p not in self._by_id}.items():
            evaluation = self._without_simulation(plan, parameters)
            if evaluation is None or not is_ruled_out(evaluation):
                room -= 1
            if room < 0:
                self._cut_short = True
                break
            ended[plan] = evaluation
            if evaluation is None:
                todo[plan] = parameters
        self.simulations.later = max(0, (self._progress.expected or 0) - self._progress.done - len(todo))
        self._collect(ended, todo)
        if all(plan in self._by_id for plan, _ in plans):
            evaluations = [self._by_id[plan] for plan, _ in plans]
            costs = np.array([self._told(evaluation) for evaluation in evaluations], dtype=np.float64)
            method.tell(choices, costs, np.array([e["violation"] for e in evaluations], dtype=np.float64))

    def evaluations_of(self, plans: Sequence[Parameters], known: Sequence[Evaluation] = ()) -> list[Evaluation]:
        """The evaluations of these plans, each simulated unless its parameters rule it out or it is `known`."""
        forms = [self._identity.of_given(parameters) for parameters in plans]
        self._known = {self._identity.of_parameters(e["parameters"]): e for e in known}
        ended = {plan: self._without_simulation(plan, parameters) for plan, parameters in forms}
        self._collect(ended, {plan: parameters for plan, parameters in forms if ended[plan] is None})
        return [self._by_id[plan] for plan, _ in forms]

    def trials(self, trials: Mapping[str, Trial]) -> dict[str, Outcome]:
        """The outcomes of trials, by plan id."""
        return self.simulations.trials(trials)

    def _simulate_nearest(self) -> None:
        """Where nothing is feasible: simulate of each size the plan whose bounds miss least, to show how near it is."""
        nearest: dict[float, Evaluation] = {}
        self.simulations.may_stop, self._nearest = False, True
        for evaluation in self._by_id.values():
            if evaluation.get("bound") == "constraint" or evaluation.get("stopped_early"):
                size = evaluation["metrics"]["gpus"]
                if evaluation["violation"] < nearest.get(size, evaluation)["violation"] or size not in nearest:
                    nearest[size] = evaluation
        chosen = sorted(nearest.values(), key=lambda evaluation: float(evaluation["violation"]))[:MOST_NEAREST]
        for evaluation in chosen:
            if evaluation.get("stopped_early"):
                self._progress.done -= 1
                self._progress.stopped_early -= 1
            else:
                self._progress.ruled_out -= 1
                if self._candidates is not None:
                    self._candidates += 1
        ended = {e["id"]: self._known_evaluation(e["id"], e["parameters"]) for e in chosen}
        self._collect(ended, {e["id"]: e["parameters"] for e in chosen if ended[e["id"]] is None})

    def _without_simulation(self, plan: str, parameters: Parameters) -> Evaluation | None:
        """The evaluation of a plan that its parameters or its bounds rule out, or that is known from an earlier run."""
        static = self._evaluator.static_metrics(parameters)
        violation, why_not = judge(self._space.constraints, static)
        if why_not is not None:
            return evaluation_of(plan, parameters, static, violation, why_not, simulated=False)
        if self._bounds is not None:
            violation, why_not = broken_by_bounds(self._space.constraints, self._bounds.of(parameters))
            if why_not is not None:
                evaluation = evaluation_of(plan, parameters, static, violation, why_not, simulated=False)
                return evaluation | {"bound": "constraint"}
        return None if self._dominance else self._known_evaluation(plan, parameters)

    def _known_evaluation(self, plan: str, parameters: Parameters) -> Evaluation | None:
        kept = self._known.get(plan)
        # One that was only looked at since nothing is feasible is hopeless: a fresh search would end it early first.
        if kept is None or is_ruled_out(kept) or (kept.get("nearest") and not self._nearest):
            return None
        outcome = outcome_of(kept)
        if outcome.stopped and not (
            self.simulations.may_stop and hopeless(self._space.constraints, outcome.stopped.bounds)
        ):
            return None
        if self.capacities is None:  # twins may carry different loads
            self.simulations.twins.learn(parameters, outcome)
        elif kept.get("may_carry_more"):
            self.capacities.too_short.add(plan)
        return self._judged(plan, kept["parameters"], outcome)

    def _judged(self, plan: str, parameters: Parameters, outcome: Outcome) -> Evaluation:
        evaluation = judged(self._space, self._evaluator, plan, parameters, outcome)
        if evaluation["simulated"]:
            if self.capacities is not None and plan in self.capacities.too_short:
                evaluation["may_carry_more"] = True
            if self._nearest:
                evaluation["nearest"] = True
        return evaluation

    def _collect(self, ended: dict[str, Evaluation | None], todo: dict[str, Parameters]) -> None:
        """Keep every evaluation as soon as it ends, and note them in the order of `ended` whatever that was."""
        try:
            for evaluation in ended.values():
                self._keep(evaluation)
            for some in self._rounds(todo, ended):
                for plan, found in self._carried(some):
                    ended[plan] = evaluation = self._evaluated(plan, found)
                    self._keep(evaluation)
        finally:
            self._by_id.update((plan, evaluation) for plan, evaluation in ended.items() if evaluation is not None)

    def _carried(self, todo: dict[str, Parameters]) -> Iterator[tuple[str, Carried]]:
        if self.capacities is None:
            return ((plan, Carried(todo[plan], outcome)) for plan, outcome in self.simulations.outcomes(todo))
        return self.capacities.outcomes(todo, self.simulations.outcomes, self._round_front if self._dominance else None)

    def _evaluated(self, plan: str, found: Carried) -> Evaluation:
        if found.rival is None:
            return self._judged(plan, found.parameters, found.outcome)
        why_not = f"dominated by {found.rival}: it does not carry {found.below_rps:.4g} requests/s"
        return unjudged(plan, found.parameters, found.outcome.metrics, why_not) | {"bound": "dominated"}

    def _rounds(
        self, todo: dict[str, Parameters], ended: dict[str, Evaluation | None]
    ) -> Iterator[dict[str, Parameters]]:
        """What of `todo` to simulate next: all at once, or, where dominated plans need not be simulated, in rounds.

        Plans that those simulated by then dominate even at their bounds are noted in `ended`, and left out.
        """
        if self._screens:
            yield from self._screened_rounds(todo, ended)
            return
        if not self._dominance or self._bounds is None:
            yield todo
            return
        best = {plan: best_costs(self._space.objectives, self._bounds.of(todo[plan])) for plan in todo}
        ordered = rounds(most_promising_first(best)) if self.capacities is None else self.capacities.rounds(todo, best)
        for plans in ordered:
            some: dict[str, Parameters] = {}
            # What one round knows already must not rule out plans of the same round: a resumed search knows more.
            self._round_front = dict(self._front.plans)
            for plan in plans:
                evaluation = self._dominated(plan, todo[plan], best[plan])
                evaluation = evaluation or self._known_evaluation(plan, todo[plan])
                if evaluation is None:
                    some[plan] = todo[plan]
                else:
                    ended[plan] = evaluation
            for plan in plans:
                if plan not in some:
                    self._keep(ended[plan])
            yield some

    def _screened_rounds(
        self, todo: dict[str, Parameters], ended: dict[str, Evaluation | None]
    ) -> Iterator[dict[str, Parameters]]:
        """What of `todo` to simulate in full, in rounds; what is not is noted in `ended` with the reason.

        Of candidates that may turn out to be twins, the first stands for all.
        """
        groups: dict[str, list[str]] = {}
        for plan, parameters in todo.items():
            groups.setdefault(self.simulations.twins.key(parameters), []).append(plan)
        twins = {plans[0]: plans for plans in groups.values()}
        requests = len(self._evaluator.workload)
        goals = self._space.objectives, self._space.constraints
        screening = Screening({plan: todo[plan] for plan in twins}, requests, *goals, self.simulations.trials)
        screening.windows()
        while chosen := screening.next_round():
            plans = [plan for first in chosen for plan in twins[first]]
            for plan in plans:
                ended[plan] = self._known_evaluation(plan, todo[plan])
                self._keep(ended[plan])
            yield {plan: todo[plan] for plan in plans if ended[plan] is None}
            for first in chosen:
                if (evaluation := ended[first]) is not None and evaluation["simulated"]:
                    screening.learn(first, outcome_of(evaluation))
        for first, reason in screening.result.reasons.items():
            for plan in twins[first]:
                static = self._evaluator.static_metrics(todo[plan])
                ended[plan] = unjudged(plan, todo[plan], static, f"screened out: {reason}") | {"screened": True}
                self._keep(ended[plan])

    def _dominated(self, plan: str, parameters: Parameters, best: Cost) -> Evaluation | None:
        """The evaluation of a plan that one on the front so far dominates whatever its simulation would say."""
        better = [other for cost, other in self._front.plans.items() if dominates(cost, best)]
        if not better:
            return None
        static = self._evaluator.static_metrics(parameters)
        why_not = f"dominated by {min(better)} even at its bounds"
        return unjudged(plan, parameters, static, why_not) | {"bound": "dominated"}

    def _keep(self, evaluation: Evaluation | None) -> None:
        if evaluation is None:
            return
        if evaluation["id"] not in self._known:
            self._keeper.append([evaluation])
        if self.capacities is not None:
            self.capacities.note(evaluation["id"], evaluation["parameters"], evaluation["metrics"])
        progress = self._progress
        if is_ruled_out(evaluation):
            progress.ruled_out += 1
            if "bound" in evaluation and self._candidates is not None:
                self._candidates -= 1  # it was counted among those to simulate
        else:
            progress.done += 1
            progress.stopped_early += bool(evaluation.get("stopped_early"))
            progress.refused += bool(evaluation.get("refused"))
        if evaluation["feasible"]:
            progress.feasible += 1
            self._front.add(self._costs(evaluation), evaluation["id"])
            progress.front = len(self._front.plans)
        progress.expected = self._expected()
        progress.elapsed_s = time.monotonic() - self._started
        progress.workers = self.simulations.workers
        self._show(progress)

    def _told(self, evaluation: Evaluation) -> Cost:
        """What a method hears of a plan's costs: of one that was not simulated, what its bounds say."""
        if "screened" in evaluation or "stopped_early" in evaluation:
            return tuple(math.inf for _ in self._space.objectives)
        if "bound" not in evaluation or self._bounds is None:
            return self._costs(evaluation)
        best = best_costs(self._space.objectives, self._bounds.of(evaluation["parameters"]))
        return tuple(cost if math.isfinite(cost) else math.inf for cost in best)

    def _costs(self, evaluation: Evaluation) -> tuple[float, ...]:
        return tuple(objective.cost(evaluation["metrics"]) for objective in self._space.objectives)
