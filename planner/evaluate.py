"""Candidate in, metrics out: the only place where the search meets the simulator."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from planner.early_stop import EarlyStop, Hopeless, TimedOut, time_limit
from planner.goals import Constraint, check_classes, metric_values, request_slo
from planner.parameters import Parameters, gpu_count, to_deployment
from planner.plan import Plan, anchored, classes_of, make_workload
from sim.catalog import GPUSpec, ModelSpec, check_tensor_parallel, load_gpu, load_model
from sim.errors import InputError

if TYPE_CHECKING:
    from planner.space import Space
    from sim.latency import Coefficients
    from sim.metrics import Records
    from sim.workload import Workload


@dataclass(frozen=True, slots=True)
class Stopped:
    """A simulation that was ended early, since no rest of it could have met the constraints: after how many requests,
    and bounds by flat metric on what it would have given."""

    after: str
    bounds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a candidate: its metrics, or why there are none.

    `refused` says why a real engine would not start it; `failed` what went wrong in its simulation; `stopped` that
    nothing is known of it but bounds, and `metrics` holds what its parameters tell. Metrics without a value are nan.
    """

    metrics: dict[str, float]
    saturation: str | None = None
    refused: str | None = None
    failed: str | None = None
    blocks: dict[str, tuple[float, ...]] = field(default_factory=dict)  # of a trial: latencies by blocks of requests
    timed_out_s: float | None = None  # the time limit that it failed at
    stopped: Stopped | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate under other requests than the search's own: the first of them, or those of another seed or rate; or
    under latencies that are off."""

    parameters: Parameters
    requests: int | None = None  # None: all
    seed: int | None = None  # None: the search's
    rate_scale: float = 1.0  # of the arrival rate: the same requests, arriving that much faster
    may_stop: bool = False  # once the evaluator's constraints cannot be met any more; then it gives no blocks
    step_factor: float = 1.0  # by which all steps are longer than the latency model says
    overhead_factor: float = 1.0  # by which all that surrounds a request is


MAX_WORKLOADS = 8  # of trials, that are kept for the next candidate
BLOCKS = 8  # of consecutive requests, over which a trial's latencies are also given


@dataclass(slots=True)
class Evaluator:
    """Simulates candidates of one model under one workload, the same requests for each. Can be sent to workers."""

    model: ModelSpec
    gpus: dict[str, GPUSpec]
    workload: Workload
    seed: int
    request_slo: dict[str, float]
    coefficients: Coefficients
    workload_section: Mapping[str, Any] = field(default_factory=dict)  # as the user wrote it, for other seeds
    folder: Path = Path()  # what its paths are relative to
    constraints: tuple[Constraint, ...] = ()  # for candidates that may be stopped early
    timeout_s: float | None = None  # of real time, for a candidate
    _workloads: dict[tuple[int | None, int | None, float], Workload] = field(
        default_factory=dict, init=False, repr=False
    )

    def static_metrics(self, parameters: Mapping[str, Any]) -> dict[str, float]:
        """The metrics that follow from a deployment's parameters alone."""
        gpus = gpu_count(parameters)
        price = self.gpus[parameters["gpu"]].price_usd_per_hour
        return {"gpus": float(gpus), "cost_per_hour": gpus * price}

    def __call__(self, candidate: Parameters | Trial) -> Outcome:
        """Simulate one candidate. Nothing that a candidate does wrong is raised: one bad plan must not end a search."""
        from sim.simulate import simulate

        trial = candidate if isinstance(candidate, Trial) else None
        parameters = trial.parameters if trial is not None else cast(Parameters, candidate)
        try:
            with time_limit(self.timeout_s):
                result = simulate(
                    to_deployment(parameters, self.model, self.gpus),
                    self.requests_of(trial),
                    self.seed if trial is None or trial.seed is None else trial.seed,
                    coefficients=self._coefficients_of(trial),
                    request_slo=self.request_slo or None,
                    watch=self._watch(trial),
                )
                summary = result.summary()
        except Hopeless as end:
            return Outcome(self.static_metrics(parameters), stopped=Stopped(end.after, end.bounds))
        except TimedOut:
            return timed_out(self.static_metrics(parameters), cast(float, self.timeout_s))
        except InputError as error:
            return Outcome(self.static_metrics(parameters), refused=str(error))
        except Exception as error:  # of a user's policy, most likely
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return Outcome(self.static_metrics(parameters), failed=what)
        blocks = {} if trial is None or trial.may_stop else latency_blocks(result.records)
        return Outcome(metric_values(summary), saturation=summary["saturation"], blocks=blocks)

    def _watch(self, trial: Trial | None) -> EarlyStop | None:
        constraints = self.constraints if trial is not None and trial.may_stop else ()
        if not constraints and self.timeout_s is None:
            return None
        deadline = None if self.timeout_s is None else time.monotonic() + self.timeout_s
        return EarlyStop(constraints, deadline)

    def _coefficients_of(self, trial: Trial | None) -> Coefficients:
        from sim.latency import off_by

        if trial is None or trial.step_factor == trial.overhead_factor == 1.0:
            return self.coefficients
        return off_by(self.coefficients, trial.step_factor, trial.overhead_factor)

    def requests_of(self, trial: Trial | None) -> Workload:
        """The requests that a trial serves, the search's own if None. Raises InputError."""
        if trial is None:
            return self.workload
        key = (trial.requests, trial.seed, trial.rate_scale)
        if key not in self._workloads:
            workload = self.workload
            if trial.rate_scale != 1.0 and self.has_shape:
                workload = self._shaped(trial)
            else:
                if trial.seed is not None and trial.seed != self.seed:
                    workload = make_workload(self.workload_section, self.folder, trial.seed)
                if trial.rate_scale != 1.0:
                    workload = faster(workload, trial.rate_scale)
            if trial.requests is not None:
                workload = first_requests(workload, trial.requests)
            while len(self._workloads) >= MAX_WORKLOADS:
                del self._workloads[next(iter(self._workloads))]
            self._workloads[key] = workload
        return self._workloads[key]

    @property
    def has_shape(self) -> bool:
        """Whether an arrival rate of the workload changes over time, which it does alike when the load is another."""
        from sim.workload import has_shape, parse_workload

        return bool(self.workload_section) and has_shape(parse_workload(self.workload_section))

    def _shaped(self, trial: Trial) -> Workload:
        """The requests at another rate where it changes over time: more of them, over the same time."""
        from sim.workload import at_rate, build_workload, parse_workload

        spec = at_rate(parse_workload(self.workload_section), trial.rate_scale)
        return build_workload(spec, self.seed if trial.seed is None else trial.seed, self.folder)


