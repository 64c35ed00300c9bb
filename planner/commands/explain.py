"""`planner explain`: what limits a plan of a run, by simulating it again with one thing changed at a time."""

from __future__ import annotations

import argparse

from planner.commands._analysis import add_plan_of_run, draw, run_and_plan
from planner.commands._options import write_json
from planner.commands._terminal import DONE, console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner explain`."""
    add_plan_of_run(parser, "explain", "counterfactual")


def run(args: argparse.Namespace) -> int:
    """Simulate, print the sentences, and draw. Returns 0; raises InputError."""
    from planner.counterfactuals import what_if
    from planner.report import names, verdict
    from planner.report import what_if as words
    from planner.report.layout import line
    from planner.run_plans import plan_of_run

    found, evaluation = run_and_plan(args)
    plan_id, parameters = evaluation["id"], evaluation["parameters"]
    with console(stderr=True).status("simulating") as status:
        answer = what_if(plan_of_run(found, plan_id), lambda name: status.update(f"simulating: {name}"))
    metrics = words.shown_metrics(verdict.ttft_metric(found), verdict.tpot_metric(found))
    if write_json(args.json, {"id": plan_id, **words.what_if_dict(answer, metrics)}):
        return DONE
    title = f"{names.plan_label(parameters)} {plan_id} on {parameters['gpu']}"
    line(console(), f"{title} ({answer.saturation})", style="bold")
    for sentence in words.sentences(answer, metrics):
        line(console(), f"- {sentence}", indent=2)
    draw(args, "explain", plan_id, words.what_if_figure(answer, f"What limits {title}", metrics))
    return DONE
