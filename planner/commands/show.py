"""`planner show`: the front of a run."""

from __future__ import annotations

import argparse

from planner.commands._options import add_results as add_arguments
from planner.commands._terminal import DONE, console

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Print the front. Returns 0; raises InputError."""
    from planner.report.console import print_front
    from planner.store import load_run

    print_front(console(), load_run(args.results))
    return DONE
