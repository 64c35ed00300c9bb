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

from planner.fidelity import predicted_metrics
from planner.measurements import MeasuredRun
from sim.errors import InputError
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


def get_path(document: Mapping[str, Any], path: str) -> float:
    """The number at a dotted path (list entries by index; ``|`` stands for a dot inside a key)."""
    value: Any = document
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key.replace("|", ".")]
    return float(value)


def set_path(document: dict[str, Any], path: str, value: float) -> None:
    """Sets the number at a dotted path."""
    *parents, last = path.split(".")
    node: Any = document
    for key in parents:
        node = node[int(key)] if isinstance(node, list) else node[key.replace("|", ".")]
    node[int(last) if isinstance(node, list) else last.replace("|", ".")] = value


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


def bootstrap_intervals(jacobian: Floats, residuals: Floats, point: Floats, groups: int) -> Floats:
    """5 and 95% of each (unit-scaled) coefficient when the runs are drawn anew; shape (coefficients, 2), in [0, 1].

    The model is linear around the fit: one Gauss-Newton step on each of the drawn sets, no simulation. `residuals`
    has one row a run and metric, a run's metrics together.
    """
    rng = np.random.default_rng(0)
    rows = len(residuals) // groups
    by_run = np.arange(len(residuals)).reshape(groups, rows)
    ridge = 1e-6 * np.trace(jacobian.T @ jacobian) * np.eye(len(point))
    drawn = []
    for _ in range(BOOTSTRAP_DRAWS):
        index = by_run[rng.integers(0, groups, groups)].ravel()
        j, r = jacobian[index], residuals[index]
        drawn.append(point - np.linalg.solve(j.T @ j + ridge, j.T @ r))
    return np.clip(np.quantile(np.array(drawn), [0.05, 0.95], axis=0).T, 0.0, 1.0)


def fit_block(
    document: Mapping[str, Any], block: Block, runs: Sequence[MeasuredRun], evaluations: int | None = None
) -> tuple[dict[str, Any], BlockFit]:
    """The document with the block's coefficients fitted, and how it went. `evaluations` replaces the block's bound."""
    try:
        from scipy.optimize import least_squares
    except ImportError as error:
        raise InputError("calibrate", "needs scipy: pip install 'llm-serving-planner[dev]'") from error
    chosen = [run for run in runs if block.chosen(run)]
    low = np.array([c.low for c in block.coefficients])
    span = np.array([c.high - c.low for c in block.coefficients])
    start = np.array([get_path(document, c.paths[0]) for c in block.coefficients])
    unit = np.clip((start - low) / span, 0.02, 0.98)

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
    robust = np.sqrt(1.0 / np.sqrt(1.0 + (result.fun / LOSS_SCALE) ** 2))
    spread = bootstrap_intervals(result.jac, result.fun * robust, result.x, len(chosen))
    fitted = with_values(document, block.coefficients, values)
    report = BlockFit(
        block.name,
        {path: get_path(fitted, path) for c in block.coefficients for path in c.paths[:1]},
        len(chosen),
        before,
        _medians(relative_errors(fitted, chosen), block.metrics),
        {c.paths[0]: [c.low, c.high] for c in block.coefficients},
        {
            c.paths[0]: [float(f"{value:.3g}") for value in low[i] + spread[i] * span[i]]
            for i, c in enumerate(block.coefficients)
        },
    )
    return fitted, report


def leave_one_out(
    document: Mapping[str, Any],
    block: Block,
    runs: Sequence[MeasuredRun],
    group: Callable[[MeasuredRun], str],
    evaluations: int = 3,
) -> dict[str, dict[str, float]]:
    """For each group of the block's runs: median absolute errors (percent) on it after a fit without it."""
    chosen = [run for run in runs if block.chosen(run)]
    found = {}
    for name in sorted({group(run) for run in chosen}):
        rest = [run for run in chosen if group(run) != name]
        own = [run for run in chosen if group(run) == name]
        if rest:
            fitted, _ = fit_block(document, block, rest, evaluations)
            found[name] = _medians(relative_errors(fitted, own), block.metrics)
    return found
