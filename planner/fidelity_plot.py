"""Predicted against measured, log-log, with the 10% band."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from planner.fidelity import FidelityReport

PANELS = (
    ("ttft_mean", "TTFT, ms"),
    ("tpot_mean", "TPOT, ms"),
    ("e2e_mean", "E2E, ms"),
    ("output_tokens_per_s", "output tokens/s"),
)
BAND = 0.10


def fidelity_figure(report: FidelityReport) -> Figure:
    """One panel a metric that was measured, one colour a GPU."""
    from matplotlib.figure import Figure

    panels = [(metric, title) for metric, title in PANELS if any(row.metric == metric for row in report.rows)]
    figure = Figure(figsize=(5 * max(len(panels), 1), 5), layout="constrained")
    axes = figure.subplots(1, max(len(panels), 1), squeeze=False)[0]
    gpus = sorted({row.gpu for row in report.rows})
    for axis, (metric, title) in zip(axes, panels, strict=False):
        rows = [row for row in report.rows if row.metric == metric]
        for number, gpu in enumerate(gpus):
            own = [row for row in rows if row.gpu == gpu]
            if own:
                axis.scatter(
                    [row.measured for row in own], [row.predicted for row in own], s=14, color=f"C{number}", label=gpu
                )
        low = 0.8 * min(min(row.measured, row.predicted) for row in rows)
        high = 1.25 * max(max(row.measured, row.predicted) for row in rows)
        axis.plot([low, high], [low, high], color="black", linewidth=0.8)
        axis.fill_between(
            [low, high], [low * (1 - BAND), high * (1 - BAND)], [low * (1 + BAND), high * (1 + BAND)], alpha=0.15
        )
        axis.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), title=title)
        axis.set(xlabel="measured", ylabel="predicted")
        axis.legend(fontsize=8)
    return figure


def plot_fidelity(report: FidelityReport, path: str | Path) -> None:
    """Writes the figure; the format is the suffix's."""
    fidelity_figure(report).savefig(path, dpi=150)
