"""What `planner explain` and `planner sensitivity` share: a plan of a run, figures as JSON, a picture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.commands._options import add_results, check_outputs, check_picture, write_picture
from planner.commands._terminal import console
from sim.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from planner.store import Run


def add_plan_of_run(parser: argparse.ArgumentParser, command: str, figures: str) -> None:
    """A run, one of its plans, and where the `figures` and the picture of `command` go."""
    add_results(parser)
    parser.add_argument("plan_id", nargs="?", metavar="PLAN", help="a plan's id (default: the recommended plan)")
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"write every {figures} as JSON (- for the output)")
    text = f"the picture, .png or .svg (default: RESULTS/{command}-PLAN.png)"
    parser.add_argument("--out", type=Path, metavar="FILE", help=text)


def run_and_plan(args: argparse.Namespace) -> tuple[Run, dict[str, Any]]:
    """The run and the evaluation of the plan that was asked for. Raises InputError."""
    from planner.report import verdict
    from planner.run_plans import evaluation_of
    from planner.store import load_run

    check_picture(args.out, "--out")
    check_outputs(args, "--json", "--out")
    found = load_run(args.results)
    if args.plan_id is not None:
        return found, evaluation_of(found, args.plan_id)
    recommended = verdict.recommended(found)
    if recommended is None:
        raise InputError("PLAN", "is needed: no plan of this run is feasible; `planner show` says what comes nearest")
    return found, dict(recommended)


def draw(args: argparse.Namespace, command: str, plan_id: str, figure: Figure) -> None:
    """Write the picture to where it was asked for, or beside the run, and say where."""
    from planner.report.layout import line

    out = args.out or args.results / f"{command}-{plan_id}.png"
    write_picture(out, figure)
    line(console(), f"Picture: {out}")
