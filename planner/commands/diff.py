"""`planner diff`: what changed from the front of one run to that of another, and why."""

from __future__ import annotations

import argparse
from pathlib import Path

from planner.commands._terminal import DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner diff`."""
    parser.add_argument("before", type=Path, metavar="A", help="a run directory")
    parser.add_argument("after", type=Path, metavar="B", help="another")


def run(args: argparse.Namespace) -> int:
    """Print what the front of run B has that A's has not, and the other way round, with the reasons. Returns 0."""
    from planner.differences import differences
    from planner.store import load_run

    for line in differences(load_run(args.before), load_run(args.after)):
        print(line)
    return DONE
