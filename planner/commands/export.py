"""`planner export`: the best plans of a run as files for real systems."""

from __future__ import annotations

import argparse
from pathlib import Path

from planner.commands._options import add_results, positive
from planner.commands._terminal import DONE, warn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner export`."""
    add_results(parser)
    parser.add_argument("--top-k", type=positive, default=3, metavar="K", help="how many plans (default: 3)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: RESULTS/export)")
    parser.add_argument("--target", default="vllm", help="what to write for (default: vllm)")


def run(args: argparse.Namespace) -> int:
    """Write the files and print their paths. Returns 0; raises InputError."""
    from planner.export import export_plans

    paths = export_plans(args.results, args.top_k, args.out or args.results / "export", target=args.target)
    for path in paths:
        print(path)
    if len(paths) < args.top_k:
        s = "" if len(paths) == 1 else "s"
        warn(f"the front has only {len(paths)} distinct plan{s} (of plans with the same figures one is written)")
    return DONE
