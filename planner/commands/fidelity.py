"""`planner fidelity`: the simulator against measured runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from planner.commands._options import check_outputs
from planner.commands._terminal import DONE, console

if TYPE_CHECKING:
    from planner.fidelity import Comparison, FidelityReport
    from planner.measurements import MeasuredRun

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
    from planner.fidelity import run_fidelity
    from sim.latency import load_coefficients

    check_outputs(args, "--json", "--plot", "--regimes", "--document")
    with console().status("simulating") as status:

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
        from planner.regimes import dump_table

        names = sorted(Path(file).name for file in args.files)
        rows = [row for row in report.rows if not fitted(row)]
        Path(args.regimes).write_text(dump_table(rows, report.coefficients, names), encoding="utf-8")
    if args.document:
        from planner.fidelity_document import write_fidelity_document

        write_fidelity_document(report, coefficients.provenance, args.document)
    _print_report(report)
    return DONE


def _print_report(report: FidelityReport) -> None:
    """Tables of the errors overall and by GPU, source and regime; the worst rows; what was skipped and why."""
    from rich.table import Table

    from planner.measurements import METRICS

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
    console().print(table)
    _print_worst(report.rows)
    reasons: dict[str, int] = {}
    for item in report.skipped:
        reasons[item.reason] = reasons.get(item.reason, 0) + 1
    for reason, count in sorted(reasons.items(), key=lambda entry: -entry[1]):
        console().print(f"left out: {count} x {reason}")


def _print_worst(rows: Sequence[Comparison]) -> None:
    from rich.table import Table

    table = Table(title="worst rows")
    for name in ("run", "metric", "measured", "predicted", "error"):
        table.add_column(name, justify="left" if name in ("run", "metric") else "right")
    for row in sorted(rows, key=lambda row: -row.ape)[:WORST_ROWS]:
        table.add_row(row.id, row.metric, f"{row.measured:.4g}", f"{row.predicted:.4g}", f"{row.error:+.1f}%")
    console().print(table)
