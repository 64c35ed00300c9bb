"""Layer (b): what the engine adds to its kernels, and the kernels that serving uses but no table holds, fitted on
serving runs by bounded least squares over the simulator itself, one block of coefficients after the other."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.calibration.coefficient_file import get_path, set_path
from planner.fidelity import predicted_metrics
from planner.measurements import MeasuredRun
from sim.latency import build_step_time, parse_coefficients
from sim.simulate import simulate

Floats = npt.NDArray[np.float64]
LOSS_SCALE = 0.05
BOOTSTRAP_DRAWS = 400
FIT_SHARE = 4  # one closed-loop row in four is fitted on, the others are only predicted
WEIGHTS = {
    "ttft_mean": 0.5,
    "ttft_p90": 0.25,
    "tpot_mean": 1.0,
    "e2e_mean": 1.0,
    "e2e_p90": 0.5,
    "output_tokens_per_s": 1.0,
}


def is_fit_row(run_id: str) -> bool:
    """Whether a load point belongs to the quarter that may be fitted on: by a checksum of its id, so by no choice."""
    return zlib.crc32(run_id.encode()) % FIT_SHARE == 0


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A coefficient by the paths in the document that share its value, with its bounds."""

    paths: tuple[str, ...]
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Block:
    """Coefficients that are fitted together on the runs that `chosen` picks."""

    name: str
    coefficients: tuple[Coefficient, ...]
    chosen: Callable[[MeasuredRun], bool]
    metrics: tuple[str, ...] = ("ttft_mean", "tpot_mean", "e2e_mean", "e2e_p90", "ttft_p90")
    evaluations: int = 16  # of the residuals, derivatives aside


@dataclass(slots=True)
class BlockFit:
    """What a block's fit gave: values by path, errors before and after on its own runs (median absolute, percent)."""

    name: str
    values: dict[str, float]
    runs: int
    before: dict[str, float]
    after: dict[str, float]
    bounds: dict[str, list[float]] = field(default_factory=dict)
    intervals: dict[str, list[float]] = field(default_factory=dict)  # 5 to 95%, by bootstrap over the runs
    left_out: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)  # cross-validation by model, by gpu


def with_values(document: Mapping[str, Any], coefficients: Sequence[Coefficient], values: Floats) -> dict[str, Any]:
    """A copy of the document in which every path of each coefficient has its value."""
    changed = copy.deepcopy(dict(document))
    for coefficient, value in zip(coefficients, values, strict=True):
        for path in coefficient.paths:
            set_path(changed, path, float(f"{value:.4g}"))
    return changed


def relative_errors(document: Mapping[str, Any], runs: Sequence[MeasuredRun]) -> list[dict[str, float]]:
    """log(predicted / measured) of each run's metrics under a coefficient document."""
    coefficients = parse_coefficients(document, "candidate")
    errors = []
    for run in runs:
        step_time = build_step_time(run.deployment, coefficients, run.greedy)
        result = simulate(run.deployment, run.workload(0), coefficients=coefficients, step_time=step_time)
        predicted = predicted_metrics(result, run.statistics)
        errors.append({m: float(np.log(predicted[m] / value)) for m, value in run.measured.items() if m in predicted})
    return errors


def _medians(errors: Sequence[Mapping[str, float]], metrics: Sequence[str]) -> dict[str, float]:
    found = {}
    for metric in metrics:
        values = [abs(float(np.expm1(error[metric]))) for error in errors if metric in error]
        if values:
            found[metric] = round(100 * float(np.median(values)), 2)
    return found


