"""What `planner capacity` and `planner sweep` share: a plan, offered other rates."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from planner.commands._options import add_set
from planner.commands._terminal import warn

if TYPE_CHECKING:
    from planner.capacity import Prober


def add_plan(parser: argparse.ArgumentParser) -> None:
    """The plan, what of it to override, and where the JSON goes."""
    text = "a plan.yaml with its `slo`, or a run directory (its recommended plan)"
    parser.add_argument("plan", type=Path, metavar="PLAN", help=text)
    add_set(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON (- for the output)")


def prober(args: argparse.Namespace) -> Prober:
    """The plan's prober. Raises InputError."""
    from planner.capacity import Prober
    from planner.policy_path import find_policies
    from planner.run_plans import plan_at

    find_policies(args.plan.parent, Path.cwd())
    plan = plan_at(args.plan, args.overrides).plan
    if plan.workload.get("time_limit_s") is not None:
        # A clock that ends the run would hide an overload; without it every request is served, and counts.
        workload = {name: value for name, value in plan.workload.items() if name != "time_limit_s"}
        plan = dataclasses.replace(plan, workload=workload)
        warn("the workload's time_limit_s is left out: a rate is judged by all requests, served to the last")
    return Prober(plan)
