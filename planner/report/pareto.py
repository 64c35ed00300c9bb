"""The picture of a run: every plan by its objectives, the front, and the region that the SLO allows."""

from __future__ import annotations

import io
import itertools
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from planner.parameters import gpu_count
from planner.report import names, verdict
from planner.report.labels import place_labels
from planner.report.workload_words import workload_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from planner.store import Run

LOG_FROM = 8.0  # ratio of largest to smallest value from which an axis is logarithmic
REACH = 4.0  # plans further than this factor from what matters are marked on the edge
MIN_SPAN = 0.2  # an axis spans at least this share of its values, lest noise look like a difference
FEASIBLE, INFEASIBLE, FRONT_LINE, STAR_FACE = "#e3f0e4", "#757575", "#222222", "#ffd23f"
LIMIT = "#2f6b35"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
SIZE_METRICS = ("gpus", "cost_per_hour")
DPI = 150
CHARACTERS_PER_INCH = 14  # of the smaller lines of a headline
COLUMNS = 6  # of the legend: what fits the width of a single panel


@dataclass(frozen=True, slots=True)
class _Style:
    """How a number of GPUs is drawn."""

    colour: Any
    marker: str


def pareto_figure(run: Run) -> Figure:
    """The run's plans in 2-D projections of its objectives, at most three panels; never shown or saved here.

    Feasible plans are coloured and shaped by their number of GPUs, dominated ones faint, infeasible ones grey crosses;
    the region that the SLO allows is shaded, the front drawn and labelled TP x replicas, the recommended plan
    starred. Plans that were not simulated have no place in it.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False})
        panels = _panels(run)
        figure = Figure(figsize=(9.6, 5.6) if len(panels) == 1 else (12.4, 6.4), dpi=DPI, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        styles = _styles(run)
        axes = _axes(figure, len(panels))
        plans = [plan for plan in run.evaluations if plan["simulated"]]
        for panel, (x, y) in zip(axes, panels, strict=True):
            _draw_panel(panel, run, plans, x, y, styles)
        _title(figure, run)
        _legend(figure, run, plans, styles)
        canvas.draw()  # positions become final, so that labels can be placed
        figure.set_layout_engine("none")
        for panel, (x, y) in zip(axes, panels, strict=True):
            _label(panel, run, x, y)
    return figure


def png(figure: Figure) -> bytes:
    """The figure as PNG; the same figure gives the same bytes."""
    return _render(figure, "png", {"Software": None})


def svg(figure: Figure) -> bytes:
    """The figure as SVG; the same figure gives the same bytes."""
    return _render(figure, "svg", {"Date": None, "Creator": None})


def _render(figure: Figure, kind: str, metadata: dict[str, None]) -> bytes:
    buffer = io.BytesIO()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams["svg.hashsalt"] = "llm-serving-planner"
        figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
    return buffer.getvalue()


def _panels(run: Run) -> list[tuple[str, str]]:
    """The pairs of metrics to draw, (x, y), the one in which the plans differ most first; sizes go on x axes."""
    metrics = [metric for metric, _ in run.objectives]
    if len(metrics) == 1:
        return [("cost_per_hour" if metrics[0] == "gpus" else "gpus", metrics[0])]
    ordered = [metric for metric in metrics if metric not in SIZE_METRICS]
    ordered += [metric for metric in metrics if metric in SIZE_METRICS]
    spread = {metric: _spread(run, metric) for metric in ordered}
    pairs = list(itertools.combinations(ordered, 2))
    pairs.sort(key=lambda pair: -min(spread[pair[0]], spread[pair[1]]))
    return [(y, x) if y in SIZE_METRICS else (x, y) for x, y in pairs[:3]]


def _spread(run: Run, metric: str) -> float:
    """How far apart the plans of the front (else those near it) are in a metric, as a share of its size, at most 1."""
    values = [plan["metrics"].get(metric, math.nan) for plan in _in_focus(run)]
    values = [value for value in values if math.isfinite(value)]
    top = max((abs(value) for value in values), default=0.0)
    return min(1.0, (max(values) - min(values)) / top) if top else 0.0


def _in_focus(run: Run) -> list[verdict.Evaluation]:
    """The plans that must be well visible: the feasible ones, else the nearest."""
    feasible: list[verdict.Evaluation] = [p for p in run.evaluations if p["simulated"] and p["feasible"]]
    return feasible or verdict.least_violating(run, 12)


def _axes(figure: Figure, count: int) -> list[Axes]:
    if count == 1:
        return [figure.add_subplot()]
    grid = figure.add_gridspec(count - 1, 2, width_ratios=(1.7, 1))
    return [figure.add_subplot(grid[:, 0]), *(figure.add_subplot(grid[row, 1]) for row in range(count - 1))]


def _styles(run: Run) -> dict[int, _Style]:
    sizes = sorted({_size(plan) for plan in run.evaluations if plan["simulated"]})
    palette = matplotlib.colormaps["viridis"]
    last = max(1, len(sizes) - 1)
    return {
        size: _Style(palette(0.05 + 0.8 * index / last), MARKERS[index % len(MARKERS)])
        for index, size in enumerate(sizes)
    }


def _size(plan: verdict.Evaluation) -> int:
    return gpu_count(plan["parameters"])


def _points(plans: Sequence[verdict.Evaluation], x: str, y: str) -> list[tuple[float, float, verdict.Evaluation]]:
    found = []
    for plan in plans:
        a, b = plan["metrics"].get(x, math.nan), plan["metrics"].get(y, math.nan)
        if math.isfinite(a) and math.isfinite(b):
            found.append((float(a), float(b), plan))
    return found


def _draw_panel(
    axes: Axes, run: Run, plans: Sequence[verdict.Evaluation], x: str, y: str, styles: dict[int, _Style]
) -> None:
    points = _points(plans, x, y)
    front = set(run.front)
    _scale(axes, run, x, vertical=False)
    _scale(axes, run, y, vertical=True)
    _shade(axes, run, x, y)
    bad = [(a, b) for a, b, plan in points if not plan["feasible"]]
    cross: dict[str, Any] = {"ms": 4, "mew": 0.8, "alpha": 0.75} if front else {"ms": 6, "mew": 1.4, "alpha": 1.0}
    axes.plot(*_columns(bad), "x", color=INFEASIBLE, zorder=2, ls="", **cross)
    for size, style in styles.items():
        mine = [(a, b, plan["id"] in front) for a, b, plan in points if plan["feasible"] and _size(plan) == size]
        dominated = [(a, b) for a, b, on_front in mine if not on_front]
        best = [(a, b) for a, b, on_front in mine if on_front]
        look = {"marker": style.marker, "color": style.colour, "ls": ""}
        axes.plot(*_columns(dominated), mec="none", ms=4.5, alpha=0.3, zorder=3, **look)
        axes.plot(*_columns(best), mec="black", mew=0.9, ms=8, zorder=4, **look)
    line = _front_line(run, x, y)
    if len(line) > 1:
        axes.plot(*_columns(line), "-", color=FRONT_LINE, lw=1.1, zorder=3.5)
    starred = verdict.recommended(run)
    if starred is not None:
        for a, b, _ in _points([starred], x, y):
            axes.plot(a, b, "*", color=STAR_FACE, mec="black", mew=0.9, ms=17, zorder=5)
    _outside(axes, points)


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [point[0] for point in points], [point[1] for point in points]


def _front_line(run: Run, x: str, y: str) -> list[tuple[float, float]]:
    """The plans of the front that no other plan of the front dominates in this projection, in order."""
    sense = dict(run.objectives)
    signs = [-1.0 if sense.get(metric, "min") == "max" else 1.0 for metric in (x, y)]
    points = _points(run.front_evaluations(), x, y)
    kept: list[tuple[float, float]] = []
    best = math.inf
    for a, b, _ in sorted(points, key=lambda point: (signs[0] * point[0], signs[1] * point[1])):
        if signs[1] * b < best:
            best = signs[1] * b
            kept.append((a, b))
    return kept


def _scale(axes: Axes, run: Run, metric: str, *, vertical: bool) -> None:
    """Set an axis' label, limits and ticks: what matters fills it, and what lies far beyond is left out."""
    axis = axes.yaxis if vertical else axes.xaxis
    set_limits = axes.set_ylim if vertical else axes.set_xlim
    sense = dict(run.objectives).get(metric, "")
    axis.set_label_text(
        {"max": "{} \N{RIGHTWARDS ARROW} better", "min": "better \N{LEFTWARDS ARROW} {}"}.get(sense, "{}").format(
            names.axis_label(metric)
        )
    )
    low, high = _range(run, metric)
    if metric == "gpus":
        set_limits(0, high + max(1.0, 0.12 * high))
        axis.set_major_locator(MaxNLocator(integer=True))
        return
    if low > 0 and high / low > LOG_FROM:
        (axes.set_yscale if vertical else axes.set_xscale)("log")
        set_limits(low / 1.35, high * 1.35)
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 1e3 else (1.0,)))
        axis.set_minor_formatter(NullFormatter())
    else:
        span = max(high - low, MIN_SPAN * abs(high), 1e-9)
        floor = (high + low) / 2 - 0.58 * span
        set_limits(max(0.0, floor) if low >= 0 else floor, (high + low) / 2 + 0.58 * span)
    axis.set_major_formatter(FuncFormatter(lambda value, _: names.number(value)))


