"""The picture of a rate sweep: latency and throughput over the arrival rate."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from planner.goals import Constraint
from planner.plan import Plan
from planner.report import names
from planner.sweep import Sweep

BLUE, ORANGE, GREY = "#1f5fa8", "#d1661b", "#666666"


def sweep_figure(found: Sweep, plan: Plan) -> Figure:
    """TTFT and TPOT (with the SLO's limits) and output tokens a second, over requests a second."""
    figure = Figure(figsize=(10.5, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    rates = [point.rate_rps for point in found.points]
    for axes, family, statistics in ((left, "ttft", ("mean", "p90", "p99")), (middle, "tpot", ("mean", "p90", "p99"))):
        for statistic, style in zip(statistics, ("-", "--", ":"), strict=True):
            values = [point.metrics[f"{family}_{statistic}_ms"] for point in found.points]
            axes.plot(rates, values, style, color=BLUE, label=statistic, marker="o", markersize=3)
        for constraint in plan.constraints:
            if constraint.metric.startswith(f"{family}_"):
                _limit(axes, constraint)
        axes.set_ylabel(f"{family.upper()} (ms)")
        axes.legend(frameon=False, fontsize=8)
    left.set_yscale("log")
    middle.set_ylim(bottom=0)
    right.plot(rates, [p.metrics["output_tokens_per_s"] for p in found.points], color=BLUE, marker="o", markersize=3)
    right.set_ylabel("output tokens/s")
    right.set_ylim(bottom=0)
    for axes in (left, middle, right):
        axes.axvline(found.knee_rps, color=GREY, linewidth=0.8, linestyle=":")
        if found.max_rate_rps:
            axes.axvline(found.max_rate_rps, color=ORANGE, linewidth=1)
        axes.set_xlabel("requests/s")
        axes.spines[["top", "right"]].set_visible(False)
    right.set_title(f"carries {found.max_rate_rps:.4g}/s (orange), knee {found.knee_rps:.4g}/s (dotted)", fontsize=8)
    figure.suptitle(_title(plan), fontsize=10)
    return figure


def _limit(axes: Axes, constraint: Constraint) -> None:
    axes.axhline(constraint.limit, color=ORANGE, linewidth=0.8, linestyle="--")


def _title(plan: Plan) -> str:
    return f"{plan.model} on {names.pools(plan.deployment)} {plan.deployment['gpu']}"
