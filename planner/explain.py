"""`planner explain`: what limits a plan of a run, by simulating it again with one thing changed at a time."""

from __future__ import annotations

import argparse
from pathlib import Path

from sim.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner explain`."""
    parser.add_argument("results", type=Path, metavar="RESULTS", help="a run directory that `planner search` wrote")
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a plan's id (default: the recommended plan)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write every counterfactual as JSON (- for the output)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the picture, .png or .svg (default: RESULTS/explain-PLAN.png)"
    )


def run(args: argparse.Namespace) -> int:
    """Simulate, print the sentences, and draw. Returns 0."""
    from rich.console import Console

    from planner.counterfactuals import what_if
    from planner.report import names, verdict
    from planner.report import what_if as words
    from planner.report.layout import line
    from planner.report.pareto import png, svg
    from planner.run_plans import evaluation_of, plan_of_run
    from planner.store import check_outputs, load_run, to_json, write_atomically

    if args.out is not None and args.out.suffix not in (".png", ".svg"):
        raise InputError("--out", f"must end in .png or .svg, got {args.out}")
    check_outputs(args, "--json", "--out")
    found = load_run(args.results)
    recommended = verdict.recommended(found)
    if args.plan is None and recommended is None:
        raise InputError("PLAN", "is needed: no plan of this run is feasible; `planner show` says what comes nearest")
    plan_id = args.plan if args.plan is not None else str(recommended["id"])  # type: ignore[index]
    parameters = evaluation_of(found, plan_id)["parameters"]
    console = Console(highlight=False)
    with Console(stderr=True).status("simulating") as status:
        answer = what_if(plan_of_run(found, plan_id), lambda name: status.update(f"simulating: {name}"))
    metrics = words.shown_metrics(verdict.ttft_metric(found), verdict.tpot_metric(found))
    if args.json is not None:
        text = to_json({"id": plan_id, **words.what_if_dict(answer, metrics)})
        if str(args.json) == "-":
            print(text, end="")
            return 0
        write_atomically(args.json, text)
    title = f"{names.plan_label(parameters)} {plan_id} on {parameters['gpu']}"
    line(console, f"{title} ({answer.saturation})", style="bold")
    for sentence in words.sentences(answer, metrics):
        line(console, f"- {sentence}", indent=2)
    out = args.out or args.results / f"explain-{plan_id}.png"
    figure = words.what_if_figure(answer, f"What limits {title}", metrics)
    write_atomically(out, svg(figure) if out.suffix == ".svg" else png(figure))
    line(console, f"Picture: {out}")
    return 0
