"""`planner compare`: two plans side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from planner.commands._options import check_outputs, check_picture, write_json, write_picture
from planner.commands._terminal import DONE, console

if TYPE_CHECKING:
    from planner.compare import Side


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner compare`."""
    for name in ("a", "b"):
        text = "a plan.yaml, or a run directory (its recommended plan)"
        parser.add_argument(name, type=Path, metavar=name.upper(), help=text)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the comparison as JSON (- for the output)")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="latency CDFs, queue and batch over time (.png or .svg)"
    )


def run(args: argparse.Namespace) -> int:
    """Simulate both, print, and write what was asked for. Returns 0; raises InputError."""
    from planner.compare import comparison_dict, side
    from planner.report.layout import line

    check_picture(args.plot, "--plot")
    check_outputs(args, "--json", "--plot")
    first, second = side(args.a), side(args.b)
    if first.name == second.name:
        first.name, second.name = f"A: {first.name}", f"B: {second.name}"
    if args.plot is not None:
        from planner.report.timelines import comparison_figure

        write_picture(args.plot, comparison_figure([(first.name, first.result), (second.name, second.result)]))
    if not write_json(args.json, comparison_dict(first, second)):
        _print_comparison(first, second)
        if args.plot is not None:
            line(console(), f"Picture: {args.plot}")
    return DONE


def _print_comparison(first: Side, second: Side) -> None:
    """The parameters that differ, then the metrics with what B changes."""
    from planner.compare import change_words, differing, pairwise, shown_metrics
    from planner.report import names
    from planner.report.layout import line, table

    grid = table()
    for heading in ("", first.name, second.name, "B against A"):
        grid.add_column(heading, justify="right" if heading else "left")
    for name, ours, theirs in differing(first, second):
        grid.add_row(name, ours, theirs, "")
    grid.add_row("saturation", first.saturation, second.saturation, "")
    grid.add_section()
    for metric in shown_metrics(first, second):
        a, b = first.metrics.get(metric), second.metrics.get(metric)
        if a is None and b is None:
            continue
        grid.add_row(names.axis_label(metric), names.number(a), names.number(b), change_words(metric, a, b))
    console().print(grid)
    shares = pairwise(first, second)
    if shares:
        words = {"ttft": "first token", "tpot": "token rate", "e2e": "whole answer"}
        text = ", ".join(f"{words[name]} {names.percent(share)}" for name, share in shares.items())
        line(console(), f"Of the requests that both serve, B is faster for: {text}.")
    else:
        line(console(), "They serve different requests: figures, not requests, are compared.")
