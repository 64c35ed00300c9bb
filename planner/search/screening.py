"""Screening: everything on a short window, the better part on a longer one, and in full only what may be on the front.

All windows hold the same requests for every candidate (common random numbers), so that two are compared request by
request: a difference that holds over blocks of consecutive requests is believed, a smaller one is not. Only a plan that
was simulated in full and is feasible can speak against another: a short window flatters the overloaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from planner.evaluate import Outcome, Trial
from planner.goals import Constraint, Objective, judge
from planner.parameters import Parameters
from planner.search.pareto import non_dominated
from planner.search.pruning import Cost

SHORT, LONG = 0.05, 0.15  # windows, as shares of the requests
LEAST_REQUESTS = 60  # in a window
PROMOTED = 0.1  # of the candidates, from the short window to the long one
BUDGET = 0.14  # of the requests that simulating everything in full would take
ROUND = 16  # full simulations between two looks at what is left
NEAR_SHARE = 0.75  # of a round, for plans that are like those on the front so far
BEHIND = "behind"  # how the reason begins of what the short window did not promote
SURE = 2.5  # standard errors of a mean difference, above which it is believed

Array = npt.NDArray[np.float64]
Simulate = Callable[[Mapping[str, Trial]], Mapping[str, Outcome]]


@dataclass(slots=True)
class Screened:
    """How a screening went: plans by why they were not simulated in full, and the requests it took."""

    reasons: dict[str, str] = field(default_factory=dict)
    requests: int = 0


class Screening:
    """Chooses which of `candidates` to simulate in full, on windows of a workload of `requests` requests."""

    def __init__(
        self,
        candidates: Mapping[str, Parameters],
        requests: int,
        objectives: Sequence[Objective],
        constraints: Sequence[Constraint],
        simulate: Simulate,
    ) -> None:
        self._candidates = candidates
        self._requests = requests
        self._objectives = objectives
        self._constraints = constraints
        self._simulate = simulate
        self._windows: dict[str, Outcome] = {}  # of each plan the longest so far
        self._budget = BUDGET * requests * len(candidates)
        self._proven: dict[str, Cost] = {}  # simulated in full and feasible
        self._tried: set[str] = set()
        self.result = Screened()

    def windows(self) -> None:
        """Simulate the two windows; afterwards `next_round` says what to simulate in full."""
        self._window(list(self._candidates), SHORT)
        ranked = self._ranked(list(self._candidates))
        room = max(1, round(PROMOTED * len(ranked)))
        for plan in ranked[room:]:
            self.result.reasons[plan] = f"{BEHIND} {room} others in the first {self._length(SHORT)} requests"
        self._window(ranked[:room], LONG)

    def _length(self, share: float) -> int:
        return min(self._requests, max(LEAST_REQUESTS, round(share * self._requests)))

    def _window(self, plans: Sequence[str], share: float) -> None:
        length = self._length(share)
        trials = {plan: Trial(self._candidates[plan], requests=length) for plan in plans}
        self._windows.update(self._simulate(trials))
        self.result.requests += length * len(plans)

    def _cost(self, outcome: Outcome) -> Cost:
        return tuple(objective.cost(outcome.metrics) for objective in self._objectives)

    def _ranked(self, plans: Sequence[str]) -> list[str]:
        """By layers of non-dominated costs, the layers' sparse ends first; what breaks a constraint comes last, by how
        much; of plans with one cost, the first alone stays in its layer."""
        violations = {p: judge(self._constraints, self._windows[p].metrics)[0] for p in plans if self._runs(p)}
        good = [plan for plan, violation in violations.items() if violation == 0]
        bad = sorted((plan for plan, violation in violations.items() if violation > 0), key=violations.__getitem__)
        ranked: list[str] = []
        seen: set[Cost] = set()
        firsts: list[str] = []
        copies: list[str] = []
        for plan in good:
            cost = self._cost(self._windows[plan])
            (copies if cost in seen else firsts).append(plan)
            seen.add(cost)
        while firsts:
            costs = np.array([self._cost(self._windows[plan]) for plan in firsts])
            keep = non_dominated(costs)
            layer = [plan for plan, on in zip(firsts, keep, strict=True) if on]
            ranked += [layer[i] for i in _sparse_first(costs[keep])]
            firsts = [plan for plan, on in zip(firsts, keep, strict=True) if not on]
        return [*ranked, *copies, *bad]

    def _runs(self, plan: str) -> bool:
        outcome = self._windows[plan]
        return outcome.refused is None and outcome.failed is None

    def next_round(self) -> list[str]:
        """Plans to simulate in full next; none when nothing is left that may be on the front, or the budget is."""
        left = [p for p in self._candidates if p not in self.result.reasons and p not in self._tried]
        for plan in left:
            if not self._runs(plan):
                self._tried.add(plan)  # its full simulation says the same, at once
        refused = [plan for plan in left if not self._runs(plan)]
        left = [plan for plan in left if self._runs(plan)]
        for plan, reason in self._beaten(left).items():
            self.result.reasons[plan] = reason
        left = [plan for plan in left if plan not in self.result.reasons]
        affordable = int((self._budget - self.result.requests) / self._requests)
        room = max(0, min(ROUND, affordable))
        near = self._neighbours()[: round(NEAR_SHARE * room)]
        for plan in near:
            self.result.reasons.pop(plan, None)
        ranked = [plan for plan in self._ranked(left) if plan not in near]
        chosen = near + ranked[: room - len(near)]
        if affordable <= 0:
            for plan in ranked:
                self.result.reasons[plan] = "the budget of the screening was spent on more promising plans"
        self._tried.update(chosen)
        self.result.requests += self._requests * len(chosen)
        return refused + chosen

    def _neighbours(self) -> list[str]:
        """Candidates that differ from a plan of the front so far in one parameter, as their windows rank them: tails
        of a distribution are noisy in a window, and good plans are alike."""
        front = self._front()
        found = []
        for plan in self._candidates:
            reason = self.result.reasons.get(plan, BEHIND)
            if plan not in self._tried and reason.startswith(BEHIND) and self._runs(plan):
                mine = self._candidates[plan]
                if any(sum(mine[name] != other[name] for name in mine) == 1 for other in front):
                    found.append(plan)
        return self._ranked(found)

    def _front(self) -> list[Parameters]:
        """Of each cost on the front of the proven plans, one plan."""
        if not self._proven:
            return []
        one = {cost: plan for plan, cost in sorted(self._proven.items(), reverse=True)}
        costs = np.array(list(one))
        return [self._candidates[plan] for plan, on in zip(one.values(), non_dominated(costs), strict=True) if on]

    def learn(self, plan: str, outcome: Outcome) -> None:
        """A plan was simulated in full."""
        if outcome.refused is None and outcome.failed is None and judge(self._constraints, outcome.metrics)[1] is None:
            self._proven[plan] = self._cost(outcome)

    # -- paired comparison ---------------------------------------------------------------------------------------------

    def _beaten(self, plans: Sequence[str]) -> dict[str, str]:
        """Of `plans`, those that a proven plan beats for sure in every objective, with the reason."""
        found: dict[str, str] = {}
        if not plans or not self._proven:
            return found
        ours = [self._samples(self._windows[plan]) for plan in plans]
        costs = np.array(list(self._proven.values()))
        front = [plan for plan, on in zip(self._proven, non_dominated(costs), strict=True) if on]
        for rival in sorted(front):
            theirs = self._samples(self._windows[rival])
            for plan, mine in zip(plans, ours, strict=True):
                if plan not in found and plan != rival and _beats(theirs, mine):
                    found[plan] = f"{rival} beats it on the same {self._length(LONG)} requests"
        return found

    def _samples(self, outcome: Outcome) -> list[Array]:
        """Of each objective the costs over blocks of requests, or the one value it has over the whole window."""
        samples = []
        for objective, cost in zip(self._objectives, self._cost(outcome), strict=True):
            blocks = outcome.blocks.get(objective.metric)
            sign = -1.0 if objective.sense == "max" else 1.0
            samples.append(np.array([cost]) if blocks is None else sign * np.array(blocks))
        return samples


def _beats(better: Sequence[Array], worse: Sequence[Array]) -> bool:
    """Whether `better` is for sure nowhere worse; where there is only one value each, it is taken as it is."""
    somewhere = False
    for b, w in zip(better, worse, strict=True):
        difference = w - b
        difference = difference[~np.isnan(difference)]
        if not len(difference):
            return False
        mean = float(difference.mean())
        error = float(difference.std(ddof=1)) / math.sqrt(len(difference)) if len(difference) > 1 else 0.0
        if mean < SURE * error or mean < 0:
            return False
        somewhere = somewhere or mean > 0
    return somewhere


def _sparse_first(costs: Array) -> list[int]:
    """Positions by crowding distance (Deb et al. 2002), the most isolated first."""
    distance = np.zeros(len(costs))
    for column in costs.T:
        order = np.argsort(column, kind="stable")
        span = column[order[-1]] - column[order[0]]
        distance[order[[0, -1]]] = np.inf
        if span > 0 and len(order) > 2 and np.isfinite(span):
            distance[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / span
    return [int(i) for i in np.argsort(-distance, kind="stable")]
