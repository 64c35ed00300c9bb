"""What the command line shows of a run: the front, the recommended plan, and what limits each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from planner.goals import CAPACITY_METRICS
from planner.parameters import DEFAULTS
from planner.report import content, explain, names, verdict
from planner.report.catalog import print_hardware, print_models
from planner.report.layout import line, star, table
from planner.report.result import print_result

if TYPE_CHECKING:
    from rich.console import Console

    from planner.store import Run

__all__ = ["print_front", "print_hardware", "print_models", "print_result", "summary_line"]

WIDE = 116  # columns from which the settings fit into the table
MAX_ROWS = 12

Group = tuple[verdict.Evaluation, list[verdict.Evaluation]]


def print_front(console: Console, run: Run) -> None:
    """The run's answer: the front with the recommended plan starred, or what came nearest where nothing is feasible."""
    _print_title(console, run)
    groups = verdict.distinct(run, verdict.front(run))
    if groups:
        _print_plans(console, run, groups[:MAX_ROWS], starred=True)
        if len(groups) > MAX_ROWS:
            line(console, f"The front has {len(groups)} plans; the first {MAX_ROWS} are shown, front.csv has all.")
        words = f"{verdict.rule(run)}. {verdict.passed_over(run)}".rstrip()
        line(console, f"{star(console)} recommended: {words}", indent=2)
        short = sum(bool(plan.get("may_carry_more")) for plan in run.front_evaluations())
        if short:
            line(console, f"{short} plans of the front may carry more: {content.SHORT}.", indent=2)
    else:
        _print_nothing_feasible(console, run)
    line(console, summary_line(run))


def summary_line(run: Run) -> str:
    """Counts, exactness and time of a run on one line."""
    feasible = sum(bool(plan["feasible"]) for plan in run.evaluations)
    unfinished = {"running": "the search has not ended", "interrupted": "the search was interrupted"}
    sampled = "some simulations failed" if run.manifest.get("failed") else "candidates sampled"
    why_not = unfinished.get(run.manifest.get("status", ""), sampled)
    exact = "exact (every candidate simulated or ruled out)" if run.exact else f"not exact ({why_not})"
    wall = run.manifest.get("wall_time_s")
    time = f"; {names.number(wall)} s" if wall is not None else ""
    simulated = sum(bool(plan["simulated"]) for plan in run.evaluations)
    stopped = sum(bool(e.get("stopped_early")) for e in run.evaluations)
    more = f", {names.number(stopped)} stopped early" if stopped else ""
    carried = any(verdict.asks(run, metric) for metric in CAPACITY_METRICS)
    trials = run.manifest.get("trials") if carried else None
    more += f", {names.number(trials)} more times at other rates" if trials else ""
    ruled_out = f" ({names.number(simulated)} simulated{more})" if more or simulated < len(run.evaluations) else ""
    return (
        f"{names.number(len(run.evaluations))} evaluated{ruled_out}, {names.number(feasible)} feasible, "
        f"{names.number(len(run.front))} on the front; {exact}{time}."
    )


def _print_title(console: Console, run: Run) -> None:
    title = Text()
    title.append(str(run.name), style="bold").append(f": {run.space.get('model', '')}")
    line(console, title)
    if run.constraints:
        line(console, f"SLO: {', '.join(names.constraint(*item) for item in run.constraints)}", indent=5)
    console.print()


