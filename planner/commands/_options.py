"""Options that several commands have, and what they do with them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sim.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 1_000  # workers, or plans to export


def add_results(parser: argparse.ArgumentParser) -> None:
    """The run directory that a command reads."""
    parser.add_argument("results", type=Path, metavar="RESULTS", help="a run directory that `planner search` wrote")


def add_set(parser: argparse.ArgumentParser, example: str = "workload.arrival.rate_rps=8") -> None:
    """`--set PATH=VALUE`, for `planner.documents.apply_overrides`."""
    text = f"override a field, as --set {example}; repeat it for more"
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE", help=text)


def positive(text: str) -> int:
    """A whole number from 1 to MOST."""
    if not text.isdecimal() or not 1 <= int(text[:20]) <= MOST:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MOST:,}, got {text[:20]!r}")
    return int(text)


def check_outputs(args: argparse.Namespace, *options: str) -> None:
    """Raise InputError unless what each of these options names can be written to; - is the output."""
    from planner.store import check_output

    for option in options:
        path = getattr(args, option.removeprefix("--"))
        if path is not None and str(path) != "-":
            check_output(Path(path), option)


def check_picture(path: Path | None, option: str) -> None:
    """Raise InputError unless a picture can be written to `path`, if there is one."""
    if path is not None and path.suffix not in (".png", ".svg"):
        raise InputError(option, f"must end in .png or .svg, got {path}")


def write_picture(path: Path, figure: Figure) -> None:
    """Write `figure` as what the path's suffix says."""
    from planner.report.pareto import png, svg
    from planner.store import write_atomically

    write_atomically(path, svg(figure) if path.suffix == ".svg" else png(figure))


def write_json(path: Path | None, document: object) -> bool:
    """Write `document` to where `--json` says; whether that was the output, which then holds nothing else."""
    from planner.store import to_json, write_atomically

    if path is None:
        return False
    if str(path) == "-":
        print(to_json(document), end="")
        return True
    write_atomically(path, to_json(document))
    return False