def _range(run: Run, metric: str) -> tuple[float, float]:
    """What an axis shows: the plans in focus, the limit, and the other plans as far as a `REACH` beyond these."""
    focus = [plan["metrics"].get(metric, math.nan) for plan in _in_focus(run)]
    focus += [limit for name, _, limit in run.constraints if name == metric and limit > 0]
    focus = [value for value in focus if math.isfinite(value)]
    everything = [plan["metrics"].get(metric, math.nan) for plan in run.evaluations if plan["simulated"]]
    everything = [value for value in everything if math.isfinite(value)]
    if not focus:
        return (min(everything), max(everything)) if everything else (0.0, 1.0)
    low, high = min(focus), max(focus)
    near = [value for value in everything if low / REACH <= value <= high * REACH]
    return min([low, *near]), max([high, *near])


def _shade(axes: Axes, run: Run, x: str, y: str) -> None:
    """Shade what the constraints on the two axes allow together, and draw each limit."""
    box = [list(axes.get_xlim()), list(axes.get_ylim())]
    limited = False
    for metric, operator, limit in run.constraints:
        for index, name in enumerate((x, y)):
            if metric != name:
                continue
            limited = True
            if operator in ("<=", "<", "=="):
                box[index][1] = min(box[index][1], limit)
            if operator in (">=", ">", "=="):
                box[index][0] = max(box[index][0], limit)
            (axes.axvline if index == 0 else axes.axhline)(limit, color=LIMIT, lw=0.9, ls="--", zorder=1)
            _write_limit(
                axes, f"SLO {names.OPERATORS[operator]} {names.measure(metric, limit)}", limit, vertical=index == 0
            )
    if limited and box[0][0] < box[0][1] and box[1][0] < box[1][1]:
        axes.fill_between(box[0], box[1][0], box[1][1], color=FEASIBLE, lw=0, zorder=0)


