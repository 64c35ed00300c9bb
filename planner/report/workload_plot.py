"""The picture of a workload: its rate over time, how long its requests are, and what of its prompts is not new."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from planner.report.names import number, percent
from sim.workload import Workload
from sim.workload.describe import Course, FloatColumn, course, has_times, reusable_tokens

BLUE, PALE, ORANGE, GREY = "#1f5fa8", "#aec4df", "#d1661b", "#666666"
TIME_UNITS = ((3 * 86_400, 86_400, "days"), (3 * 3_600, 3_600, "h"), (0, 1, "s"))
"""(least span in s, seconds a unit, unit)"""


def workload_figure(workload: Workload, name: str) -> Figure:
    """Requests/s and prompt tokens/s over time (where there are times), distributions of lengths and of reuse."""
    timed = has_times(workload)
    rows = 2 if timed else 1
    figure = Figure(figsize=(10.5, 3.1 * rows + 0.3), layout="constrained")
    grid = figure.subplots(rows, 2, squeeze=False)
    if timed:
        found = course(workload)
        _draw_rate(grid[0][0], found)
        _draw_tokens(grid[0][1], found)
    _draw_lengths(grid[-1][0], workload)
    _draw_reuse(grid[-1][1], workload)
    for axes in grid.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0)
    figure.suptitle(f"{name}: {number(len(workload))} requests", fontsize=10)
    return figure


def _draw_rate(axes: Axes, found: Course) -> None:
    edges, label = _time_axis(found)
    axes.stairs(found.requests_per_s, edges, color=BLUE)
    mean = float(found.requests_per_s.mean())
    axes.axhline(mean, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_xlabel(label)
    axes.set_ylabel("requests/s")
    axes.set_title(f"mean {mean:.3g}/s (dotted), peak {float(found.requests_per_s.max()):.3g}/s", fontsize=8)


def _draw_tokens(axes: Axes, found: Course) -> None:
    edges, label = _time_axis(found)
    axes.stairs(found.prompt_tokens_per_s, edges, fill=True, color=PALE, label="new")
    if found.reusable_tokens_per_s.any():
        axes.stairs(found.reusable_tokens_per_s, edges, fill=True, color=ORANGE, label="of an earlier request")
        axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    axes.set_xlabel(label)
    axes.set_ylabel("prompt tokens/s")


def _time_axis(found: Course) -> tuple[FloatColumn, str]:
    """The windows' edges in the unit in which the span has a handy number, and that unit."""
    span_s = float(found.edges_s[-1])
    divisor, unit = next((d, u) for least, d, u in TIME_UNITS if span_s >= least)
    return found.edges_s / divisor, f"time ({unit})"


def _draw_lengths(axes: Axes, workload: Workload) -> None:
    for column, label, color in (
        (workload.prompt_tokens, "prompt", BLUE),
        (workload.output_tokens, "output", ORANGE),
    ):
        ordered = np.sort(column)
        share = np.arange(1, len(ordered) + 1) / len(ordered)
        axes.plot(np.repeat(ordered, 2)[1:], np.repeat(share, 2)[:-1], color=color, label=label)
    axes.set_xscale("log")
    axes.set_xlabel("tokens")
    axes.set_ylabel("share of requests up to this")
    axes.legend(frameon=False, fontsize=8)


def _draw_reuse(axes: Axes, workload: Workload) -> None:
    """Requests from the one that finds most of its prompt to the one that finds least."""
    reusable = reusable_tokens(workload)
    share = np.sort(reusable / workload.prompt_tokens)[::-1]
    axes.stairs(share, np.arange(len(share) + 1) / len(share), fill=True, color=ORANGE)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("share of requests")
    axes.set_ylabel("of the prompt in an earlier request")
    overall = int(reusable.sum()) / int(workload.prompt_tokens.sum())
    axes.set_title(f"{percent(overall)} of all prompt tokens came before", fontsize=8)
