"""`planner capacity` and `planner sweep`: how much a plan carries, and what happens on the way there."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from planner.capacity import TOLERANCE, Capacity, Prober, fewest_replicas, max_rate
from planner.parameters import gpu_count
from planner.store import check_outputs
from planner.sweep import Sweep, sweep
from sim.errors import InputError


def add_capacity_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner capacity`."""
    _add_plan(parser)
    parser.add_argument("--rate", type=float, metavar="RPS", help="for the fewest replicas (default: the plan's own)")


def add_sweep_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner sweep`."""
    _add_plan(parser)
    parser.add_argument("--points", type=int, default=12, metavar="N", help="rates to simulate (default: 12)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the curves, to a .png or .svg")


def _add_plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", type=Path, metavar="PLAN", help="the plan.yaml, with its `slo`")
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE", help="override a field of PLAN"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON (- for the output)")


def _prober(args: argparse.Namespace) -> Prober:
    from planner.plan import load_plan

    return Prober(load_plan(args.plan, args.overrides))


def run_capacity(args: argparse.Namespace) -> int:
    """Find and print both capacities. Returns 0."""
    if args.rate is not None and not 0 < args.rate < float("inf"):
        raise InputError("--rate", f"must be a number greater than 0, got {args.rate:g}")
    check_outputs(args, "--json")
    prober = _prober(args)
    rate = args.rate or prober.base_rps
    found = max_rate(prober)
    replicas, tried = fewest_replicas(prober, rate)
    deployment = prober.plan.deployment
    gpus = None if replicas is None else gpu_count(deployment | {"replicas": replicas})
    document = {
        "max_rate_rps": found.max_rate_rps,
        "broken_at_rps": found.broken_at_rps,
        "tolerance": TOLERANCE,
        "limited_by": found.limited_by,
        "rate_rps": rate,
        "min_replicas": replicas,
        "min_gpus": gpus,
        "simulations": len(found.probes) + len(tried),
        "probes": [{"rate_rps": p.rate_rps, "holds": p.holds, "cut_short": p.cut_short} for p in found.probes],
    }
    if not _write(args, document):
        kind = "decode replica" if deployment["prefill_replicas"] else "replica"
        _print_capacity(found, replicas, gpus, rate, document["simulations"], kind)
    return 0


def _print_capacity(
    found: Capacity, replicas: int | None, gpus: int | None, rate: float, simulations: Any, kind: str
) -> None:
    if found.max_rate_rps:
        at = f"; at {found.broken_at_rps:.4g} it does not hold" if found.broken_at_rps is not None else ""
        print(f"Carries {found.max_rate_rps:.4g} requests/s within its SLO{at}.")
    else:
        print("Carries no rate within its SLO.")
    print(f"What gives way: {found.limited_by}.")
    if replicas is None:
        print(f"No number of {kind}s carries {rate:.4g} requests/s.")
    else:
        s = "" if replicas == 1 else "s"
        print(f"For {rate:.4g} requests/s it takes {replicas} {kind}{s} ({gpus} GPUs), and no fewer.")
    print(f"{simulations} simulations.")


def run_sweep(args: argparse.Namespace) -> int:
    """Simulate, print, draw. Returns 0."""
    if args.points < 3:
        raise InputError("--points", f"must be at least 3, got {args.points}")
    if args.plot is not None and args.plot.suffix not in (".png", ".svg"):
        raise InputError("--plot", f"must end in .png or .svg, got {args.plot}")
    check_outputs(args, "--json", "--plot")
    prober = _prober(args)
    found = sweep(prober, args.points)
    if args.plot is not None:
        from planner.report.pareto import png, svg
        from planner.report.sweep_plot import sweep_figure
        from planner.store import write_atomically

        figure = sweep_figure(found, prober.plan)
        write_atomically(args.plot, svg(figure) if args.plot.suffix == ".svg" else png(figure))
    if not _write(args, found.document()):
        _print_sweep(found)
    return 0


def _write(args: argparse.Namespace, document: dict[str, Any]) -> bool:
    """Write the JSON where it was asked for; whether it went to the output."""
    from planner.store import to_json, write_atomically

    if args.json is not None and str(args.json) != "-":
        write_atomically(args.json, to_json(document))
    if str(args.json) == "-":
        print(to_json(document), end="")
    return str(args.json) == "-"


def _print_sweep(found: Sweep) -> None:
    from rich.console import Console

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
    console = Console(highlight=False)
    console.print(rows)
    console.print(f"Carries {found.max_rate_rps:.4g} requests/s within its SLO; the knee is at {found.knee_rps:.4g}.")