def _write_limit(axes: Axes, text: str, limit: float, *, vertical: bool) -> None:
    style: dict[str, Any] = {"size": 7.5, "color": LIMIT, "zorder": 1.5}
    if vertical:
        axes.text(limit, 0.015, f" {text}", transform=axes.get_xaxis_transform(), va="bottom", ha="left", **style)
    else:
        axes.text(0.995, limit, text, transform=axes.get_yaxis_transform(), va="bottom", ha="right", **style)


def _outside(axes: Axes, points: Sequence[tuple[float, float, Any]]) -> None:
    """Mark plans beyond the axes on their edge, and say how many they are."""
    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    beyond = [(a, b) for a, b, _ in points if not (x0 <= a <= x1 and y0 <= b <= y1)]
    edges: dict[str, set[tuple[float, float]]] = {}
    for a, b in beyond:
        marker = "^" if b > y1 else "v" if b < y0 else ">" if a > x1 else "<"
        edges.setdefault(marker, set()).add((min(max(a, x0), x1), min(max(b, y0), y1)))
    for marker, at in edges.items():
        axes.plot(*_columns(sorted(at)), marker, color=INFEASIBLE, ms=4, mew=0, clip_on=False, zorder=2)
    if beyond:
        plural = "s" if len(beyond) > 1 else ""
        text = f"{len(beyond)} plan{plural} beyond the axes (triangles)"
        axes.text(1.0, 1.012, text, transform=axes.transAxes, ha="right", va="bottom", size=7.5, color="0.35")


