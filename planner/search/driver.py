"""The loop of every search: ask, leave out what is known or ruled out, evaluate the rest, keep it, tell."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from planner.evaluate import Evaluator, Outcome
from planner.executors import Executor
from planner.goals import STATIC_METRICS, judge
from planner.interrupts import Interrupts
from planner.parameters import Parameters, canonical, content_id
from planner.search._base import Choice, Method
from planner.search.twins import Twins
from planner.space import DEFAULT_BUDGET, Space
from planner.store import front_ids

Evaluation = dict[str, Any]

SMALL = 100_000  # spaces up to here are enumerated to see how many different deployments they hold


@dataclass(slots=True)
class Progress:
    """How far a search is."""

    done: int = 0  # simulated, taken over from an earlier run, or found not to run
    ruled_out: int = 0  # by their parameters alone
    expected: int | None = None  # simulations in all, where that is known; else the most there can be
    feasible: int = 0
    front: int = 0
    elapsed_s: float = 0.0
    workers: int = 1


class Keeper(Protocol):
    """Where evaluations go as they end."""

    def append(self, evaluations: Sequence[Evaluation]) -> None:
        """Keep them."""
        ...


@dataclass(slots=True)
class Found:
    """What a search found: evaluations in the order asked for, and whether it saw all there is."""

    evaluations: list[Evaluation]
    exact: bool
    interrupted: bool
    method: str


@dataclass(slots=True)
class _Front:
    """The costs on the front so far, kept as plans come in."""

    costs: list[tuple[float, ...]] = field(default_factory=list)

    def add(self, cost: tuple[float, ...]) -> None:
        if any(all(a <= b for a, b in zip(other, cost, strict=True)) and other != cost for other in self.costs):
            return
        kept = [o for o in self.costs if o == cost or not all(a <= b for a, b in zip(cost, o, strict=True))]
        self.costs = [*kept, cost]


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
    ) -> None:
        self._space = space
        self._evaluator = evaluator
        self._executor = executor
        self._keeper = keeper
        self._show = show
        self._interrupts = interrupts or Interrupts()
        self._identity = Identity(space, evaluator)
        # What an earlier run found under other prices, or another SLO to count goodput by, is not known of this one.
        self._known = {p: e for p, e in (known or {}).items() if p == self._identity.of_parameters(e["parameters"])}
        self._by_id: dict[str, Evaluation] = {}  # in the order asked for
        self._twins = twins or Twins()
        self.simulations = 0  # run by this search: neither taken over nor known from a twin
        self._progress = Progress(workers=executor.workers)
        self._cut_short = False  # by the budget, in the middle of what a method asked for
        self._later = 0  # evaluations that are expected after those asked for now
        self._front = _Front()
        self._started = time.monotonic()

    def run(self) -> Found:
        """Search until the method has nothing left to ask, the budget is spent, or an interrupt."""
        method, total = choose_method(self._space, self._identity, self._evaluator)
        self._progress.expected = total
        budget = self._space.budget or (math.inf if method.name == "exhaustive" else DEFAULT_BUDGET)
        interrupted = complete = False
        try:
            while not complete and self._progress.done < budget:
                choices = method.ask()
                complete = not choices
                if choices:
                    self._evaluate(choices, budget, method)
            complete = complete or (not self._cut_short and not method.ask())
        except KeyboardInterrupt:
            interrupted = True
            self._keep_known()
        exact = complete and not interrupted and not any(e.get("failed") for e in self._by_id.values())
        return Found(list(self._by_id.values()), exact, interrupted, method.name)

    def _keep_known(self) -> None:
        """Take over what an earlier run evaluated and this one has not come to, lest a second interrupt lose it."""
        for plan, kept in self._known.items():
            if plan not in self._by_id and not _is_ruled_out(kept):
                self._by_id[plan] = self.judged(plan, kept["parameters"], outcome_of(kept))

    def _evaluate(self, choices: list[Choice], budget: float, method: Method) -> None:
        """Evaluate what is new among `choices` as far as the budget goes, and tell the method about all of them."""
        plans = [self._identity.of(choice) for choice in choices]
        ended: dict[str, Evaluation | None] = {}
        todo: dict[str, Parameters] = {}
        room = budget - self._progress.done
        for plan, parameters in {p: q for p, q in plans if p not in self._by_id}.items():
            evaluation = self._without_simulation(plan, parameters)
            if evaluation is None or not _is_ruled_out(evaluation):
                room -= 1
            if room < 0:
                self._cut_short = True
                break
            ended[plan] = evaluation
            if evaluation is None:
                todo[plan] = parameters
        self._later = max(0, (self._progress.expected or 0) - self._progress.done - len(todo))
        self._collect(ended, todo)
        if all(plan in self._by_id for plan, _ in plans):
            evaluations = [self._by_id[plan] for plan, _ in plans]
            costs = np.array([self._costs(evaluation) for evaluation in evaluations], dtype=np.float64)
            method.tell(choices, costs, np.array([e["violation"] for e in evaluations], dtype=np.float64))

    def _without_simulation(self, plan: str, parameters: Parameters) -> Evaluation | None:
        """The evaluation of a plan that is known from an earlier run, or that its parameters alone rule out."""
        kept = self._known.get(plan)
        if kept is not None and not _is_ruled_out(kept):
            outcome = outcome_of(kept)
            self._twins.learn(parameters, outcome)
            return self.judged(plan, parameters, outcome)
        static = self._evaluator.static_metrics(parameters)
        violation, why_not = judge(self._space.constraints, static)
        if why_not is None:
            return None
        return _evaluation(plan, parameters, static, violation, why_not, simulated=False)

    def judged(self, plan: str, parameters: Parameters, outcome: Outcome) -> Evaluation:
        """The evaluation that `outcome` makes under the space's constraints."""
        if outcome.refused is not None or outcome.failed is not None:
            reason = outcome.refused or f"the simulation failed: {outcome.failed}"
            metrics = outcome.metrics or self._evaluator.static_metrics(parameters)
            evaluation = _evaluation(plan, parameters, metrics, math.inf, reason, simulated=False)
            evaluation["refused" if outcome.refused else "failed"] = True
            return evaluation
        violation, why_not = judge(self._space.constraints, outcome.metrics)
        missing = [o.metric for o in self._space.objectives if math.isnan(outcome.metrics.get(o.metric, math.nan))]
        if missing and why_not is None:
            violation, why_not = math.inf, f"{missing[0]} has no value"
        evaluation = _evaluation(plan, parameters, outcome.metrics, violation, why_not, simulated=True)
        evaluation["saturation"] = outcome.saturation
        return evaluation

    def _collect(self, ended: dict[str, Evaluation | None], todo: dict[str, Parameters]) -> None:
        """Keep every evaluation as soon as it ends, and note them in the order of `ended` whatever that was."""
        try:
            for evaluation in ended.values():
                if evaluation is not None:
                    self._keep(evaluation)
            for plan, outcome in self._outcomes(todo):
                ended[plan] = evaluation = self.judged(plan, todo[plan], outcome)
                self._keep(evaluation)
        finally:
            self._by_id.update((plan, evaluation) for plan, evaluation in ended.items() if evaluation is not None)

    def _outcomes(self, todo: dict[str, Parameters]) -> Iterator[tuple[str, Outcome]]:
        """(id, outcome) of each candidate as it ends; of twins one is simulated first, for it may speak for all."""
        first: dict[str, Parameters] = {}
        others: dict[str, list[str]] = {}  # of the first of twins -> the others
        leader: dict[str, str] = {}
        for plan, parameters in todo.items():
            outcome = self._twins.outcome(parameters)
            if outcome is not None:
                yield plan, outcome
                continue
            head = leader.setdefault(self._twins.key(parameters), plan)
            if head == plan:
                first[plan] = parameters
            else:
                others.setdefault(head, []).append(plan)
        for plan, outcome in self._simulated(first):
            yield plan, outcome
            if self._twins.learn(todo[plan], outcome):
                yield from ((other, outcome) for other in others.pop(plan, []))
        yield from self._simulated({other: todo[other] for rest in others.values() for other in rest})

    def _simulated(self, todo: dict[str, Parameters]) -> Iterator[tuple[str, Outcome]]:
        if not todo:
            return
        ids = list(todo)
        outcomes = self._executor.run(list(todo.values()), len(todo) + self._later)
        while True:
            with self._interrupts.allowed():
                item = next(outcomes, None)
            if item is None:
                return
            self.simulations += 1
            yield ids[item[0]], item[1]

    def _keep(self, evaluation: Evaluation) -> None:
        if evaluation["id"] not in self._known:
            self._keeper.append([evaluation])
        progress = self._progress
        if _is_ruled_out(evaluation):
            progress.ruled_out += 1
        else:
            progress.done += 1
        if evaluation["feasible"]:
            progress.feasible += 1
            self._front.add(self._costs(evaluation))
            progress.front = len(self._front.costs)
        progress.elapsed_s = time.monotonic() - self._started
        progress.workers = self._executor.workers
        self._show(progress)

    def _costs(self, evaluation: Evaluation) -> tuple[float, ...]:
        return tuple(objective.cost(evaluation["metrics"]) for objective in self._space.objectives)


