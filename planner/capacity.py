"""How much a plan carries: the highest arrival rate that keeps its SLO, and the fewest replicas that keep it at a rate.

Every probe serves the same requests (common random numbers), arriving faster or slower, and is cut short once its first
requests already miss the SLO beyond doubt. What is reported is verified on both sides: the rate itself in a full
simulation that keeps the SLO, and the next rate, at most `TOLERANCE` above it, in one that does not.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from planner.boundary import FARTHEST, Boundary, excess, nearest_step, rate_scale
from planner.bounds import Bounds
from planner.evaluate import Evaluator, Outcome, Trial, load_coefficient_set, load_named_model, priced_gpus
from planner.goals import Constraint, check_classes, judge, request_slo, service_levels
from planner.parameters import Parameters
from planner.plan import Plan, classes_of, make_workload
from planner.search.pruning import broken_by_bounds
from planner.steady import rising_load
from sim.errors import InputError
from sim.workload import Workload

TOLERANCE = 0.01  # between a rate that holds and one that does not, as a share
FIRST_SHARE = 0.2  # of the requests, that an early look takes
FAR = 1.3  # times a rate that holds, from which an early look is taken
HOPELESS = 1.0  # a sum of relative violations in the early look, from which the full run is spared
LEAST_LATENCIES = 4  # that a run must last, for a rate above the plan's own to be called carried
LONGEST_S = 2e6  # of a simulated run
MOST_REPLICAS = 4096


@dataclass(frozen=True, slots=True)
class Probe:
    """One simulation: at what rate, whether the SLO held, and what was seen."""

    rate_rps: float
    holds: bool
    outcome: Outcome | None  # None: ruled out by its bounds
    cut_short: bool = False  # judged by its bounds or its first requests
    step: int | None = None  # of the rates that are tried one after the other


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
        self.levels = service_levels(plan.constraints)
        gpu = plan.deployment["gpu"]
        workload = make_workload(plan.workload, plan.folder, plan.seed)
        check_classes(plan.constraints, (), classes_of(workload))
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
        return self.scaled(rate_rps / self.base_rps, parameters, early)

    def scaled(self, scale: float, parameters: Parameters | None = None, early: bool = True) -> Probe:
        """The same at a multiple of the plan's own rate."""
        parameters = parameters or self.plan.deployment
        rate_rps = scale * self.base_rps
        if early:
            if self._ruled_out(parameters, scale):
                return Probe(rate_rps, False, None, cut_short=True)
            first = round(FIRST_SHARE * len(self._evaluator.workload))
            if first >= 100 and not self._evaluator.has_shape:  # a shape's beginning is not like the rest
                outcome = self._run(Trial(parameters, requests=first, rate_scale=scale))
                if outcome.saturation == "overloaded" and judge(self.levels, outcome.metrics)[0] > HOPELESS:
                    return Probe(rate_rps, False, outcome, cut_short=True)
        outcome = self._run(Trial(parameters, rate_scale=scale))
        burst = scale > 1 and is_burst(outcome)
        return Probe(rate_rps, carries(self.levels, outcome) and not burst, outcome)

    def rising_load(self, probe: Probe) -> str | None:
        """Why the load of a probe is not a steady one, where it was simulated and is not."""
        if probe.outcome is None:
            return None
        workload = self._evaluator.requests_of(Trial(self.plan.deployment, rate_scale=probe.rate_rps / self.base_rps))
        answer_s = probe.outcome.metrics.get("e2e_mean_ms", 0.0) / 1e3
        return rising_load(workload, answer_s, stable=probe.outcome.saturation == "stable")

    def _run(self, trial: Trial) -> Outcome:
        outcome = self._evaluator(trial)
        if outcome.refused is not None or outcome.failed is not None:
            raise InputError("deployment", str(outcome.refused or outcome.failed))
        return outcome

    def _ruled_out(self, parameters: Parameters, scale: float) -> bool:
        workload = self._evaluator.requests_of(Trial(parameters, rate_scale=scale))
        bounds = Bounds(dataclasses.replace(self._evaluator, workload=workload)).of(parameters)
        return broken_by_bounds(self.levels, bounds)[1] is not None


