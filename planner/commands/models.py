"""`planner models`: the models of the catalog."""

from __future__ import annotations

import argparse

from planner.commands._terminal import DONE, console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`planner models` has none."""


def run(args: argparse.Namespace) -> int:
    """Print them. Returns 0."""
    from planner.report.console import print_models

    print_models(console())
    return DONE
