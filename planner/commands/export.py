"""`planner export`: the best plans of a run as files for real systems."""

from __future__ import annotations

import argparse
from pathlib import Path

from planner.commands._options import add_results, positive
from planner.commands._terminal import DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner export`."""
    add_results(parser)
    parser.add_argument("--top-k", type=positive, default=3, metavar="K", help="how many plans (default: 3)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: RESULTS/export)")
    parser.add_argument("--target", default="vllm", help="what to write for (default: vllm)")


def run(args: argparse.Namespace) -> int:
    """Write the files and print their paths. Returns 0; raises InputError."""
    from planner.export import export_plans

    for path in export_plans(args.results, args.top_k, args.out or args.results / "export", target=args.target):
        print(path)
    return DONE
