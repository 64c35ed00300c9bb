"""`planner plot`: the pictures of a run, as PNG or SVG."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from planner.commands._options import add_results, check_picture, write_picture
from planner.commands._terminal import DONE
from sim.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from planner.store import Run

KINDS = ("front", "parallel", "latency", "replicas")
MOST_PLANS = 4  # latency curves in one picture


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner plot`."""
    add_results(parser)
    parser.add_argument(
        "--kind",
        choices=KINDS,
        default="front",
        help="the front; every plan by its settings; latencies of plans; a plan's replicas over time (default: front)",
    )
    parser.add_argument(
        "--plan",
        dest="plans",
        action="append",
        default=[],
        metavar="ID",
        help="a plan to draw, for latency (repeat it for more) and replicas (default: the recommended one)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="a .png or .svg (default: RESULTS/pareto.png, or RESULTS/KIND.png)"
    )


def run(args: argparse.Namespace) -> int:
    """Draw what was asked for and print its path. Returns 0; raises InputError."""
    from planner.store import check_output, load_run

    out = args.out or args.results / ("pareto.png" if args.kind == "front" else f"{args.kind}.png")
    check_picture(out, "--out")
    if args.plans and args.kind not in ("latency", "replicas"):
        raise InputError("--plan", f"has no meaning with --kind {args.kind}, which draws every plan")
    most = MOST_PLANS if args.kind == "latency" else 1
    if len(args.plans) > most:
        raise InputError("--plan", f"at most {most} with --kind {args.kind}, got {len(args.plans)}")
    check_output(out, "--out")
    write_picture(out, _figure(load_run(args.results), args.kind, args.plans))
    print(out)
    return DONE


def _figure(found: Run, kind: str, plans: list[str]) -> Figure:
    from planner.report import names, verdict

    if kind == "front":
        from planner.report.pareto import pareto_figure

        return pareto_figure(found)
    if kind == "parallel":
        from planner.report.parallel import parallel_figure

        return parallel_figure(found)
    from planner.plan import simulate_plan
    from planner.run_plans import plan_of_run

    if not plans:
        recommended = verdict.recommended(found)
        if recommended is None:
            raise InputError("--plan", "is needed: the run has no feasible plan to draw")
        plans = [recommended["id"]]
    runs = []
    for plan_id in plans:
        plan = plan_of_run(found, plan_id)
        label = f"{names.plan_label(plan.deployment)} {plan_id}"
        runs.append((label, simulate_plan(plan, sampled=kind == "replicas")))
    if kind == "replicas":
        from planner.report.replica_timelines import replica_figure

        return replica_figure(*runs[0])
    from planner.report.timelines import comparison_figure

    return comparison_figure(runs)