@dataclass(frozen=True, slots=True)
class Linearised:
    """A fit's surroundings, linear in the coefficients (unit-scaled): what a fit on fewer runs would have given, by
    one Gauss-Newton step and no simulation. Rows go run by run, a run's metrics together."""

    jacobian: Floats
    residuals: Floats
    point: Floats
    runs: int

    def rows(self, runs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Row numbers of the runs."""
        per_run = len(self.residuals) // self.runs
        return (runs[:, None] * per_run + np.arange(per_run)).ravel()

    def refitted(self, runs: npt.NDArray[np.int64]) -> Floats:
        """The coefficients that these runs alone, drawn as often as they occur, would have given."""
        rows = self.rows(runs)
        j, r = self.jacobian[rows], self.residuals[rows]
        weights = 1.0 / np.sqrt(1.0 + (r / LOSS_SCALE) ** 2)
        normal = j.T @ (weights[:, None] * j)
        normal += 1e-6 * max(float(np.trace(normal)), 1e-12) * np.eye(len(self.point))
        return np.clip(self.point - np.linalg.solve(normal, j.T @ (weights * r)), 0.0, 1.0)

    def intervals(self) -> Floats:
        """5 and 95% of each coefficient when the runs are drawn anew; shape (coefficients, 2), in [0, 1]."""
        rng = np.random.default_rng(0)
        drawn = [self.refitted(rng.integers(0, self.runs, self.runs)) for _ in range(BOOTSTRAP_DRAWS)]
        return np.quantile(np.array(drawn), [0.05, 0.95], axis=0).T

    def left_out(self, labels: Sequence[str], metrics: Sequence[str]) -> dict[str, dict[str, float]]:
        """By label: median absolute errors (percent) of its runs after a fit without them."""
        found = {}
        for label in sorted(set(labels)):
            own = np.array([i for i, other in enumerate(labels) if other == label])
            rest = np.array([i for i, other in enumerate(labels) if other != label], dtype=np.int64)
            if not len(rest):
                continue
            rows = self.rows(own)
            moved = self.residuals[rows] + self.jacobian[rows] @ (self.refitted(rest) - self.point)
            by_metric = moved.reshape(len(own), -1)
            found[label] = {
                metric: round(100 * float(np.median(np.abs(np.expm1(by_metric[:, k] / WEIGHTS[metric])))), 2)
                for k, metric in enumerate(metrics)
                if np.any(self.residuals[rows].reshape(len(own), -1)[:, k])
            }
        return found


def fit_block(
    document: Mapping[str, Any], block: Block, runs: Sequence[MeasuredRun], evaluations: int | None = None
) -> tuple[dict[str, Any], BlockFit]:
    """The document with the block's coefficients fitted, and how it went. `evaluations` replaces the block's bound."""
    from scipy.optimize import least_squares  # slow to load, and most commands need none

    chosen = [run for run in runs if block.chosen(run) and any(metric in run.measured for metric in block.metrics)]
    low = np.array([c.low for c in block.coefficients])
    span = np.array([c.high - c.low for c in block.coefficients])
    start = np.array([get_path(document, c.paths[0]) for c in block.coefficients])
    unit = np.clip((start - low) / span, 1e-3, 1 - 1e-3)

    def residual(point: Floats) -> Floats:
        errors = relative_errors(with_values(document, block.coefficients, low + point * span), chosen)
        return np.array([WEIGHTS[m] * error.get(m, 0.0) for error in errors for m in block.metrics])

    before = _medians(relative_errors(document, chosen), block.metrics)
    result = least_squares(
        residual,
        unit,
        bounds=(0.0, 1.0),
        loss="soft_l1",
        f_scale=LOSS_SCALE,
        diff_step=0.02,
        max_nfev=evaluations or block.evaluations,
        xtol=1e-3,
        ftol=1e-3,
    )
    values = low + result.x * span
    # scipy returns the Jacobian scaled by the soft-L1 loss: (1 + z)^(-3/4), z = (residual / scale)^2.
    plain = result.jac * ((1.0 + (result.fun / LOSS_SCALE) ** 2) ** 0.75)[:, None]
    near = Linearised(plain, result.fun, result.x, len(chosen))
    fitted = with_values(document, block.coefficients, values)
    after = _medians(relative_errors(fitted, chosen), block.metrics)
    return fitted, _report(block, chosen, fitted, before, after, near)


def _report(
    block: Block,
    chosen: Sequence[MeasuredRun],
    fitted: Mapping[str, Any],
    before: dict[str, float],
    after: dict[str, float],
    near: Linearised,
) -> BlockFit:
    """How the fit of `block` on the runs `chosen` went."""
    spread = near.intervals()
    first_paths = [coefficient.paths[0] for coefficient in block.coefficients]
    return BlockFit(
        name=block.name,
        values={path: get_path(fitted, path) for path in first_paths},
        runs=len(chosen),
        before=before,
        after=after,
        bounds={c.paths[0]: [c.low, c.high] for c in block.coefficients},
        intervals={
            c.paths[0]: [float(f"{value:.3g}") for value in c.low + spread[i] * (c.high - c.low)]
            for i, c in enumerate(block.coefficients)
        },
        left_out={
            "model": near.left_out([run.model for run in chosen], block.metrics),
            "gpu": near.left_out([run.gpu for run in chosen], block.metrics),
        },
    )