def carries(levels: tuple[Constraint, ...], outcome: Outcome) -> bool:
    """Whether a simulation shows a plan that holds its service levels, and whose queue does not grow without end."""
    runs = outcome.refused is None and outcome.failed is None
    return runs and outcome.saturation != "overloaded" and judge(levels, outcome.metrics)[1] is None


def is_burst(outcome: Outcome) -> bool:
    """Whether the requests of a run come almost at once, next to how long one takes: it then shows how a burst is
    worked off, and says nothing of the rate at which they came."""
    metrics = outcome.metrics
    latency_s = metrics.get("e2e_mean_ms", math.nan) / 1e3
    return metrics.get("duration_s", math.nan) < LEAST_LATENCIES * latency_s


def offered_rate(workload: Workload) -> float:
    """The mean arrival rate of an open-loop workload, in requests a second. Raises InputError for a closed one.

    Where sessions arrive it is the rate at which they begin, times the requests of one.
    """
    if workload.users:
        problem = "must be an open loop for a highest rate to exist: the users of a closed one set the rate themselves"
        raise InputError("workload.arrival.process", problem)
    if workload.time_limit_ps:
        raise InputError("workload.time_limit_s", "must be left out: a clock that ends the run hides an overload")
    begun_ps = workload.arrival_ps if workload.follows is None else workload.arrival_ps[workload.follows < 0]
    span_ps = int(np.max(begun_ps)) - int(np.min(begun_ps)) if len(begun_ps) else 0
    if span_ps <= 0:
        raise InputError("workload", "needs two requests or more that arrive at different times")
    return (len(begun_ps) - 1) / (span_ps / 1e12) * (len(workload) / len(begun_ps))


def max_rate(prober: Prober) -> Capacity:
    """The highest rate that `prober`'s plan carries, of the rates `rate_scale` apart from its own.

    It begins at the plan's own rate. First requests can err, where a burst comes first; bounds cannot.
    """
    probes: list[Probe] = []
    least = max(-FARTHEST, nearest_step(prober.requests / LONGEST_S / prober.base_rps))
    search = Boundary(lowest=min(least, 0), highest=FARTHEST, hint=0, width=64)
    sure: set[int] = set()  # steps that are to be simulated in full
    while True:
        step = search.next()
        if step is None:
            if search.high is None or search.high in sure or not _looked_early(probes, search.high):
                break
            step = search.high
            sure.add(step)
            search.doubt(step)
        far = search.low is None or rate_scale(step) > FAR * rate_scale(search.low)
        probe = prober.scaled(rate_scale(step), early=far and step not in sure)
        probes.append(dataclasses.replace(probe, step=step))
        search.learn(step, probe.holds, _excess(prober, probe))
    low = 0.0 if search.low is None else prober.base_rps * rate_scale(search.low)
    high = None if search.high is None else prober.base_rps * rate_scale(search.high)
    broken = next((p for p in reversed(probes) if p.step == search.high), None)
    return Capacity(low, high, _limit(prober, broken), tuple(probes))


def _looked_early(probes: list[Probe], step: int) -> bool:
    """Whether all that speaks against a rate is its first requests."""
    return all(p.cut_short and p.outcome is not None for p in probes if p.step == step)


def _excess(prober: Prober, probe: Probe) -> float:
    return math.nan if probe.outcome is None or probe.cut_short else excess(prober.levels, probe.outcome.metrics)


def _limit(prober: Prober, broken: Probe | None) -> str:
    if broken is None:
        return "nothing up to the highest rate tried"
    if broken.outcome is None:
        return "the physics: its bounds break the SLO"
    if carries(prober.levels, broken.outcome):
        return "the workload, whose requests come all at once at higher rates; give it more of them"
    return judge(prober.levels, broken.outcome.metrics)[1] or "the queue grows without end"


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
