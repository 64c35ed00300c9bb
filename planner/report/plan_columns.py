"""A table of plans that fits the terminal: what was asked about first, then the settings in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner.goals import STATIC_METRICS
from planner.report import content, names, reasons, verdict
from planner.report.layout import table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from planner.store import Run

Group = tuple[verdict.Evaluation, list[verdict.Evaluation]]
WIDEST_SETTING = 26  # of a setting's column; what is longer goes over several lines
ID = "Id"
HEADING_WIDTH = 9  # of a line of a heading, beyond which it is broken where it can be


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: the higher its `rank`, the sooner it goes where room is scarce; 0 stays."""

    heading: str
    cells: list[str]
    rank: int
    words: str  # how a note calls it
    right: bool = True
    setting: str = ""  # the parameter that it shows


def columns(run: Run, groups: Sequence[Group], varying: Sequence[str]) -> list[Column]:
    """Size and price, every objective and constrained metric, the nearest limit, certainty, then the settings."""
    plans = [plan for plan, _ in groups]
    gpus = [str(plan["parameters"].get("gpu")) for plan in plans]
    found = [Column("TP x replicas", [names.plan_label(plan["parameters"]) for plan in plans], 0, "", right=False)]
    if len(set(gpus)) > 1:
        found.append(Column("GPU", gpus, 2, "GPU", right=False))
    for metric, heading in (("gpus", "GPUs"), ("cost_per_hour", "$/h")):
        found.append(Column(heading, [_figure(metric, plan) for plan in plans], 0, heading))
    objectives = [metric for metric, _ in run.objectives]
    asked = dict.fromkeys([*objectives, *(metric for metric, _, _ in run.constraints)])
    for metric in asked:
        if metric not in STATIC_METRICS:
            rank = 1 if metric in objectives else 3
            words = names.metric_name(metric)
            found.append(Column(_metric_heading(metric), [_figure(metric, plan) for plan in plans], rank, words))
    if run.constraints:
        cells = [reasons.headroom_cell(verdict.tightest(run, plan)) for plan in plans]
        found.append(Column("SLO headroom", cells, 2, "SLO headroom"))
    known = content.extras(run)
    sure = [content.confidence_words(known.get(str(plan["id"]), {})) or "-" for plan in plans]
    if run.constraints and any(cell != "-" for cell in sure):
        found.append(Column("SLO confidence", sure, 6, "SLO confidence"))
    for name in varying:
        cells = [names.settings(plan["parameters"], [name]).removeprefix(f"{name} ") or "-" for plan in plans]
        found.append(Column(name, cells, 5, name, right=False, setting=name))
    found.append(Column(ID, [str(plan["id"]) for plan in plans], 4, "id", right=False))
    if any(same for _, same in groups):
        found.append(
            Column(
                "With same figures",
                [f"+{len(same)}" if same else "" for _, same in groups],
                7,
                "plans with the same figures",
            )
        )
    return found


def fitted(console: Console, found: Sequence[Column], marks: Sequence[str]) -> tuple[Table, list[Column]]:
    """(the table, what of `found` it leaves out): the least important columns go until the rest fits the console.

    Settings stay together: where one of them finds no room, none is in the table, and no id either: lines of their own
    say both.
    """
    kept, dropped = _fitting(console, found, marks)
    if any(column.setting for column in dropped):
        elsewhere = [column for column in found if column.setting or column.heading == ID]
        kept, dropped = _fitting(console, [column for column in found if column not in elsewhere], marks)
        dropped += elsewhere
    return _grid(kept, marks), dropped


def _fitting(console: Console, found: Sequence[Column], marks: Sequence[str]) -> tuple[list[Column], list[Column]]:
    kept, dropped = list(found), []
    unlimited = console.options.update(max_width=10_000)
    while console.measure(_grid(kept, marks), options=unlimited).maximum > console.width:
        ranked = [column for column in kept if column.rank]
        if not ranked:
            break
        least = max(reversed(ranked), key=lambda column: column.rank)
        kept.remove(least)
        dropped.append(least)
    return kept, dropped


def _grid(found: Sequence[Column], marks: Sequence[str]) -> Table:
    grid = table()
    grid.add_column("", width=1)
    headings = [_heading_lines(column.heading) for column in found]
    height = max(map(len, headings))
    for column, lines in zip(found, headings, strict=True):
        heading = "\n".join([""] * (height - len(lines)) + lines)
        if column.setting:
            widest = max(map(len, lines))
            width = min(max(WIDEST_SETTING, widest), max(widest, *map(len, column.cells)))
            grid.add_column(heading, overflow="fold", min_width=width, max_width=width)
        else:
            grid.add_column(heading, justify="right" if column.right else "left", no_wrap=True)
    for index, mark in enumerate(marks):
        grid.add_row(mark, *(column.cells[index] for column in found), style="bold" if mark else None)
    return grid


def _heading_lines(heading: str) -> list[str]:
    """A heading over several lines, broken after spaces and underscores."""
    lines = [""]
    for part in heading.replace("_", "_\0").replace(" ", " \0").split("\0"):
        if lines[-1] and len((lines[-1] + part).rstrip()) > HEADING_WIDTH:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]


def _metric_heading(metric: str) -> str:
    unit = names.metric_unit(metric)
    slo_class, _, of_class = metric.rpartition(".")
    head, _, statistic = of_class.removesuffix("_ms").partition("_")
    latency = unit == "ms" and head in ("ttft", "tpot", "itl", "e2e", "queue")
    if latency:
        name = f"{head.upper() if head != 'queue' else 'Queue'} {statistic}"
    else:
        name = names.metric_name(metric)
        name = name[0].upper() + name[1:]
    return f"{slo_class + ' ' if slo_class and latency else ''}{name}{' ' + unit if unit else ''}"


def _figure(metric: str, plan: verdict.Evaluation) -> str:
    value: Any = plan["metrics"].get(metric)
    return names.money(value) if metric.startswith("cost_") else names.number(value)
