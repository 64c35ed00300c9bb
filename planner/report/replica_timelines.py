"""The picture of a plan's replicas over time: queue, batch, KV cache and prefix hits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from planner.report.timelines import Floats

if TYPE_CHECKING:
    from sim.engine.timeline import Timeline
    from sim.result import Result

MOST_LINES = 8  # replicas drawn one by one; of more, the median and the range
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999")
POINTS = 150  # along the time axis: what is shorter is averaged
ROWS = (
    ("waiting", "requests waiting"),
    ("running", "requests running"),
    ("kv_usage", "KV cache held (%)"),
    ("prefix_hit_rate", "prefix hits (% of prompt)"),
)


def replica_figure(name: str, result: Result) -> Figure:
    """Four rows over time, a line a replica (beyond eight, their median and range). `result` must be `sampled`.

    Never shown or saved here.
    """
    timelines = result.timelines()
    labels = [f"replica {number}" for number in range(len(timelines))]
    if result.prefill is not None:
        of_prefill = result.prefill.timelines()
        labels = [f"prefill {number}" for number in range(len(of_prefill))] + [
            f"decode {number}" for number in range(len(timelines))
        ]
        timelines = [*of_prefill, *timelines]
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False})
        figure = Figure(figsize=(10, 9), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        rows = figure.subplots(len(ROWS), 1, sharex=True)
        span_s = max((float(timeline.time_s[-1]) for timeline in timelines if len(timeline.time_s)), default=1.0) or 1.0
        edges = np.linspace(0.0, span_s, POINTS + 1)
        for axis, (column, label) in zip(rows, ROWS, strict=True):
            share = column in ("kv_usage", "prefix_hit_rate")
            lines = [averaged_over(timeline, column, edges) * (100 if share else 1) for timeline in timelines]
            _draw(axis, (edges[1:] + edges[:-1]) / 2, lines, labels)
            axis.set(ylabel=label, ylim=(0, 103) if share else (0, None))
            axis.grid(alpha=0.25)
        rows[-1].set_xlabel("time (s)")
        figure.suptitle(f"{name}: its replicas over time", fontsize=13, fontweight="bold", ha="left", x=0.012)
        handles, labels = rows[0].get_legend_handles_labels()
        if len(handles) > 1:
            figure.legend(handles, labels, loc="outside lower center", ncols=min(8, len(handles)), frameon=False)
    return figure


def averaged_over(timeline: Timeline, column: str, edges: Floats) -> Floats:
    """Mean of a column of samples between each two edges; where none lies between, nan for hits, else the last one."""
    values = getattr(timeline, column)
    known = ~np.isnan(values)
    bins = np.clip(np.searchsorted(edges, timeline.time_s[known], side="right") - 1, 0, len(edges) - 2)
    counts = np.bincount(bins, minlength=len(edges) - 1)
    totals = np.bincount(bins, weights=values[known], minlength=len(edges) - 1)
    means = np.divide(totals, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    if column == "prefix_hit_rate":
        return means
    last = np.maximum.accumulate(np.where(counts > 0, np.arange(len(counts)), 0))
    ended = edges[:-1] > (timeline.time_s[-1] if len(timeline.time_s) else -1.0)
    return np.where(ended, 0.0, np.nan_to_num(means[last]))


def _draw(axis: matplotlib.axes.Axes, at: Floats, lines: Sequence[Floats], labels: Sequence[str]) -> None:
    if len(lines) <= MOST_LINES:
        for line, label, colour in zip(lines, labels, COLOURS, strict=False):
            axis.plot(at, line, color=colour, lw=1.1, marker=".", ms=2, label=label)
        return
    stacked = np.vstack(lines)
    with np.errstate(all="ignore"):
        seen = ~np.isnan(stacked).all(axis=0)
        low, middle, high = (np.full(len(at), np.nan) for _ in range(3))
        low[seen], middle[seen], high[seen] = np.nanquantile(stacked[:, seen], (0.0, 0.5, 1.0), axis=0)
    axis.fill_between(at, low, high, color=COLOURS[0], alpha=0.2, lw=0, label=f"range of {len(lines)} replicas")
    axis.plot(at, middle, color=COLOURS[0], lw=1.3, label="median")