class Identity:
    """Which combinations are the same plan: an id that depends on all that its metrics depend on."""

    def __init__(self, space: Space, evaluator: Evaluator) -> None:
        self._space = space
        self._context = content_id(
            space.model, space.workload, space.seed, evaluator.request_slo, space.prices, space.coefficients
        )

    def of(self, choice: Choice) -> tuple[str, Parameters]:
        """(id, canonical parameters) of a combination."""
        parameters = canonical(self._space.parameters(choice))
        return self.of_parameters(parameters), parameters

    def of_parameters(self, parameters: Parameters) -> str:
        """The id of the plan with these canonical parameters."""
        return content_id(self._context, parameters)


def choose_method(space: Space, identity: Identity, evaluator: Evaluator) -> tuple[Method, int | None]:
    """The method that `space` asks for, and how many simulations it will take at most.

    `auto` is exhaustive where every different deployment that its parameters alone do not rule out fits the budget.
    """
    name, budget = space.method, space.budget or DEFAULT_BUDGET
    enough = None if name == "exhaustive" else budget + 1
    total = count_plans(space, identity, evaluator, enough) if space.size <= SMALL else None
    if name == "auto":
        name = "exhaustive" if total is not None and total <= budget else "nsga2"
    most = budget if total is None else min(total, budget)
    if name == "exhaustive":
        from planner.search.exhaustive import Exhaustive

        return Exhaustive(space.shape), most if space.budget else total or space.size
    if name == "random":
        from planner.search.random_sampling import RandomSampling

        return RandomSampling(space.shape, space.seed), most
    from planner.search.nsga2 import NSGA2

    ordered = [variable.ordered for variable in space.variables]
    population = max(12, min(100, budget // 12))  # a dozen generations or more
    return NSGA2(space.shape, ordered, len(space.objectives), space.seed, population), most


def count_plans(space: Space, identity: Identity, evaluator: Evaluator, enough: int | None = None) -> int:
    """How many different deployments `space` holds that their parameters alone do not rule out; at most `enough`."""
    static = [constraint for constraint in space.constraints if constraint.metric in STATIC_METRICS]
    plans: set[str] = set()
    for choice in space.choices():
        plan, parameters = identity.of(choice)
        if plan not in plans and judge(static, evaluator.static_metrics(parameters))[1] is None:
            plans.add(plan)
            if len(plans) == enough:
                break
    return len(plans)


def front_of(evaluations: Sequence[Evaluation], space: Space) -> list[str]:
    """Ids of the feasible plans that no other dominates, best first objective first."""
    return front_ids(evaluations, [(objective.metric, objective.sense) for objective in space.objectives])


def _is_ruled_out(evaluation: Evaluation) -> bool:
    """Whether a plan's parameters alone said that it breaks a constraint, so that it was never tried."""
    return not (evaluation["simulated"] or evaluation.get("refused") or evaluation.get("failed"))


def outcome_of(evaluation: Evaluation) -> Outcome:
    """The outcome that an evaluation was made of."""
    return Outcome(
        metrics=evaluation["metrics"],
        saturation=evaluation.get("saturation"),
        refused=evaluation["why_not"] if evaluation.get("refused") else None,
    )


def _evaluation(
    plan: str, parameters: Parameters, metrics: dict[str, float], violation: float, why_not: str | None, simulated: bool
) -> Evaluation:
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
