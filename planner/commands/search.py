"""`planner search`: the best plans of a space."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.commands._options import add_set, positive
from planner.commands._terminal import DONE, FAILED, INTERRUPTED, console, fail, warn
from sim.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner search`."""
    parser.add_argument("space", type=Path, metavar="SPACE", help="the space.yaml to search")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run directory (default: results/NAME)")
    add_set(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace the run that is in the directory")
    parser.add_argument("--resume", action="store_true", help="go on with the run that is in the directory")
    executors = ("auto", "serial", "processes", "ray")
    parser.add_argument("--executor", choices=executors, help="who simulates (default: as SPACE says)")
    parser.add_argument("--workers", type=positive, metavar="N", help="at a time (default: one per processor)")
    parser.add_argument("--ray-address", metavar="ADDRESS", help="simulate on this Ray cluster, as 10.0.0.1:6379")
    parser.add_argument("--no-reuse", action="store_true", help="simulate what earlier searches simulated already")
    parser.add_argument("--quiet", action="store_true", help="no progress and no table")


def run(args: argparse.Namespace) -> int:
    """Search, keep the run, and print its front. Returns the exit code; raises InputError."""
    from planner.policy_path import find_policies
    from planner.progress import ProgressDisplay
    from planner.search.session import SearchOptions, search
    from planner.space import load_space

    if args.overwrite and args.resume:
        raise InputError("--overwrite", "contradicts --resume; give one of them")
    find_policies(args.space.parent, Path.cwd())
    space = load_space(args.space, args.overrides)
    out = args.out or Path("results") / space.name
    options = SearchOptions(
        out,
        args.overwrite,
        args.resume,
        args.executor,
        args.workers,
        ray_address=args.ray_address,
        reuse=not args.no_reuse,
        warn=warn,
    )
    with ProgressDisplay(console(stderr=True), args.quiet) as display:
        found = search(space, options, display)
    if not args.quiet:
        from planner.report.console import print_front

        print_front(console(), found)
        _warn_of_failures(found.evaluations)
        console().print(f"Results: {out}", soft_wrap=True)
    if found.manifest["interrupted"]:
        return fail(f"interrupted; {len(found.evaluations)} evaluations kept in {out}, --resume goes on", INTERRUPTED)
    every_one_failed = found.evaluations and all(evaluation.get("failed") for evaluation in found.evaluations)
    return FAILED if every_one_failed else DONE


def _warn_of_failures(evaluations: Sequence[Mapping[str, Any]]) -> None:
    failed = [evaluation for evaluation in evaluations if evaluation.get("failed")]
    if failed:
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        warn(f"{failed[0]['id']}{more}: {failed[0]['why_not']}")
