"""How much a plan carries: the highest arrival rate that keeps its SLO, and the fewest replicas that keep it at a rate.

Every probe serves the same requests (common random numbers), arriving faster or slower, and is cut short once its first
requests already miss the SLO beyond doubt. What is reported is verified on both sides: the rate itself in a full
simulation that keeps the SLO, and a rate above it, at most `TOLERANCE` away, in one that does not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.bounds import Bounds
from planner.evaluate import Evaluator, Outcome, Trial, load_coefficient_set, load_named_model, priced_gpus
from planner.goals import judge, request_slo
from planner.parameters import Parameters
from planner.plan import Plan, make_workload
from planner.search.pruning import broken_by_bounds
from sim.errors import InputError
from sim.workload import Workload

TOLERANCE = 0.01  # between a rate that holds and one that does not, as a share
FIRST_SHARE = 0.2  # of the requests, that an early look takes
HOPELESS = 1.0  # a sum of relative violations in the early look, from which the full run is spared
MOST_DOUBLINGS = 24
LOWEST = 1 / 4096  # of the plan's own rate
LONGEST_S = 2e6  # of a simulated run
MOST_REPLICAS = 4096

Judge = Callable[[Outcome], bool]


@dataclass(frozen=True, slots=True)
class Probe:
    """One simulation: at what rate, whether the SLO held, and what was seen."""

    rate_rps: float
    holds: bool
    outcome: Outcome | None  # None: ruled out by its bounds
    cut_short: bool = False  # judged by its first requests


@dataclass(frozen=True, slots=True)
class Capacity:
    """What was found. `max_rate_rps` holds, `broken_at_rps` does not; both were simulated in full unless None.

    `max_rate_rps` is 0 where not even the lowest rate tried holds; `broken_at_rps` is None where none was found.
    """

    max_rate_rps: float
    broken_at_rps: float | None
    limited_by: str
    probes: tuple[Probe, ...]


class Prober:
    """Simulates one plan at different rates and sizes."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        gpu = plan.deployment["gpu"]
        workload = make_workload(plan.workload, plan.folder, plan.seed)
        self.base_rps = offered_rate(workload)
        self.requests = len(workload)
        self._evaluator = Evaluator(
            model=load_named_model(plan.model, plan.folder),
            gpus=priced_gpus((gpu,), plan.prices),
            workload=workload,
            seed=plan.seed,
            request_slo=request_slo(plan.constraints),
            coefficients=load_coefficient_set(plan.coefficients, plan.folder),
            workload_section=plan.workload,
            folder=plan.folder,
        )

    def at(self, rate_rps: float, parameters: Parameters | None = None, early: bool = True) -> Probe:
        """The plan, or one with other `parameters`, at a rate; `early`: bounds or its first requests may judge it."""
        parameters = parameters or self.plan.deployment
        scale = rate_rps / self.base_rps
        if early:
            if self._ruled_out(parameters, scale):
                return Probe(rate_rps, False, None, cut_short=True)
            first = round(FIRST_SHARE * len(self._evaluator.workload))
            if first >= 100:
                outcome = self._run(Trial(parameters, requests=first, rate_scale=scale))
                if outcome.saturation == "overloaded" and judge(self.plan.constraints, outcome.metrics)[0] > HOPELESS:
                    return Probe(rate_rps, False, outcome, cut_short=True)
        outcome = self._run(Trial(parameters, rate_scale=scale))
        return Probe(rate_rps, self._holds(outcome), outcome)

    def _run(self, trial: Trial) -> Outcome:
        outcome = self._evaluator(trial)
        if outcome.refused is not None or outcome.failed is not None:
            raise InputError("deployment", str(outcome.refused or outcome.failed))
        return outcome

    def _ruled_out(self, parameters: Parameters, scale: float) -> bool:
        workload = self._evaluator.requests_of(Trial(parameters, rate_scale=scale))
        bounds = Bounds(dataclasses.replace(self._evaluator, workload=workload)).of(parameters)
        return broken_by_bounds(self.plan.constraints, bounds)[1] is not None

    def _holds(self, outcome: Outcome) -> bool:
        """Every constraint holds, and the queue does not grow without end."""
        return outcome.saturation != "overloaded" and judge(self.plan.constraints, outcome.metrics)[1] is None


