"""`planner sensitivity`: which parameter of a plan moves what, by simulating every option of each."""

from __future__ import annotations

import argparse
from pathlib import Path

from sim.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner sensitivity`."""
    parser.add_argument("results", type=Path, metavar="RESULTS", help="a run directory that `planner search` wrote")
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a plan's id (default: the recommended plan)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every option as JSON (- for the output)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the picture, .png or .svg (default: RESULTS/sensitivity-PLAN.png)"
    )


def run(args: argparse.Namespace) -> int:
    """Simulate what the run did not, print the table, and draw. Returns 0."""
    from rich.console import Console

    from planner.report import names, tornado, verdict
    from planner.report.layout import line, table
    from planner.report.pareto import png, svg
    from planner.run_plans import evaluation_of, space_of_run
    from planner.sensitivity import all_options, effects, metrics_of
    from planner.store import check_outputs, load_run, to_json, write_atomically

    if args.out is not None and args.out.suffix not in (".png", ".svg"):
        raise InputError("--out", f"must end in .png or .svg, got {args.out}")
    check_outputs(args, "--json", "--out")
    found = load_run(args.results)
    recommended = verdict.recommended(found)
    if args.plan is None and recommended is None:
        raise InputError("PLAN", "is needed: no plan of this run is feasible; `planner show` says what comes nearest")
    base = evaluation_of(found, args.plan) if args.plan is not None else recommended
    assert base is not None
    if not base["simulated"]:
        raise InputError("PLAN", f"was not simulated: {base['why_not']}")
    with Console(stderr=True).status("simulating"):
        options = all_options(found, space_of_run(found), base)
    metrics = metrics_of(found)
    moved = effects(base, options, metrics)
    text = to_json({"id": base["id"], **tornado.document(moved, found.objectives)})
    if str(args.json) == "-":
        print(text, end="")
        return 0
    if args.json is not None:
        write_atomically(args.json, text)
    console = Console(highlight=False)
    title = f"{names.plan_label(base['parameters'])} {base['id']} on {base['parameters']['gpu']}"
    line(console, title, style="bold")
    grid = table()
    for heading in tornado.HEADINGS:
        grid.add_column(heading, justify="right" if heading == "Swing" else "left", overflow="fold")
    for row in tornado.rows(moved, metrics):
        grid.add_row(*row, style=None if row[0].startswith(" ") else "bold")
    console.print(grid)
    line(console, tornado.sentence(moved, found.objectives))
    out = args.out or args.results / f"sensitivity-{base['id']}.png"
    figure = tornado.tornado_figure(moved, _panels(found.objectives, found.constraints), f"What moves {title}")
    write_atomically(out, svg(figure) if out.suffix == ".svg" else png(figure))
    line(console, f"Picture: {out}")
    return 0


def _panels(
    objectives: list[tuple[str, str]], constraints: list[tuple[str, str, float]], most: int = 4
) -> list[tuple[str, str]]:
    """The metrics to draw, each with the sense in which it is better: objectives, then what is constrained."""
    senses = dict(objectives)
    for metric, operator, _ in constraints:
        senses.setdefault(metric, "min" if operator in ("<=", "<") else "max")
    return list(senses.items())[:most]
