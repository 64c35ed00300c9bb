"""`planner runs`: the runs in a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from planner.commands._terminal import DONE
from sim.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner runs`."""
    text = "where runs are (default: results)"
    parser.add_argument("folder", type=Path, nargs="?", default=Path("results"), help=text)


def run(args: argparse.Namespace) -> int:
    """Print a line for each run below a folder. Returns 0; raises InputError."""
    from planner.counts import counts_words
    from planner.store import MANIFEST, read_manifest

    if not args.folder.is_dir():
        raise InputError("folder", f"{args.folder} is not a directory")
    found = False
    for path in sorted(args.folder.rglob(MANIFEST)):
        manifest = read_manifest(path.parent)
        found = True
        kind = "exact" if manifest.get("exact") else "not exact"
        parts = [manifest.get("status", "?"), str(manifest.get("method", "?")), counts_words(manifest)]
        parts += [f"{manifest.get('feasible', 0):,} feasible", f"front {manifest.get('front', 0):,}", kind]
        print(f"{path.parent}: {', '.join(parts)}, {manifest.get('wall_time_s', 0):g} s")
    if not found:
        print(f"no runs in {args.folder}")
    return DONE
