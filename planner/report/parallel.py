"""Parallel coordinates of a run: one line a plan, through its settings and what came of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from planner.report import names, verdict
from planner.report.pareto import DPI, FRONT_LINE, INFEASIBLE, LOG_FROM, STAR_FACE, headline
from planner.report.workload_words import workload_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from planner.store import Run

MOST_AXES = 12
MOST_LINES = 1_500  # of a kind: more would only be a grey wall
ROOM = 0.12  # above and below the values of an axis that names options


@dataclass(frozen=True, slots=True)
class _Axis:
    """One vertical axis: its title, where each value lies from 0 to 1, and what is written beside it."""

    name: str
    title: str
    place: Mapping[str, float] | None  # of options, by their text
    low: float = 0.0
    high: float = 1.0
    logarithmic: bool = False

    def height(self, plan: verdict.Evaluation) -> float:
        """Where the plan crosses the axis, nan where it has no value; beyond the ends it is cut."""
        if self.place is not None:
            return self.place[names.setting(plan["parameters"].get(self.name))]
        value = plan["metrics"].get(self.name) if plan["simulated"] else None
        if value is None or not math.isfinite(value):
            return math.nan
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5

    def ticks(self) -> list[tuple[float, str]]:
        """(height, text) of what is written at the axis."""
        if self.place is not None:
            return [(height, text) for text, height in self.place.items()]
        if self.high <= self.low:
            return [(0.5, names.number(self.low))]
        if self.name == "gpus":
            step = -(-int(self.high - self.low) // 4)
            counts = range(int(self.low), int(self.high) + 1, step)
            return [((count - self.low) / (self.high - self.low), str(count)) for count in counts]
        shares = (0.0, 0.25, 0.5, 0.75, 1.0)
        if self.logarithmic:
            return [(share, names.number(self.low * (self.high / self.low) ** share)) for share in shares]
        return [(share, names.number(self.low + (self.high - self.low) * share)) for share in shares]


def parallel_figure(run: Run) -> Figure:
    """Every plan that was judged as a line through the parameters that vary and the metrics that are asked about.

    Plans of the front are dark, the recommended one is marked, feasible ones blue, those that break the SLO grey; of
    these, the ones that were not simulated to the end have settings alone. What is only known to be dominated, or was
    screened out, is not drawn but counted.
    Metric axes span the feasible plans and what lies near them; what is beyond is cut to the edge. Never shown or
    saved here.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.size": 9})
        plans = [plan for plan in run.evaluations if plan["simulated"]]
        others = [plan for plan in run.evaluations if not plan["simulated"] and plan["feasible"] is not None]
        columns = _columns(run, plans, others)
        figure = Figure(figsize=(max(7.0, 1.6 * len(columns) + 1.5), 5.8), dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        _draw_axes(axes, columns, dict(run.objectives))
        _draw_lines(axes, run, [*plans, *others], columns)
        _title(figure, run, len(plans), len(others), len(run.evaluations) - len(plans) - len(others))
    return figure


def _columns(run: Run, plans: Sequence[verdict.Evaluation], others: Sequence[verdict.Evaluation]) -> list[_Axis]:
    drawn = [*plans, *others]
    varying = names.varying([plan["parameters"] for plan in drawn], but=()) if drawn else []
    asked = [metric for metric, _ in run.objectives] + [metric for metric, _, _ in run.constraints]
    metrics = list(dict.fromkeys(metric for metric in asked if any(metric in plan["metrics"] for plan in plans)))
    parameters = varying[: max(1, MOST_AXES - len(metrics))]
    return [_option_axis(name, drawn) for name in parameters] + [_metric_axis(run, name, plans) for name in metrics]


def _option_axis(name: str, plans: Sequence[verdict.Evaluation]) -> _Axis:
    values = {names.setting(plan["parameters"].get(name)): plan["parameters"].get(name) for plan in plans}
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values())
    ordered = sorted(values, key=lambda text: (values[text], "") if numeric else (0, text))
    step = (1 - 2 * ROOM) / max(1, len(ordered) - 1)
    place = {text: ROOM + index * step if len(ordered) > 1 else 0.5 for index, text in enumerate(ordered)}
    return _Axis(name, _broken(name), place)


def _broken(name: str) -> str:
    """A parameter's name over two lines, broken at the underscore nearest to its middle."""
    cuts = [index + 1 for index, letter in enumerate(name) if letter == "_"]
    if len(name) < 12 or not cuts:
        return name
    cut = min(cuts, key=lambda index: abs(index - len(name) / 2))
    return f"{name[:cut]}\n{name[cut:]}"


