"""What the command line shows of a run: the front, the recommended plan, and what limits each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from planner.counts import counts_words, outcome_counts
from planner.goals import CAPACITY_METRICS
from planner.parameters import DEFAULTS
from planner.report import content, explain, names, reasons, verdict
from planner.report.catalog import print_hardware, print_models
from planner.report.kinds import best_of_kinds
from planner.report.layout import line, star
from planner.report.plan_columns import ID, Group, columns, fitted
from planner.report.result import print_result

if TYPE_CHECKING:
    from rich.console import Console

    from planner.store import Run

__all__ = ["print_front", "print_hardware", "print_models", "print_result", "summary_line"]

MAX_ROWS = 12
MAX_REASONS = 6


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
    for kind, words in best_of_kinds(run):
        line(console, f"Best with {kind}: {words}.", indent=2)
    if run.manifest.get("rising_load"):
        line(console, f"Caution: {run.manifest['rising_load']}.", indent=2)
    line(console, summary_line(run))


def summary_line(run: Run) -> str:
    """Counts, exactness and time of a run on one line."""
    counts = outcome_counts(run.evaluations)
    unfinished = {"running": "the search has not ended", "interrupted": "the search was interrupted"}
    sampled = "some simulations failed" if run.manifest.get("failed") else "candidates sampled"
    why_not = unfinished.get(run.manifest.get("status", ""), sampled)
    exact = "exact (every candidate simulated or ruled out)" if run.exact else f"not exact ({why_not})"
    wall = run.manifest.get("wall_time_s")
    time = f"; {names.number(wall)} s" if wall is not None else ""
    carried = any(verdict.asks(run, metric) for metric in CAPACITY_METRICS)
    trials = run.manifest.get("trials") if carried else None
    more = f", {names.number(trials)} simulations at other rates" if trials else ""
    return (
        f"{counts_words(counts)}{more}; {names.number(counts['feasible'])} feasible, "
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
    parameters = [plan["parameters"] for plan, _ in groups]
    varying = [name for name in names.varying(parameters) if name != "gpu"]
    marks = [star(console) if starred and index == 0 else "" for index in range(len(groups))]
    grid, dropped = fitted(console, columns(run, groups, varying), marks)
    console.print(grid)
    console.print()
    settings = [column.setting for column in dropped if column.setting]
    if settings:
        _print_settings(console, [plan for plan, _ in groups], marks, varying)
    others = [column.words for column in dropped if not column.setting and not (settings and column.heading == ID)]
    if others:
        line(console, f"Left out for want of width: {', '.join(others[::-1])}.", indent=2)
    _print_note(console, run, groups[0], marks[0] or " ")
    _print_common(console, run, parameters[0], varying, any(p["gpu"] != parameters[0]["gpu"] for p in parameters))


def _print_settings(
    console: Console, plans: Sequence[verdict.Evaluation], marks: Sequence[str], varying: Sequence[str]
) -> None:
    """A line a plan: the settings of the first, and in what the others differ from it."""
    first = plans[0]["parameters"]
    line(console, "Settings; of the others, what differs from the first:")
    for mark, plan in zip(marks, plans, strict=True):
        parameters = plan["parameters"]
        differing = varying if plan is plans[0] else [n for n in varying if parameters.get(n) != first.get(n)]
        words = Text(f"{mark or ' '} ").append(f"{names.plan_label(parameters)} {plan['id']}", style="bold")
        line(console, words.append(f"  {names.settings(parameters, differing) or 'the same settings'}"), indent=6)
    console.print()


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


def _print_note(console: Console, run: Run, group: Group, mark: str) -> None:
    """What limits the first plan, and how sure its figures are."""
    plan, same = group
    sure = content.certainty_sentence(run, content.extras(run).get(str(plan["id"]), {}))
    note = Text(f"{mark} ").append(f"{names.plan_label(plan['parameters'])} {plan['id']}", style="bold").append("  ")
    note.append(explain.limit_sentence(run, plan))
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
            f"  {text}: broken by {names.number(count)} of {names.number(simulated)} plans simulated to the end{only}.",
            indent=4,
        )
    refused = reasons.ruled_out(run)[1]
    for reason in refused[:MAX_REASONS]:
        example = f" (for example: {reason.example})" if reason.example else ""
        line(console, f"  {names.number(reason.count)} {reason.text}{example}.", indent=4)
    if len(refused) > MAX_REASONS:
        line(console, f"  {names.number(sum(r.count for r in refused[MAX_REASONS:]))} for other reasons.", indent=4)
    nearest = verdict.least_violating(run)
    if nearest:
        line(console, "Nearest to meeting it:")
        console.print()
        _print_plans(console, run, [(plan, []) for plan in nearest], starred=False)