def _label(axes: Axes, run: Run, x: str, y: str) -> None:
    plans = verdict.front(run) or verdict.least_violating(run, 3)
    points = _points(plans, x, y)
    kinds = {str(plan["parameters"].get("gpu")) for plan in run.evaluations}
    texts = []
    for _, _, plan in points:
        kind = f" {str(plan['parameters'].get('gpu')).split('-')[0]}" if len(kinds) > 1 else ""
        texts.append(names.plan_label(plan["parameters"]) + kind)
    place_labels(axes, [(a, b) for a, b, _ in points], texts, _front_line(run, x, y))


def _title(figure: Figure, run: Run) -> None:
    model = str(run.space.get("model", "")).rsplit("/", 1)[-1]
    workload = workload_words(run.space.get("workload") or {})
    limits = ", ".join(names.constraint(*item) for item in run.constraints)
    lines = [line for line in (workload, f"SLO: {limits}" if limits else "") if line]
    headline(figure, f"{run.name}: {model}", lines)


def headline(figure: Figure, title: str, lines: Sequence[str]) -> None:
    """Write a title and, smaller, `lines` below it, both from the left edge, and keep room for them."""
    width, height = figure.get_size_inches()
    wrapped = [part for text in lines for part in textwrap.wrap(text, int(CHARACTERS_PER_INCH * width))]
    figure.suptitle("\n" * (len(wrapped) + 1), fontsize=11)  # what the layout keeps free
    figure.text(0.012, 1 - 0.1 / height, title, fontsize=13, fontweight="bold", ha="left", va="top")
    figure.text(0.012, 1 - 0.38 / height, "\n".join(wrapped), fontsize=9, color="0.25", ha="left", va="top")


def _legend(figure: Figure, run: Run, plans: Sequence[verdict.Evaluation], styles: dict[int, _Style]) -> None:
    feasible = {_size(plan) for plan in plans if plan["feasible"]}
    handles: list[Any] = []
    if verdict.recommended(run) is not None:
        handles.append(Line2D([], [], marker="*", color=STAR_FACE, mec="black", ms=13, ls="", label="recommended"))
        handles.append(Line2D([], [], marker="o", color="white", mec="black", ms=7, lw=1.1, label="front"))
    for size in sorted(feasible):
        unit = "GPU" if size == 1 else "GPUs"
        style = styles[size]
        handles.append(Line2D([], [], marker=style.marker, color=style.colour, ms=6, ls="", label=f"{size} {unit}"))
    if any(not plan["feasible"] for plan in plans):
        handles.append(Line2D([], [], marker="x", color=INFEASIBLE, ms=5, ls="", label="breaks the SLO"))
    drawn = {metric for panel in _panels(run) for metric in panel}
    if any(metric in drawn for metric, _, _ in run.constraints):
        handles.append(Patch(color=FEASIBLE, label="within the limits on the axes"))
    if handles:
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=min(COLUMNS, len(handles)),
            columnspacing=1.4,
            handletextpad=0.5,
            frameon=False,
            fontsize=9,
        )
