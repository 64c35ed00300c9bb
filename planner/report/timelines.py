"""Pictures of simulated runs: latency CDFs, and requests waiting and running over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sim.result import Result

Floats = npt.NDArray[np.float64]

STYLES = (("#0072b2", "-"), ("#d55e00", "--"), ("#009e73", "-."), ("#000000", ":"))
LATENCIES = (("ttft_ms", "TTFT (ms)"), ("tpot_ms", "TPOT (ms)"), ("e2e_ms", "E2E latency (ms)"))
BINS = 100  # over the whole run: what is shorter is averaged, lest a queue that comes and goes be a barcode
LOG_FROM = 20.0  # ratio of the 99th to the 1st percentile from which an axis is logarithmic


def comparison_figure(runs: Sequence[tuple[str, Result]]) -> Figure:
    """CDFs of TTFT, TPOT and E2E of each named run above; requests waiting and running over time below.

    At most four runs. Lines differ in colour and in dashes. Never shown or saved here.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False})
        figure = Figure(figsize=(12, 7.2), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(2, 6)
        for index, (column, label) in enumerate(LATENCIES):
            _draw_cdf(figure.add_subplot(grid[0, 2 * index : 2 * index + 2]), runs, column, label)
        waiting, running = figure.add_subplot(grid[1, :3]), figure.add_subplot(grid[1, 3:])
        for (name, result), (colour, dash) in zip(runs, STYLES, strict=False):
            queued, started, ended = _moments(result)
            for axis, begin, end in ((waiting, queued, started), (running, started, ended)):
                edges, level = averaged(*in_progress(begin, end))
                axis.stairs(level, edges, baseline=None, color=colour, ls=dash, lw=1.2, label=name)
        for axis, label in (
            (waiting, "requests waiting, mean"),
            (running, "requests running, mean"),
        ):
            axis.set(xlabel="time (s)", ylabel=label, ylim=(0, None))
            axis.grid(alpha=0.25)
        handles, labels = waiting.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=10)
    return figure


def _draw_cdf(axis: Axes, runs: Sequence[tuple[str, Result]], column: str, label: str) -> None:
    spread = []
    for (_, result), (colour, dash) in zip(runs, STYLES, strict=False):
        values = np.sort(getattr(result.records, column))
        values = values[np.isfinite(values)]
        if not len(values):
            continue
        axis.step(values, np.arange(1, len(values) + 1) / len(values), where="post", color=colour, ls=dash, lw=1.4)
        spread += [float(np.quantile(values, level)) for level in (0.01, 0.99)]
    if spread and min(spread) > 0 and max(spread) / min(spread) > LOG_FROM:
        axis.set_xscale("log")
    axis.set(xlabel=label, ylabel="share of requests", ylim=(0, 1.02))
    axis.axhline(0.9, color="0.6", lw=0.7, ls=":")
    axis.text(0.995, 0.9, "p90", transform=axis.get_yaxis_transform(), ha="right", va="bottom", size=7.5, color="0.4")
    axis.grid(alpha=0.25)


def _moments(result: Result) -> tuple[Floats, Floats, Floats]:
    """When each request came into the queue, started and ended, in seconds; nan where it did not.

    Records hold the time before the first step, and TTFT and E2E from the sending: the time to the queue is a constant
    of the deployment, so that arrivals stand for it.
    """
    records = result.records
    queued = np.where(records.offered & ~records.shed & ~records.rejected, records.arrival_ms / 1e3, np.nan)
    started = queued + records.queue_ms / 1e3
    return queued, started, queued + records.e2e_ms / 1e3


def in_progress(begin: Floats, end: Floats) -> tuple[Floats, Floats]:
    """(times, level): how many intervals [begin, end) are open from each time on; an end that is nan never comes."""
    known = np.isfinite(begin)
    starts, ends = begin[known], end[known & np.isfinite(end)]
    times = np.concatenate([starts, ends])
    steps = np.concatenate([np.ones(len(starts)), -np.ones(len(ends))])
    order = np.lexsort((steps, times))  # at one time, what ends ends before what begins
    at, level = times[order], np.cumsum(steps[order])
    last = np.append(at[1:] != at[:-1], True) if len(at) else np.zeros(0, dtype=bool)
    return at[last], level[last]


def averaged(at: Floats, level: Floats, bins: int = BINS) -> tuple[Floats, Floats]:
    """(edges, means): a step function's mean over each of `bins` equal spans; the area under it stays the same."""
    if len(at) < 2:
        return np.array([0.0, 1.0]), np.zeros(1)
    edges = np.linspace(at[0], at[-1], bins + 1)
    area = np.concatenate([[0.0], np.cumsum(np.diff(at) * level[:-1])])
    return edges, np.diff(np.interp(edges, at, area)) / np.diff(edges)