def _print_plans(console: Console, run: Run, groups: Sequence[Group], *, starred: bool) -> None:
    plans = [plan for plan, _ in groups]
    parameters = [plan["parameters"] for plan in plans]
    varying = [name for name in names.varying(parameters) if name != "gpu"]
    show_gpu = any(plan["gpu"] != parameters[0]["gpu"] for plan in parameters)
    wide = console.width >= WIDE
    grid = table()
    grid.add_column("", width=1)
    for heading in ("TP x\nreplicas", *(["\nGPU"] if show_gpu else []), *(["\nId"] if wide else [])):
        grid.add_column(heading, no_wrap=True)
    if wide and varying:
        grid.add_column("\nSettings", overflow="fold", ratio=1)
    ttft, tpot = verdict.ttft_metric(run), verdict.tpot_metric(run)
    carried = ["Carries\nreq/s"] if verdict.asks(run, "max_rate_rps") else []
    for heading in ("\nGPUs", "\n$/h", *carried, "Output\ntokens/s", _heading(ttft), _heading(tpot), "SLO\nheadroom"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for index, plan in enumerate(plans):
        first = starred and index == 0
        row = [star(console) if first else "", names.plan_label(plan["parameters"])]
        row += [plan["parameters"]["gpu"]] if show_gpu else []
        row += [str(plan["id"])] if wide else []
        row += [names.settings(plan["parameters"], varying)] if wide and varying else []
        grid.add_row(*row, *_figures(run, plan, ttft, tpot), style="bold" if first else None)
    console.print(grid)
    console.print()
    known = content.extras(run)
    for index, (plan, same) in enumerate(groups):
        mark = star(console) if starred and index == 0 else " "
        sure = content.certainty_sentence(run, known.get(str(plan["id"]), {}))
        _print_note(console, run, plan, same, mark, () if wide else varying, sure)
    console.print()
    _print_common(console, run, parameters[0], varying, show_gpu)


def _print_common(
    console: Console, run: Run, parameters: Mapping[str, Any], varying: Sequence[str], gpu_varies: bool
) -> None:
    """What all the plans have in common, as far as the space speaks of it or it is not vLLM's default."""
    asked = run.space.get("space") or {}
    skipped = {*varying, *names.SIZE, *(["gpu"] if gpu_varies else [])}
    shared = [
        name
        for name, value in parameters.items()
        if name not in skipped and (name in asked or value != DEFAULTS.get(name))
    ]
    if shared:
        line(console, f"Common to all: {names.settings(parameters, shared)}; the rest is vLLM's default.", indent=2)


def _figures(run: Run, plan: verdict.Evaluation, ttft: str, tpot: str) -> list[str]:
    metrics = plan["metrics"]
    margin = verdict.tightest(run, plan)
    return [
        names.number(metrics.get("gpus")),
        names.money(metrics.get("cost_per_hour")),
        *([names.number(metrics.get("max_rate_rps"))] if verdict.asks(run, "max_rate_rps") else []),
        names.number(metrics.get("output_tokens_per_s")),
        names.number(metrics.get(ttft)),
        names.number(metrics.get(tpot)),
        "-" if margin is None else names.percent(margin.headroom),
    ]


def _print_note(
    console: Console,
    run: Run,
    plan: verdict.Evaluation,
    same: Sequence[verdict.Evaluation],
    mark: str,
    shown: Sequence[str],
    sure: str,
) -> None:
    note = Text(f"{mark} ").append(f"{names.plan_label(plan['parameters'])} {plan['id']}", style="bold").append("  ")
    inline = names.settings(plan["parameters"], shown)
    note.append(f"{inline}. " if inline else "").append(explain.limit_sentence(run, plan))
    if sure:
        note.append(f" {sure}")
    if same:
        ids = ", ".join(str(other["id"]) for other in same[:3])
        note.append(f" Same figures: {ids}{f' and {len(same) - 3} more' if len(same) > 3 else ''}.")
    line(console, note, indent=6)


def _print_nothing_feasible(console: Console, run: Run) -> None:
    line(console, "No plan meets the SLO.", style="bold")
    simulated = sum(bool(plan["simulated"]) for plan in run.evaluations)
    for text, count, alone in verdict.binding(run):
        only = f"; for {names.number(alone)} of them it is the only obstacle" if alone else ""
        line(
            console,
            f"  {text}: broken by {names.number(count)} of {names.number(simulated)} simulated plans{only}.",
            indent=4,
        )
    for reason, count in verdict.refusals(run)[:3]:
        line(console, f"  {names.number(count)} not simulated: {reason}.", indent=4)
    nearest = verdict.least_violating(run)
    if nearest:
        line(console, "Nearest to meeting it:")
        console.print()
        _print_plans(console, run, [(plan, []) for plan in nearest], starred=False)


def _heading(metric: str) -> str:
    head, _, statistic = metric.removesuffix("_ms").partition("_")
    return f"{head.upper()}\n{statistic} ms"
