"""`planner sweep`: a plan over arrival rates, and its knee."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from planner.commands._options import check_outputs, check_picture, write_json, write_picture
from planner.commands._probing import add_plan, prober
from planner.commands._terminal import DONE, console
from sim.errors import InputError

if TYPE_CHECKING:
    from planner.sweep import Sweep


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner sweep`."""
    add_plan(parser)
    parser.add_argument("--points", type=int, default=12, metavar="N", help="rates to simulate (default: 12)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the curves, to a .png or .svg")


def run(args: argparse.Namespace) -> int:
    """Simulate, print, draw. Returns 0; raises InputError."""
    from planner.sweep import sweep

    if args.points < 3:
        raise InputError("--points", f"must be at least 3, got {args.points}")
    check_picture(args.plot, "--plot")
    check_outputs(args, "--json", "--plot")
    asked = prober(args)
    found = sweep(asked, args.points)
    if args.plot is not None:
        from planner.report.sweep_plot import sweep_figure

        write_picture(args.plot, sweep_figure(found, asked.plan))
    if not write_json(args.json, found.document()):
        _print_sweep(found)
        if args.plot is not None:
            print(f"Picture: {args.plot}")
    return DONE


def _print_sweep(found: Sweep) -> None:
    from planner.report.layout import table

    rows = table()
    for title in ("requests/s", "done/s", "output tokens/s", "TTFT p50", "TTFT p99", "TPOT mean", "SLO", ""):
        rows.add_column(title, justify="right" if title else "left")
    for point in found.points:
        m = point.metrics
        rows.add_row(
            f"{point.rate_rps:.4g}",
            f"{m['requests_per_s']:.4g}",
            f"{m['output_tokens_per_s']:,.0f}",
            f"{m['ttft_p50_ms']:,.0f} ms",
            f"{m['ttft_p99_ms']:,.0f} ms",
            f"{m['tpot_mean_ms']:,.1f} ms",
            "holds" if point.holds else "broken",
            "knee" if point.rate_rps == found.knee_rps else "",
        )
    out = console()
    out.print(rows)
    out.print(f"Carries {found.max_rate_rps:.4g} requests/s within its SLO; the knee is at {found.knee_rps:.4g}.")
