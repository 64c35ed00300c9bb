"""Candidate in, metrics out: the only place where the search meets the simulator."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.goals import request_slo
from planner.parameters import Parameters, to_deployment
from planner.plan import Plan, anchored, make_workload
from sim.catalog import GPUSpec, ModelSpec, check_tensor_parallel, load_gpu, load_model
from sim.errors import InputError

if TYPE_CHECKING:
    from planner.space import Space
    from sim.latency import Coefficients
    from sim.workload import Workload


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a candidate: its metrics, or why there are none.

    `refused` says why a real engine would not start it; `failed` what went wrong in its simulation. Metrics without
    a value are nan.
    """

    metrics: dict[str, float]
    saturation: str | None = None
    refused: str | None = None
    failed: str | None = None


@dataclass(slots=True)
class Evaluator:
    """Simulates candidates of one model under one workload, the same requests for each. Can be sent to workers."""

    model: ModelSpec
    gpus: dict[str, GPUSpec]
    workload: Workload
    seed: int
    request_slo: dict[str, float]
    coefficients: Coefficients

    def static_metrics(self, parameters: Mapping[str, Any]) -> dict[str, float]:
        """The metrics that follow from a deployment's parameters alone."""
        gpus = parameters["tensor_parallel_size"] * parameters["replicas"]
        price = self.gpus[parameters["gpu"]].price_usd_per_hour
        return {"gpus": float(gpus), "cost_per_hour": gpus * price}

    def __call__(self, parameters: Parameters) -> Outcome:
        """Simulate one candidate. Nothing that a candidate does wrong is raised: one bad plan must not end a search."""
        from sim.metrics import flatten
        from sim.simulate import simulate

        try:
            deployment = to_deployment(parameters, self.model, self.gpus)
            result = simulate(
                deployment,
                self.workload,
                self.seed,
                coefficients=self.coefficients,
                request_slo=self.request_slo or None,
            )
            summary = result.summary()
        except InputError as error:
            return Outcome(self.static_metrics(parameters), refused=str(error))
        except Exception as error:  # of a user's policy, most likely
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return Outcome(self.static_metrics(parameters), failed=what)
        metrics = {
            name: math.nan if value is None else float(value)
            for name, value in flatten(summary).items()
            if value is None or isinstance(value, int | float)
        }
        return Outcome(metrics, saturation=summary["saturation"])


def make_evaluator(space: Space) -> Evaluator:
    """Load what `space` names and build its workload, once for all candidates. Raises InputError."""
    model = load_named_model(space.model, space.folder)
    _check_listed_tensor_parallel(space, model)
    return Evaluator(
        model=model,
        gpus=priced_gpus(_named(space, "gpu"), space.prices),
        workload=make_workload(space.workload, space.folder, space.seed),
        seed=space.seed,
        request_slo=request_slo(space.constraints),
        coefficients=load_coefficient_set(space.coefficients, space.folder),
    )


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
        if variable.name == "tensor_parallel_size" and (variable.listed or len(variable.options) == 1):
            for size in variable.options:
                check_tensor_parallel(model, size, "space.tensor_parallel_size")


def priced_gpus(names: tuple[str, ...], prices: Mapping[str, float]) -> dict[str, GPUSpec]:
    """The GPUs of the catalog by name, at the user's price where there is one."""
    gpus = {name: load_gpu(name) for name in names}
    for name in gpus.keys() & prices.keys():
        gpus[name] = dataclasses.replace(gpus[name], price_usd_per_hour=prices[name])
    return gpus
