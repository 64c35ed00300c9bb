"""Which parameter moves what, in words, as a table and as a tornado plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from planner.report import names
from planner.report.what_if import BASE, BETTER, WORSE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from planner.sensitivity import Effect, Swing

NOTABLE = math.log(1.01)  # a swing of less than 1% is none
REACH = 1.5  # times as much or as little at least that an axis spans
FINE, COARSE = (0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0), (0.2, 0.5, 1.0, 2.0, 5.0)  # ticks
FAR = 5.0  # times as much, from which a bar is cut off


def sentence(effects: Sequence[Effect], objectives: Sequence[tuple[str, str]]) -> str:
    """What matters most, on one line: which parameters must be as they are, what moves each objective most among the
    feasible options of the others, and what moves nothing."""
    parts = []
    must = [effect for effect in effects if _turns(effect)]
    if must:
        words = ", ".join(f"{e.name} {_options(e.feasible())} (not {_options(e.infeasible())})" for e in must)
        parts.append(f"feasible only with {words}")
    for metric, _ in objectives:
        swings = [(swing, effect) for effect in effects for swing in effect.within if swing.metric == metric]
        swing, effect = max(swings, key=lambda item: item[0].size, default=(None, None))
        if swing is None or effect is None or swing.size <= NOTABLE:
            parts.append(f"none of them matters for {names.metric_name(metric)}")
        else:
            parts.append(f"most for {names.metric_name(metric)}: {effect.name} ({_range(swing)})")
    idle = [effect.name for effect in effects if effect.size <= NOTABLE and not _turns(effect)]
    if idle:
        parts.append(f"next to nothing changes with {', '.join(idle)}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if effects else "No parameter varies."


def _options(options: Sequence[Any]) -> str:
    return ", ".join(names.setting(option) for option in options)


def _range(swing: Swing) -> str:
    low, high = (names.measure(swing.metric, value) for value in (swing.low, swing.high))
    return f"{low} at {names.setting(swing.low_at)}, {high} at {names.setting(swing.high_at)}"


def _turns(effect: Effect) -> bool:
    """Whether some options are feasible and some are not."""
    return bool(effect.feasible() and effect.infeasible())


HEADINGS = ("", "From the least to the greatest", "Swing")


def rows(effects: Sequence[Effect], metrics: Sequence[str]) -> list[tuple[str, str, str]]:
    """The table under `HEADINGS`: for each parameter a row with what it is now and which options are not feasible, then
    one for each metric that it moves."""
    found: list[tuple[str, str, str]] = []
    for effect in effects:
        swings = [swing for swing in effect.swings if swing.metric in metrics and swing.size > NOTABLE]
        broken = f"not feasible: {_options(effect.infeasible())}" if effect.infeasible() else ""
        idle = "" if swings or broken else "moves nothing"
        found.append((f"{effect.name}, now {names.setting(effect.now)}", broken or idle, ""))
        found += [(f"  {names.metric_name(s.metric)}", _range(s), _times(s)) for s in swings]
    return found


def _times(swing: Swing) -> str:
    if math.isinf(swing.size):
        return "from none"
    ratio = swing.high / swing.low
    return f"x {names.number(ratio)}" if ratio >= 2 else f"+{100 * (ratio - 1):.0f}%"


def document(effects: Sequence[Effect], objectives: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """What `planner sensitivity --json` writes."""
    return {
        "words": sentence(effects, objectives),
        "parameters": [
            {
                "name": effect.name,
                "now": effect.now,
                "swings": [
                    {
                        "metric": swing.metric,
                        "now": swing.now,
                        "low": swing.low,
                        "low_at": swing.low_at,
                        "high": swing.high,
                        "high_at": swing.high_at,
                    }
                    for swing in effect.swings
                ],
                "options": [
                    {
                        "value": option,
                        "id": evaluation["id"],
                        "feasible": evaluation["feasible"],
                        "why_not": evaluation["why_not"],
                        "metrics": {s.metric: evaluation["metrics"].get(s.metric) for s in effect.swings},
                    }
                    for option, evaluation in effect.options
                ],
            }
            for effect in effects
        ],
    }


def tornado_figure(effects: Sequence[Effect], senses: Sequence[tuple[str, str]], title: str) -> Figure:
    """A panel a metric of `senses`, (metric, "max" | "min"), a bar a parameter from its least to its greatest value
    around what the plan has now; never shown or saved here."""
    shown = [effect for effect in effects if effect.size > NOTABLE or _turns(effect)][::-1] or list(effects)[:1]
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False})
        size = (2.6 + 3.1 * len(senses), 1.5 + 0.5 * len(shown))
        figure = Figure(figsize=(max(8.0, size[0]), max(2.6, size[1])), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, len(senses), sharey=True, squeeze=False)[0]
        for axis, (metric, sense) in zip(axes, senses, strict=True):
            _draw(axis, shown, metric, sense)
        axes[0].set_yticks(range(len(shown)), [f"{e.name}\n{names.setting(e.now)[:28]}" for e in shown])
        figure.suptitle(title, fontsize=12, fontweight="bold", ha="left", x=0.01)
        figure.supxlabel(
            "times the plan's own value, with every other parameter held; blue is better, hatched worse; at the ends "
            "the options, * not feasible",
            fontsize=8.5,
            color="0.35",
        )
    return figure


def _draw(axis: Axes, effects: Sequence[Effect], metric: str, sense: str) -> None:
    limit = math.log(FAR)
    reach = math.log(REACH)
    now = math.nan
    for y, effect in enumerate(effects):
        swing = next((s for s in effect.swings if s.metric == metric), None)
        if swing is None or swing.now <= 0:
            continue
        now = swing.now
        broken = {repr(option) for option in effect.infeasible()}
        for value, option in ((swing.low, swing.low_at), (swing.high, swing.high_at)):
            length = math.log(value / swing.now) if value > 0 else -limit
            if abs(length) <= NOTABLE:
                continue
            drawn = max(-limit, min(limit, length))
            better = (length < 0) == (sense == "min")
            axis.barh(y, drawn, height=0.55, color=BETTER if better else WORSE, hatch="" if better else "///", lw=0)
            text = f"{names.setting(option)[:22]}{'*' if repr(option) in broken else ''}"
            text += f" ({names.number(math.exp(length))}x)" if drawn != length else ""
            axis.annotate(
                text, (drawn, y), (-3 if length < 0 else 3, 0), textcoords="offset points", va="center",
                ha="right" if length < 0 else "left", fontsize=8, clip_on=False,
            )  # fmt: skip
            reach = max(reach, abs(drawn))
    axis.axvline(0, color=BASE, lw=0.9)
    axis.set_xlim(-1.55 * reach, 1.55 * reach)
    ticks = [t for t in (FINE if reach < math.log(2) else COARSE) if abs(math.log(t)) <= 1.2 * reach]
    axis.set_xticks([math.log(t) for t in ticks], [f"{t:.2g}" for t in ticks])
    axis.set_title(f"{names.metric_name(metric)}, {names.measure(metric, now)}", fontsize=10, loc="left")
    axis.tick_params(axis="y", length=0)
