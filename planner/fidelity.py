"""How near the simulator comes to measured runs: simulates each as it was run, and reports the errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from planner.measurements import METRICS, MeasuredRun, Skipped, read_runs
from sim.errors import InputError
from sim.latency import Coefficients, build_step_time, load_coefficients
from sim.result import Result
from sim.simulate import simulate


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of one run. `ape` is the absolute error in percent of the measurement."""

    id: str
    metric: str
    measured: float
    predicted: float
    ape: float
    statistic: str
    source: str
    regime: str
    gpu: str
    model: str
    precision: str
    mixture: bool
    quality: str

    @property
    def error(self) -> float:
        """Signed error in percent of the measurement."""
        return 100.0 * (self.predicted / self.measured - 1.0)


@dataclass(slots=True)
class FidelityReport:
    """Every comparison, and what could not be compared."""

    rows: list[Comparison] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    coefficients: str = ""
    wall_s: float = 0.0

    def summary(self, chosen: Callable[[Comparison], bool] = lambda row: True) -> dict[str, dict[str, float]]:
        """{metric: {n, median_ape, mean_ape, bias}} of the chosen rows, percent; the bias is the median error."""
        table = {}
        for metric in METRICS:
            rows = [row for row in self.rows if row.metric == metric and chosen(row)]
            if rows:
                table[metric] = {
                    "n": len(rows),
                    "median_ape": round(median(row.ape for row in rows), 3),
                    "mean_ape": round(sum(row.ape for row in rows) / len(rows), 3),
                    "bias": round(median(row.error for row in rows), 3),
                }
        return table

    def by(self, name: str) -> dict[str, dict[str, dict[str, float]]]:
        """The summary for each value of an attribute of the rows."""
        values = sorted({getattr(row, name) for row in self.rows})
        return {value: self.summary(partial(_has, name, value)) for value in values}

    def to_dict(self) -> dict[str, Any]:
        """What `planner fidelity --json` writes."""
        return {
            "overall": self.summary(),
            "by_gpu": self.by("gpu"),
            "by_model": self.by("model"),
            "by_source": self.by("source"),
            "by_regime": self.by("regime"),
            "coefficients": self.coefficients,
            "wall_s": round(self.wall_s, 2),
            "rows": [asdict(row) for row in self.rows],
            "skipped": [asdict(item) for item in self.skipped],
        }


def _has(name: str, value: str, row: Comparison) -> bool:
    return bool(getattr(row, name) == value)


def predicted_metrics(result: Result, statistics: dict[str, str]) -> dict[str, float]:
    """The metrics of a simulated run, each by the statistic that was measured."""
    summary = result.summary()
    values = {"output_tokens_per_s": float(summary["output_tokens_per_s"])}
    for name in ("ttft", "tpot", "e2e"):
        for statistic in ("mean", "p90", "p99"):
            metric = f"{name}_{statistic}"
            value = summary[f"{name}_ms"][statistics.get(metric, statistic)]
            if value is not None:
                values[metric] = float(value)
    return values


def compare_run(run: MeasuredRun, coefficients: Coefficients, seed: int = 0) -> list[Comparison]:
    """Simulates `run`; each measured metric beside its prediction. `InputError` if the deployment cannot run."""
    step_time = build_step_time(run.deployment, coefficients, run.greedy)
    result = simulate(run.deployment, run.workload(seed), seed, coefficients=coefficients, step_time=step_time)
    predicted = predicted_metrics(result, run.statistics)
    rows = []
    for metric, measured in run.measured.items():
        if metric not in METRICS or metric not in predicted:
            continue
        value = predicted[metric]
        rows.append(
            Comparison(
                id=run.id,
                metric=metric,
                measured=measured,
                predicted=value,
                ape=100.0 * abs(value / measured - 1.0),
                statistic=run.statistics.get(metric, metric.rpartition("_")[2] if "_" in metric else ""),
                source=run.source,
                regime=run.regime,
                gpu=run.gpu,
                model=run.model,
                precision=run.precision,
                mixture=run.mixture,
                quality=run.quality,
            )
        )
    return rows


def run_fidelity(
    files: Iterable[str | Path],
    coefficients: Coefficients | None = None,
    *,
    seed: int = 0,
    defective: bool = False,
    on_run: Callable[[int, int, MeasuredRun], None] | None = None,
) -> FidelityReport:
    """Simulates every run in `files` and compares. Runs whose quality is not `ok` are left out unless `defective`.

    `on_run(number, total, run)` is called before each. Raises `InputError` for files that cannot be read.
    """
    runs, skipped = read_runs(files)
    coefficients = coefficients or load_coefficients()
    if not defective:
        skipped += [Skipped(run.id, run.source, f"quality: {run.quality}") for run in runs if run.quality != "ok"]
        runs = [run for run in runs if run.quality == "ok"]
    report = FidelityReport(skipped=skipped, coefficients=coefficients.name)
    start = time.perf_counter()
    for number, run in enumerate(runs):
        if on_run is not None:
            on_run(number, len(runs), run)
        try:
            report.rows += compare_run(run, coefficients, seed)
        except InputError as error:
            report.skipped.append(Skipped(run.id, run.source, str(error)))
    report.wall_s = time.perf_counter() - start
    return report


# -- command ------------------------------------------------------------------------------------------------------
