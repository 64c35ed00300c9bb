"""`planner workload describe`: what a workload, or a trace of real traffic, is like before anything is deployed."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.commands._options import add_set, check_outputs, check_picture, write_json, write_picture
from planner.commands._terminal import DONE, console, warn
from planner.documents import apply_overrides, check_number, load_document
from sim.errors import InputError

if TYPE_CHECKING:
    from sim.workload import Workload

DOCUMENTS = (".yaml", ".yml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subcommands of `planner workload`."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=type(parser))
    text = "print a workload's rates, burstiness, lengths and prefix sharing, and draw them"
    command = commands.add_parser("describe", help=text, description=text[0].upper() + text[1:] + ".")
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    command.add_argument("file", type=Path, metavar="FILE", help="a space.yaml, a plan.yaml, or a trace")
    command.add_argument("--format", metavar="NAME", help="the trace's format (default: guessed)")
    add_set(command, "workload.arrival_scale=0.5")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the numbers as JSON (- for the output)")
    command.add_argument("--plot", type=Path, metavar="FILE", help="draw them, to a .png or .svg")


def run(args: argparse.Namespace) -> int:
    """Describe, print, draw. Returns 0; raises InputError."""
    check_picture(args.plot, "--plot")
    workload = _load(args.file, args.format, args.overrides)

    from planner.steady import rising_load
    from sim.workload.describe import describe

    check_outputs(args, "--json", "--plot")
    found = describe(workload)
    if args.plot is not None:
        from planner.report.workload_plot import workload_figure

        write_picture(args.plot, workload_figure(workload, args.file.name))
    if not write_json(args.json, asdict(found)):
        from planner.report.layout import line
        from planner.report.workload_table import print_description

        print_description(console(), found, workload.users)
        if args.plot is not None:
            line(console(), f"Picture: {args.plot}")
    rising = rising_load(workload)
    if rising is not None:
        warn(rising)
    return DONE


def _load(file: Path, format: str | None, overrides: list[str]) -> Workload:
    """The requests that `file` describes or holds. A YAML file without a `workload` heads a TraceV2 trace."""
    try:
        if file.suffix in DOCUMENTS and format is None:
            document = load_document(file)
            if "workload" in document:
                apply_overrides(document, overrides)
                return _of_document(document, file.parent)
        trace: dict[str, Any] = {"trace": str(file)} | ({} if format is None else {"format": format})
        document = {"workload": trace}
        apply_overrides(document, overrides)
        return _of_trace(document)
    except InputError as error:
        # An option is no matter of the file, and a reader names the file itself.
        if error.field.startswith("--") or error.field == "workload.trace":
            raise InputError(error.field.removeprefix("workload."), error.problem) from None
        raise InputError(f"{file}: {error.field}" if error.field else str(file), error.problem) from None


def _of_document(document: dict[str, Any], folder: Path) -> Workload:
    from planner.plan import make_workload

    search = document.get("search")
    seed: Any = document.get("seed", search.get("seed", 0) if isinstance(search, dict) else 0)
    check_number(seed, "seed" if "seed" in document else "search.seed", whole=True, minimum=0, maximum=2**63 - 1)
    return make_workload(document["workload"], folder, seed)


def _of_trace(document: dict[str, Any]) -> Workload:
    try:
        return _of_document(document, Path())
    except InputError as error:
        if error.field != "workload.arrival" or "arrival" in document["workload"]:
            raise
    # Lengths without times: what one user would send, one request after the other.
    document["workload"]["arrival"] = {"process": "closed", "users": 1}
    return _of_document(document, Path())
