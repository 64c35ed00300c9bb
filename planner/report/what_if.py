"""What limits a plan, in words and as a picture, from its counterfactuals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from planner.counterfactuals import Outcome, WhatIf
from planner.report import names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOTABLE = 0.03  # a change of less than this share is none
PARTS = (
    ("#0072b2", ""),
    ("#d55e00", ""),
    ("#009e73", ""),
    ("#cc79a7", ""),
    ("#e69f00", ""),
    ("#d9d9d9", "//"),
)  # colour and hatch of each part of the time, in the order of `Result.time_parts`
BETTER, WORSE, BASE = "#0072b2", "#d55e00", "#555555"


def shown_metrics(ttft: str = "ttft_mean_ms", tpot: str = "tpot_mean_ms") -> tuple[str, ...]:
    """The metrics that a counterfactual is judged by: the run's own TTFT and TPOT, and the mean end-to-end time."""
    return (ttft, tpot, "e2e_mean_ms")


def gain(what: WhatIf, outcome: Outcome, metric: str) -> float:
    """By what share a latency falls (negative: rises) under a counterfactual; nan where it has no value."""
    before, after = what.base.get(metric, math.nan), outcome.metrics.get(metric, math.nan)
    return 1 - after / before if before and not math.isnan(after) else math.nan


def limits(what: WhatIf, metric: str) -> list[tuple[Outcome, float]]:
    """What a metric hangs on, most first: the counterfactuals that better it notably."""
    found = [(outcome, gain(what, outcome, metric)) for outcome in what.outcomes]
    return sorted((item for item in found if item[1] >= NOTABLE), key=lambda item: (-item[1], item[0].change.name))


def sentences(what: WhatIf, metrics: Sequence[str]) -> list[str]:
    """What limits each metric: what it hangs on most, and what would help that can be bought or set."""
    lines = []
    for metric in metrics:
        name, value = names.metric_name(metric), names.measure(metric, what.base.get(metric))
        found = limits(what, metric)
        if not found:
            lines.append(f"{name}, {value}, hangs on no single thing: nothing doubled betters it by {NOTABLE:.0%}.")
            continue
        limiting = [item for item in found if item[0].change.resource]
        text = f"{name}, {value}"
        if limiting:
            text += f", is limited most by {limiting[0][0].change.resource}: {_would(limiting[0], metric)}"
            text += "".join(f", then {o.change.resource} ({-100 * s:+.0f}%)" for o, s in limiting[1:2])
            text += "."
        else:
            text += ", is limited by no single resource."
        bought = [item for item in found if item[0].change.buyable]
        text += f" What can be had: {'; '.join(_would(item, metric) for item in bought[:2])}." if bought else ""
        lines.append(text[0].upper() + text[1:])
    lines += _where_time_goes(what)
    queue, ttft = what.base.get("queue_mean_ms", math.nan), what.base.get("ttft_mean_ms", math.nan)
    if ttft and queue / ttft >= NOTABLE:
        lines.append(f"Waiting before the first step is {names.percent(queue / ttft)} of the mean TTFT.")
    idle = [o.change.name for o in what.outcomes if o.refused is None and not _matters(what, o, metrics)]
    if idle:
        lines.append(f"Of no use here: {', '.join(idle)}.")
    lines += [f"Cannot be: {o.change.name} ({o.refused})." for o in what.outcomes if o.refused is not None]
    return lines


def _where_time_goes(what: WhatIf) -> list[str]:
    """Where the replicas' time goes, and what those who wait wait for; shares under 1% are left out."""
    lines = []
    parts = sorted(what.time_parts.items(), key=lambda item: -item[1])
    shown = [f"{name} {share:.0%}" for name, share in parts if share >= 0.01]
    if shown:
        lines.append(f"The replicas' time goes to: {', '.join(shown)}.")
    waits = [f"for {name} {share:.0%}" for name, share in what.full.items() if share >= 0.01]
    if waits:
        lines.append(f"Requests wait, as a share of the time: {', '.join(waits)}.")
    return lines


def _would(item: tuple[Outcome, float], metric: str) -> str:
    outcome, share = item
    return f"with {outcome.change.name} it is {names.measure(metric, outcome.metrics[metric])} ({-100 * share:+.0f}%)"


def _matters(what: WhatIf, outcome: Outcome, metrics: Sequence[str]) -> bool:
    return any(abs(gain(what, outcome, metric)) >= NOTABLE for metric in metrics)


