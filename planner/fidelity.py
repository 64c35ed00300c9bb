"""How near the simulator comes to measured runs: simulates each as it was run, and reports the errors."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from planner.measurements import METRICS, MeasuredRun, Skipped, read_runs
from planner.regimes import dump_table
from sim.errors import InputError
from sim.latency import Coefficients, build_step_time, load_coefficients
from sim.simulate import Result, simulate

WORST_ROWS = 10
HEADINGS = {
    "ttft_mean": "TTFT",
    "ttft_p90": "p90",
    "ttft_p99": "p99",
    "tpot_mean": "TPOT",
    "e2e_mean": "E2E",
    "e2e_p90": "p90",
    "e2e_p99": "p99",
    "output_tokens_per_s": "tok/s",
}


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner fidelity`."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="open-loop JSON, load-points CSV or replay CSV")
    parser.add_argument("--json", metavar="OUT", help="write every comparison and the summaries")
    parser.add_argument("--plot", metavar="OUT.png", help="predicted against measured, with the 10%% band")
    parser.add_argument("--regimes", metavar="OUT.yaml", help="write the table of residuals behind plans' intervals")
    parser.add_argument("--document", metavar="OUT.md", help="write the fidelity document")
    parser.add_argument("--coefficients", default="default", metavar="SET", help="a shipped set or a YAML file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--defective", action="store_true", help="also compare rows whose quality is not ok")


def run(args: argparse.Namespace) -> int:
    """`planner fidelity`: prints tables, and writes what was asked for. Returns 0."""
    from rich.console import Console

    from planner.store import check_outputs

    check_outputs(args, "--json", "--plot", "--regimes", "--document")
    console = Console()
    with console.status("simulating") as status:

        def say(number: int, total: int, measured: MeasuredRun) -> None:
            status.update(f"simulating {number + 1} of {total}: {measured.id}")

        coefficients = load_coefficients(args.coefficients)
        report = run_fidelity(
            args.files,
            coefficients,
            seed=args.seed,
            defective=args.defective,
            on_run=say,
        )
    if args.json:
        Path(args.json).write_text(json.dumps(report.to_dict(), indent=1) + "\n", encoding="utf-8")
    if args.plot:
        from planner.fidelity_plot import plot_fidelity

        plot_fidelity(report, args.plot)
    if args.regimes:
        from planner.fidelity_document import fitted

        names = sorted(Path(file).name for file in args.files)
        rows = [row for row in report.rows if not fitted(row)]
        Path(args.regimes).write_text(dump_table(rows, report.coefficients, names), encoding="utf-8")
    if args.document:
        from planner.fidelity_document import write_fidelity_document

        write_fidelity_document(report, coefficients.provenance, args.document)
    print_report(report, console)
    return 0


def print_report(report: FidelityReport, console: Any) -> None:
    """Tables of the errors overall and by GPU, source and regime; the worst rows; what was skipped and why."""
    from rich.table import Table

    metrics = [metric for metric in METRICS if any(row.metric == metric for row in report.rows)]
    table = Table(title="median absolute error, %", caption=f"{len(report.rows)} comparisons")
    table.add_column("", overflow="fold")
    table.add_column("runs", justify="right")
    for metric in metrics:
        table.add_column(HEADINGS[metric], justify="right")

    def add(title: str, summary: dict[str, dict[str, float]]) -> None:
        runs = max((entry["n"] for entry in summary.values()), default=0)
        table.add_row(
            title, f"{runs:.0f}", *(f"{summary[m]['median_ape']:.1f}" if m in summary else "" for m in metrics)
        )

    add("all", report.summary())
    for name in ("regime", "gpu", "model", "source"):
        table.add_section()
        for value, summary in report.by(name).items():
            add(value.rpartition("/")[2] if name == "model" else value[:40], summary)
    console.print(table)
    _print_worst(report.rows, console)
    reasons: dict[str, int] = {}
    for item in report.skipped:
        reasons[item.reason] = reasons.get(item.reason, 0) + 1
    for reason, count in sorted(reasons.items(), key=lambda entry: -entry[1]):
        console.print(f"left out: {count} x {reason}")


def _print_worst(rows: Sequence[Comparison], console: Any) -> None:
    from rich.table import Table

    table = Table(title="worst rows")
    for name in ("run", "metric", "measured", "predicted", "error"):
        table.add_column(name, justify="left" if name in ("run", "metric") else "right")
    for row in sorted(rows, key=lambda row: -row.ape)[:WORST_ROWS]:
        table.add_row(row.id, row.metric, f"{row.measured:.4g}", f"{row.predicted:.4g}", f"{row.error:+.1f}%")
    console.print(table)
