"""`planner hardware`: the GPUs of the catalog."""

from __future__ import annotations

import argparse

from planner.commands._terminal import DONE, console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`planner hardware` has none."""


def run(args: argparse.Namespace) -> int:
    """Print them. Returns 0."""
    from planner.report.console import print_hardware

    print_hardware(console())
    return DONE
