"""`planner sensitivity`: which parameter of a plan moves what, by simulating every option of each."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from planner.commands._analysis import add_plan_of_run, draw, run_and_plan
from planner.commands._options import write_json
from planner.commands._terminal import DONE, console
from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.sensitivity import Effect


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner sensitivity`."""
    add_plan_of_run(parser, "sensitivity", "option")


def run(args: argparse.Namespace) -> int:
    """Simulate what the run did not, print the table, and draw. Returns 0; raises InputError."""
    from planner.report import names, tornado
    from planner.report.layout import line
    from planner.run_plans import space_of_run
    from planner.sensitivity import all_options, effects, metrics_of

    found, base = run_and_plan(args)
    if not base["simulated"]:
        raise InputError("PLAN", f"was not simulated: {base['why_not']}")
    with console(stderr=True).status("simulating"):
        options = all_options(found, space_of_run(found), base)
    metrics = metrics_of(found)
    moved = effects(base, options, metrics)
    if write_json(args.json, {"id": base["id"], **tornado.document(moved, found.objectives)}):
        return DONE
    title = f"{names.plan_label(base['parameters'])} {base['id']} on {base['parameters']['gpu']}"
    line(console(), title, style="bold")
    _print_table(moved, metrics)
    line(console(), tornado.sentence(moved, found.objectives))
    panels = _panels(found.objectives, found.constraints)
    draw(args, "sensitivity", base["id"], tornado.tornado_figure(moved, panels, f"What moves {title}"))
    return DONE


def _print_table(moved: Sequence[Effect], metrics: Sequence[str]) -> None:
    from planner.report import tornado
    from planner.report.layout import table

    grid = table()
    for heading in tornado.HEADINGS:
        grid.add_column(heading, justify="right" if heading == "Swing" else "left", overflow="fold")
    for row in tornado.rows(moved, metrics):
        grid.add_row(*row, style=None if row[0].startswith(" ") else "bold")
    console().print(grid)


def _panels(
    objectives: list[tuple[str, str]], constraints: list[tuple[str, str, float]], most: int = 4
) -> list[tuple[str, str]]:
    """The metrics to draw, each with the sense in which it is better: objectives, then what is constrained."""
    senses = dict(objectives)
    for metric, operator, _ in constraints:
        senses.setdefault(metric, "min" if operator in ("<=", "<") else "max")
    return list(senses.items())[:most]