def offered_rate(workload: Workload) -> float:
    """The mean arrival rate of an open-loop workload, in requests a second. Raises InputError for a closed one."""
    if workload.users:
        raise InputError("workload.arrival.process", "must be an open loop: the users of a closed one set the rate")
    if workload.time_limit_ps:
        raise InputError("workload.time_limit_s", "must be left out: a clock that ends the run hides an overload")
    span_ps = int(np.max(workload.arrival_ps)) - int(np.min(workload.arrival_ps)) if len(workload) else 0
    if span_ps <= 0:
        raise InputError("workload", "needs two requests or more that arrive at different times")
    return (len(workload) - 1) / (span_ps / 1e12)


def max_rate(prober: Prober, tolerance: float = TOLERANCE) -> Capacity:
    """The highest rate that `prober`'s plan carries, to within `tolerance`: bracketed by doubling, then bisected."""
    probes: list[Probe] = []

    def probe(rate_rps: float, early: bool = True) -> Probe:
        probes.append(prober.at(rate_rps, early=early))
        return probes[-1]

    low, high = 0.0, math.inf
    rate = prober.base_rps
    lowest = max(rate * LOWEST, prober.requests / LONGEST_S)
    for _ in range(MOST_DOUBLINGS):
        if probe(rate).holds:
            low = rate
            rate *= 2
        else:
            high = rate
            rate /= 2
        if (low and high < math.inf) or rate < lowest:
            break
    while low and high < math.inf and high / low > 1 + tolerance:
        middle = math.sqrt(low * high)
        if probe(middle).holds:
            low = middle
        else:
            high = middle
    if high < math.inf and _full(probes, high) is None and probe(high, early=False).holds:
        # Its bounds cannot err; its first requests can, where a burst comes first: then what follows is no bracket.
        low, high = high, math.inf
    broken = min((p for p in probes if not p.holds and p.rate_rps >= low), key=lambda p: p.rate_rps, default=None)
    return Capacity(low, None if high == math.inf else high, _limit(prober.plan, broken), tuple(probes))


def _full(probes: list[Probe], rate_rps: float) -> Probe | None:
    """The full simulation at that rate, if there was one."""
    return next((p for p in probes if p.rate_rps == rate_rps and not p.cut_short), None)


def _limit(plan: Plan, broken: Probe | None) -> str:
    if broken is None:
        return "nothing up to the highest rate tried"
    if broken.outcome is None:
        return "the physics: its bounds break the SLO"
    return judge(plan.constraints, broken.outcome.metrics)[1] or "the queue grows without end"


def fewest_replicas(prober: Prober, rate_rps: float) -> tuple[int | None, tuple[tuple[int, Probe], ...]]:
    """The fewest replicas of the plan that hold at `rate_rps`, None if none up to `MOST_REPLICAS` do, and the probes.

    A prefill pool stays as it is. One replica fewer was simulated in full too, or is ruled out by its bounds.
    """
    probes: list[tuple[int, Probe]] = []

    def holds(replicas: int, early: bool = True) -> bool:
        probe = prober.at(rate_rps, prober.plan.deployment | {"replicas": replicas}, early)
        probes.append((replicas, probe))
        return probe.holds

    low, high = 0, 1
    while not holds(high):
        low, high = high, 2 * high
        if high > MOST_REPLICAS:
            return None, tuple(probes)
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    while high > 1 and _judged_early(probes, high - 1) and holds(high - 1, early=False):
        high -= 1
    return high, tuple(probes)


def _judged_early(probes: list[tuple[int, Probe]], replicas: int) -> bool:
    """Whether that many replicas were given up on for their first requests alone; bounds are a proof."""
    tried = [probe for count, probe in probes if count == replicas]
    return all(probe.cut_short and probe.outcome is not None for probe in tried)
