"""What `planner capacity` and `planner sweep` share: a plan, offered other rates."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from planner.commands._options import add_set

if TYPE_CHECKING:
    from planner.capacity import Prober


def add_plan(parser: argparse.ArgumentParser) -> None:
    """The plan, what of it to override, and where the JSON goes."""
    parser.add_argument("plan", type=Path, metavar="PLAN", help="the plan.yaml, with its `slo`")
    add_set(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON (- for the output)")


def prober(args: argparse.Namespace) -> Prober:
    """The plan's prober. Raises InputError."""
    from planner.capacity import Prober
    from planner.plan import load_plan
    from planner.policy_path import find_policies

    find_policies(args.plan.parent, Path.cwd())
    return Prober(load_plan(args.plan, args.overrides))