def _metric_axis(run: Run, name: str, plans: Sequence[verdict.Evaluation]) -> _Axis:
    focus = [plan for plan in plans if plan["feasible"]] or verdict.least_violating(run, 12)
    values = [plan["metrics"].get(name) for plan in focus]
    limits = [limit for metric, _, limit in run.constraints if metric == name]
    found = [float(value) for value in [*values, *limits] if value is not None and math.isfinite(value)]
    low, high = (min(found), max(found)) if found else (0.0, 1.0)
    logarithmic = low > 0 and high / low > LOG_FROM
    room = 1.15 if logarithmic else 0.0
    if logarithmic:
        low, high = low / room, high * room
    return _Axis(name, names.axis_label(name), None, low, high, logarithmic)


def _draw_axes(axes: Axes, columns: Sequence[_Axis], senses: Mapping[str, str]) -> None:
    axes.set(xlim=(-0.35, len(columns) - 0.3), ylim=(-0.05, 1.05))
    axes.axis("off")
    for x, column in enumerate(columns):
        axes.plot([x, x], [0, 1], color="0.35", lw=0.9, zorder=3)
        title = column.title.replace(" (", "\n(")
        better = {"max": "\n\N{UPWARDS ARROW} better", "min": "\n\N{DOWNWARDS ARROW} better"}.get(
            senses.get(column.name, ""), ""
        )
        axes.text(x, 1.04, title + better, ha="center", va="bottom", size=8.5, linespacing=1.15)
        for height, text in column.ticks():
            axes.plot([x - 0.02, x + 0.02], [height, height], color="0.35", lw=0.9, zorder=3)
            box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8}
            axes.text(x + 0.04, height, _short(text), va="center", ha="left", size=7.5, zorder=6, bbox=box)


def _short(text: str, most: int = 22) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def _draw_lines(axes: Axes, run: Run, plans: Sequence[verdict.Evaluation], columns: Sequence[_Axis]) -> None:
    front, starred = set(run.front), verdict.recommended(run)
    star = starred["id"] if starred is not None else None
    broken = [p for p in plans if not p["feasible"]]
    few = min(1.0, 30 / max(1, len(broken)))  # of few, each must be visible
    kinds: tuple[tuple[list[verdict.Evaluation], dict[str, Any]], ...] = (
        (broken, {"color": INFEASIBLE, "lw": 0.5 + 0.4 * few, "alpha": 0.25 + 0.55 * few, "zorder": 1}),
        (
            [p for p in plans if p["feasible"] and p["id"] not in front],
            {"color": "#0072b2", "lw": 0.7, "alpha": 0.35, "zorder": 2},
        ),
        (
            [p for p in plans if p["id"] in front and p["id"] != star],
            {"color": FRONT_LINE, "lw": 1.6, "alpha": 0.9, "zorder": 4},
        ),
        ([p for p in plans if p["id"] == star], {"color": STAR_FACE, "lw": 3.2, "alpha": 1.0, "zorder": 5}),
    )
    for members, look in kinds:
        lines = [_line(plan, columns) for plan in _thinned(members)]
        axes.add_collection(LineCollection([line for line in lines if len(line) > 1], **look))
    labels = ("breaks the SLO", "feasible, dominated", "front", "recommended")
    handles = [
        Line2D([], [], color=look["color"], lw=max(1.5, look["lw"]), label=label)
        for (members, look), label in zip(kinds, labels, strict=True)
        if members
    ]
    if handles:
        axes.figure.legend(handles=handles[::-1], loc="outside lower center", ncols=4, frameon=False, fontsize=9)


def _thinned(plans: Sequence[verdict.Evaluation]) -> Sequence[verdict.Evaluation]:
    """At most `MOST_LINES` of the plans, evenly picked."""
    step = -(-len(plans) // MOST_LINES) or 1
    return plans[::step]


def _line(plan: verdict.Evaluation, columns: Sequence[_Axis]) -> list[tuple[float, float]]:
    points = [(float(x), column.height(plan)) for x, column in enumerate(columns)]
    return [point for point in points if not math.isnan(point[1])]


def _title(figure: Figure, run: Run, simulated: int, others: int, left_out: int) -> None:
    model = str(run.space.get("model", "")).rsplit("/", 1)[-1]
    title = f"{run.name}: {model}, what each setting leads to"
    words = [workload_words(run.space.get("workload") or {}), f"{simulated:,} plans simulated to the end"]
    words += [f"{others:,} stopped early or ruled out, drawn over their settings alone"] if others else []
    words += [f"{left_out:,} dominated at best or screened out, not drawn"] if left_out else []
    words.append("values beyond an axis lie on its edge")
    headline(figure, title, ["; ".join(word for word in words if word)])
