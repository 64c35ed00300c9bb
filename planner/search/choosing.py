"""Which combinations are one plan, how many plans a space holds, and which method suits them."""

from __future__ import annotations

from planner.evaluate import Evaluator
from planner.goals import CAPACITY_METRICS, STATIC_METRICS, judge
from planner.parameters import Parameters, canonical, content_id
from planner.search._base import Choice, Method
from planner.search.exhaustive import Exhaustive, Screened
from planner.search.screening import BUDGET as SCREENING_BUDGET
from planner.search.screening import LEAST_REQUESTS, SHORT
from planner.space import DEFAULT_BUDGET, Space
from sim.errors import InputError

SMALL = 100_000  # spaces up to here are enumerated to see how many different deployments they hold


class Identity:
    """Which combinations are the same plan: an id that depends on all that its metrics depend on."""

    def __init__(self, space: Space, evaluator: Evaluator) -> None:
        self._space = space
        self._sizes = space.sizes
        self._context = content_id(
            space.model, space.workload, space.seed, evaluator.request_slo, space.prices, space.coefficients
        )

    def of(self, choice: Choice) -> tuple[str, Parameters]:
        """(id, canonical parameters) of a combination."""
        return self.of_given(self._space.parameters(choice))

    def of_given(self, parameters: Parameters) -> tuple[str, Parameters]:
        """(id, canonical parameters) of a plan."""
        # with the most replicas, lest a single one make light of its routing
        given = parameters | {"replicas": self._sizes[-1]} if self._sizes else parameters
        parameters = self._one_form(canonical(given))
        return self.of_parameters(parameters), parameters

    def of_parameters(self, parameters: Parameters) -> str:
        """The id of the plan with these canonical parameters."""
        return content_id(self._context, self._one_form(parameters))

    def _one_form(self, parameters: Parameters) -> Parameters:
        """A plan that takes the fewest replicas that hold is one plan, however many that are."""
        return parameters | {"replicas": self._sizes[0]} if self._sizes else parameters


def choose_method(space: Space, identity: Identity, evaluator: Evaluator) -> tuple[Method, int | None]:
    """The method that `space` asks for, and how many simulations it would take at most, were there no budget.

    `auto` is exhaustive where every different deployment that its parameters alone do not rule out fits the budget,
    screens them where that fits it, and is NSGA-II beyond.
    """
    name, budget = space.method, space.budget or DEFAULT_BUDGET
    enough = None if name in ("exhaustive", "screening") else int(budget / SCREENING_BUDGET) + 1
    total = count_plans(space, identity, evaluator, enough) if space.size <= SMALL else None
    if name == "auto":
        name = _automatic(total, budget, evaluator, any(map(space.asks, CAPACITY_METRICS)))
    if name == "screening" and total is None:
        raise InputError("search.method", f"screening takes at most {SMALL:,} combinations, this space has more")
    most = space.size if total is None or total == enough else total
    if name == "exhaustive":
        return Exhaustive(space.shape), most
    if name == "screening":
        return Screened(space.shape), None
    if name == "random":
        from planner.search.random_sampling import RandomSampling

        return RandomSampling(space.shape, space.seed), most
    from planner.search.nsga2 import NSGA2
    from planner.search.nsga3 import NSGA3

    ordered = [variable.ordered for variable in space.variables]
    population = max(12, min(100, budget // 12))  # a dozen generations or more
    evolving = NSGA3 if name == "nsga3" else NSGA2
    return evolving(space.shape, ordered, len(space.objectives), space.seed, population), most


def _automatic(total: int | None, budget: int, evaluator: Evaluator, asks_capacity: bool) -> str:
    if total is not None and total <= budget:
        return "exhaustive"
    if total is None or total * SCREENING_BUDGET > budget or asks_capacity:
        return "nsga2"
    return "screening" if len(evaluator.workload) * SHORT >= LEAST_REQUESTS else "nsga2"


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