def timed_out(metrics: dict[str, float], limit_s: float) -> Outcome:
    """The outcome of a candidate that was given up after `limit_s`."""
    return Outcome(metrics, failed=f"its simulation took longer than {limit_s:g} s", timed_out_s=limit_s)


def latency_blocks(records: Records) -> dict[str, tuple[float, ...]]:
    """Flat latency metrics over `BLOCKS` blocks of consecutive requests; nan where a block has none."""
    from sim.metrics import distribution, flat_name

    found: dict[str, list[float]] = {}
    for name, values in (("ttft_ms", records.ttft_floor_ms), ("tpot_ms", records.tpot_ms), ("e2e_ms", records.e2e_ms)):
        for part in np.array_split(values, BLOCKS):
            for statistic, value in distribution(part).items():
                found.setdefault(flat_name(name, statistic), []).append(math.nan if value is None else value)
    return {name: tuple(values) for name, values in found.items()}


def first_requests(workload: Workload, count: int) -> Workload:
    """The first `count` requests of `workload`."""
    n = len(workload)
    cut: dict[str, Any] = {
        field.name: value[:count]
        for field in dataclasses.fields(workload)
        if isinstance(value := getattr(workload, field.name), np.ndarray) and len(value) == n and count < n
    }
    return dataclasses.replace(workload, **cut)


def faster(workload: Workload, scale: float) -> Workload:
    """The same requests with gaps between arrivals `scale` times shorter. Of an open loop only.

    Sessions begin that much sooner one after the other; how long their users think stays.
    """
    arrival_ps = np.rint(workload.arrival_ps / scale).astype(np.int64)
    if workload.follows is not None:
        arrival_ps = np.where(workload.follows < 0, arrival_ps, workload.arrival_ps)
    return dataclasses.replace(workload, arrival_ps=arrival_ps)


def make_evaluator(space: Space) -> Evaluator:
    """Load what `space` names and build its workload, once for all candidates. Raises InputError."""
    model = load_named_model(space.model, space.folder)
    _check_listed_tensor_parallel(space, model)
    gpus = priced_gpus(_named(space, "gpu"), space.prices)
    workload = make_workload(space.workload, space.folder, space.seed)
    check_classes(space.constraints, space.objectives, classes_of(workload))
    return Evaluator(
        model=model,
        gpus=gpus,
        workload=workload,
        seed=space.seed,
        request_slo=request_slo(space.constraints),
        coefficients=load_coefficient_set(space.coefficients, space.folder),
        workload_section=space.workload,
        folder=space.folder,
        constraints=space.constraints,
        timeout_s=space.timeout_s,
    )


def check_named(space: Space) -> None:
    """Raise InputError unless there are the model, GPUs and coefficients that `space` names, and the model can be cut
    as it says; no workload is built."""
    _check_listed_tensor_parallel(space, load_named_model(space.model, space.folder))
    priced_gpus(_named(space, "gpu"), space.prices)
    load_coefficient_set(space.coefficients, space.folder)


def plan_of(space: Space, parameters: Parameters) -> Plan:
    """The plan that deploys `parameters` in `space`."""
    return Plan(
        model=space.model,
        workload=space.workload,
        deployment=parameters,
        seed=space.seed,
        slo=space.slo,
        constraints=space.constraints,
        prices=space.prices,
        coefficients=space.coefficients,
        folder=space.folder,
    )


def load_named_model(name: str, folder: Path) -> ModelSpec:
    """The model of a catalog name, or of a config.json looked up from `folder`. Raises InputError."""
    return load_model(anchored(name, folder) if "/" in name or "." in name else name, "model")


def load_coefficient_set(name: str | None, folder: Path) -> Coefficients:
    """The coefficient set of that name or file, the shipped one if None. Raises InputError."""
    from sim.latency import load_coefficients

    return load_coefficients() if name is None else load_coefficients(anchored(name, folder))


def _named(space: Space, name: str) -> tuple[Any, ...]:
    return next(variable.options for variable in space.variables if variable.name == name)


def _check_listed_tensor_parallel(space: Space, model: ModelSpec) -> None:
    """A size that the user wrote out and that cannot be is a mistake; one that a range runs over is just skipped."""
    for variable in space.variables:
        if variable.name.endswith("tensor_parallel_size") and (variable.listed or len(variable.options) == 1):
            for size in variable.options:
                if size is not None:
                    check_tensor_parallel(model, size, f"space.{variable.name}")


def priced_gpus(names: tuple[str, ...], prices: Mapping[str, float]) -> dict[str, GPUSpec]:
    """The GPUs of the catalog by name, at the user's price where there is one."""
    gpus = {name: load_gpu(name) for name in names}
    for name in gpus.keys() & prices.keys():
        gpus[name] = dataclasses.replace(gpus[name], price_usd_per_hour=prices[name])
    return gpus
