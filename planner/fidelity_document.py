"""The fidelity document: what is validated, where, how well, and where not; generated from a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from planner.calibration.serving import FIT_SHARE, is_fit_row
from planner.fidelity import Comparison, FidelityReport
from planner.measurements import METRICS

Table = Mapping[str, Mapping[str, float]]

INTRODUCTION = """\
# Fidelity

Every run below was measured on real hardware and simulated as it was run: same model, GPU, engine version, knobs, load.
Errors are absolute, in percent of the measurement; a cell is the median, then the mean and the number of runs.
This file is written by `planner fidelity FILE... --document docs/fidelity.md`.

Coefficients are fitted on the open-loop *train* runs, on tables of single kernels and timed steps, and on one load
point in {share} (those whose crc32 of the id is a multiple of {share}; the tables of this document leave them out). The
open-loop *dev* runs and the replays are never fitted on. A row that records a median and no mean is compared with the
median; the rows of AIConfigurator's silicon sample, which do not say, are compared with the mean.
"""

LIMITS = """\
## What is not validated
* Prefill and decode on separate replicas, data-parallel attention, KV offload, speculative decoding, LoRA, pipeline
  parallelism: such rows are counted under *left out*. Expert parallelism is simulated as tensor parallelism.
* GPUs without a kernel table or timed steps (L4, A10G, MI300X): medians over the others, by interconnect.
* The first seconds of a server: kernels that are compiled on first use add up to half a second to some TTFTs, which
  shows in the p99 of short runs.
* Near saturation an error of some percent in the step time becomes one of tens of percent in TTFT.
* All-reduces over PCIe are those of one L40S server; hosts without peer-to-peer access are slower.
* A plan's interval is that of its regime, not of its model: a model whose own row above is far off errs by that much.
* Which models sort their logits (top-p, top-k) is judged by their family; a request that sets its own sampling differs.
"""


def _cell(entry: Mapping[str, float] | None) -> str:
    if entry is None:
        return ""
    return f"{entry['median_ape']:.1f} ({entry['mean_ape']:.1f}; {entry['n']:.0f})"


def _table(title: str, groups: Iterable[tuple[str, Table]]) -> list[str]:
    groups = list(groups)
    metrics = [m for m in METRICS if any(m in summary for _, summary in groups)]
    lines = [f"## {title}", "", "| | " + " | ".join(metrics) + " |", "|---" * (len(metrics) + 1) + "|"]
    for name, summary in groups:
        lines.append(f"| {name} | " + " | ".join(_cell(summary.get(m)) for m in metrics) + " |")
    return [*lines, ""]


def _worst(rows: Iterable[Comparison], count: int = 12) -> list[str]:
    lines = ["## Worst rows", "", "| run | GPU | metric | measured | predicted | error |", "|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: -row.ape)[:count]:
        cells = (row.id, row.gpu, row.metric, f"{row.measured:.4g}", f"{row.predicted:.4g}", f"{row.error:+.0f}%")
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _coefficients(provenance: Mapping[str, Any]) -> list[str]:
    blocks = provenance.get("serving", {}).get("blocks", [])
    lines = ["## Serving coefficients", "", "Value, bounds, and the 5 to 95% interval by bootstrap over the runs.", ""]
    lines += ["| block (runs) | coefficient | value | bounds | interval |", "|---|---|---|---|---|"]
    for block in blocks:
        for path, value in block["values"].items():
            low, high = block["bounds"][path]
            interval = block.get("intervals", {}).get(path)
            shown = f"{interval[0]:.4g} to {interval[1]:.4g}" if interval else ""
            lines.append(
                f"| {block['name']} ({block['runs']}) | `{path}` | {value:.4g} | {low:g} to {high:g} | {shown} |"
            )
    lines += ["", "## Cross-validation", "", "Median absolute errors (%) on what a fit left out.", ""]
    lines += ["| block | left out | errors |", "|---|---|---|"]
    for block in blocks:
        for table in block.get("left_out", {}).values():
            for left, errors in table.items():
                shown = ", ".join(f"{metric} {value:.1f}" for metric, value in errors.items())
                lines.append(f"| {block['name']} | {left} | {shown} |")
    return [*lines, ""]


def _left_out(report: FidelityReport) -> list[str]:
    reasons: dict[str, int] = {}
    for item in report.skipped:
        reasons[item.reason] = reasons.get(item.reason, 0) + 1
    lines = ["## Left out", "", "| runs | why |", "|---|---|"]
    lines += [f"| {count} | {reason} |" for reason, count in sorted(reasons.items(), key=lambda entry: -entry[1])]
    return [*lines, ""]


def fidelity_document(report: FidelityReport, provenance: Mapping[str, Any]) -> str:
    """Markdown. Load points that were fitted on are left out of every table."""
    seen = FidelityReport(
        [row for row in report.rows if not fitted(row)], report.skipped, report.coefficients, report.wall_s
    )

    def where(chosen: Callable[[Comparison], bool]) -> Table:
        return seen.summary(chosen)

    kinds = [
        ("open loop, JSON runs", where(lambda r: r.source.startswith("vllm_open_loop"))),
        ("load points, dense", where(lambda r: _load_point(r) and not r.mixture)),
        ("load points, mixture of experts", where(lambda r: _load_point(r) and r.mixture)),
        ("replays", where(lambda r: r.regime == "replay")),
    ]
    lines = [INTRODUCTION.format(share=FIT_SHARE)]
    lines += _table("By kind", [(name, summary) for name, summary in kinds if summary])
    for title, name in (("By GPU", "gpu"), ("By regime", "regime"), ("By weights", "precision"), ("By model", "model")):
        lines += _table(title, seen.by(name).items())
    lines += _worst(seen.rows)
    lines += _left_out(seen)
    lines += [LIMITS]
    lines += _coefficients(provenance)
    return "\n".join(lines).rstrip() + "\n"


def _load_point(row: Comparison) -> bool:
    return row.regime != "replay" and not row.source.startswith("vllm_open_loop")


def fitted(row: Comparison) -> bool:
    """Whether the shipped coefficients were fitted on the row."""
    return row.source.endswith("_train") or (_load_point(row) and is_fit_row(row.id))


def write_fidelity_document(report: FidelityReport, provenance: Mapping[str, Any], path: str | Path) -> None:
    """Writes the document."""
    Path(path).write_text(fidelity_document(report, provenance), encoding="utf-8")