def what_if_dict(what: WhatIf, metrics: Sequence[str]) -> dict[str, Any]:
    """What `planner explain --json` writes."""
    return {
        "base": _kept(what.base, metrics),
        "saturation": what.saturation,
        "time_parts": what.time_parts,
        "waiting_for": what.full,
        "changes": [
            {
                "change": o.change.name,
                "resource": o.change.resource,
                "buyable": o.change.buyable,
                "refused": o.refused,
                "saturation": o.saturation,
                "metrics": _kept(o.metrics, metrics),
                "gain": {metric: gain(what, o, metric) for metric in metrics},
            }
            for o in what.outcomes
        ],
        "words": sentences(what, metrics),
    }


def _kept(metrics: Mapping[str, float], shown: Sequence[str]) -> dict[str, float]:
    names_ = (*shown, "output_tokens_per_s", "gpus", "cost_per_hour")
    return {name: metrics[name] for name in names_ if name in metrics}


def what_if_figure(what: WhatIf, title: str, metrics: Sequence[str]) -> Figure:
    """A bar a counterfactual and metric: by how many percent it would change; never shown or saved here."""
    outcomes = [outcome for outcome in what.outcomes if outcome.refused is None][::-1]
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False})
        bar = 1.0 if what.time_parts else 0.0
        figure = Figure(figsize=(11, 1.7 + 0.42 * len(outcomes) + bar), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        heights = (bar, 0.42 * len(outcomes) + 0.8)[not bar :]
        grid = figure.add_gridspec(len(heights), len(metrics), height_ratios=heights)
        if bar:
            _draw_time(figure.add_subplot(grid[0, :]), what.time_parts)
        first = figure.add_subplot(grid[-1, 0])
        axes = [first, *(figure.add_subplot(grid[-1, n], sharey=first) for n in range(1, len(metrics)))]
        for axis, metric in zip(axes, metrics, strict=True):
            _draw(axis, what, outcomes, metric)
            axis.tick_params(axis="y", labelleft=axis is first)
        first.set_yticks(range(len(outcomes)), [_label(outcome) for outcome in outcomes])
        figure.suptitle(title, fontsize=12, fontweight="bold", ha="left", x=0.01)
        figure.supxlabel(
            "change of the latency, % (to the left: better).  * can be bought or set; the others no one sells",
            fontsize=8.5,
            color="0.35",
        )
    return figure


def _draw_time(axis: Axes, parts: Mapping[str, float]) -> None:
    """One bar from 0 to 100% of the replicas' time; a part too narrow for its name is named in the legend alone."""
    start = 0.0
    for (name, share), (colour, hatch) in zip(parts.items(), PARTS, strict=True):
        axis.barh(0, 100 * share, left=start, height=0.6, color=colour, hatch=hatch, edgecolor="white", label=name)
        if share >= 0.06:
            box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.0}
            axis.text(start + 50 * share, 0, f"{share:.0%}", ha="center", va="center", fontsize=8.5, bbox=box)
        start += 100 * share
    axis.set(xlim=(0, 100), yticks=[], ylim=(-0.4, 0.4))
    axis.set_title("where the replicas' time goes (%)", fontsize=10, loc="left")
    axis.legend(ncols=len(parts), loc="upper left", bbox_to_anchor=(0, -0.35), frameon=False, fontsize=8.5)


def _label(outcome: Outcome) -> str:
    return f"{outcome.change.name}{' *' if outcome.change.buyable else ''}"


def _draw(axis: Axes, what: WhatIf, outcomes: Sequence[Outcome], metric: str) -> None:
    values = [-100 * gain(what, outcome, metric) for outcome in outcomes]
    known = [value for value in values if math.isfinite(value)]
    reach = max([10.0, *(abs(value) for value in known if value < 0)])
    right = min(100.0, max([0.25 * reach, *(value for value in known if value > 0)]))
    for y, value in enumerate(values):
        if not math.isfinite(value):
            continue
        shown = min(value, right)
        axis.barh(y, shown, height=0.62, color=BETTER if value < 0 else WORSE, hatch="" if value < 0 else "///")
        text = f"{value:+.0f}" if abs(value) >= 0.5 else "0"
        left = value < 0
        axis.annotate(
            text, (shown, y), (-4 if left else 4, 0), textcoords="offset points", va="center",
            ha="right" if left else "left", fontsize=8.5,
        )  # fmt: skip
    axis.axvline(0, color=BASE, lw=0.9)
    axis.set_xlim(-1.25 * reach, 1.4 * right)
    axis.set_title(
        f"{names.metric_name(metric)}, {names.measure(metric, what.base.get(metric))}", fontsize=10, loc="left"
    )
    axis.tick_params(axis="y", length=0)
