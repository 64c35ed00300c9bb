"""How many candidates of a search ended how, the same in progress, tables, reports and manifests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def outcome_counts(evaluations: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Candidates by how they ended: `evaluations` (simulated to their end), `ruled_out` (`stopped_early` among them),
    `refused` and `failed` add up to `candidates`."""
    kept = list(evaluations)
    simulated = sum(bool(evaluation["simulated"]) for evaluation in kept)
    refused = sum(bool(evaluation.get("refused")) for evaluation in kept)
    failed = sum(bool(evaluation.get("failed")) for evaluation in kept)
    return {
        "candidates": len(kept),
        "evaluations": simulated,
        "ruled_out": len(kept) - simulated - refused - failed,
        "refused": refused,
        "ruled_out_by_bounds": sum(evaluation.get("bound") == "constraint" for evaluation in kept),
        "dominated_at_bounds": sum(evaluation.get("bound") == "dominated" for evaluation in kept),
        "stopped_early": sum(bool(evaluation.get("stopped_early")) for evaluation in kept),
        "failed": failed,
        "feasible": sum(bool(evaluation["feasible"]) for evaluation in kept),
    }


def counts_words(counts: Mapping[str, Any]) -> str:
    """`outcome_counts` in words: "64 candidates: 24 simulated (9 stopped early), 40 ruled out"."""
    stopped, refused, failed = (int(counts.get(name, 0)) for name in ("stopped_early", "refused", "failed"))
    total, simulated = int(counts.get("candidates", 0)), int(counts.get("evaluations", 0)) + stopped + failed
    words = simulated_words(simulated, stopped, refused, failed)
    left = total - simulated - refused
    return f"{total:,} candidate{'' if total == 1 else 's'}: {words}{f', {left:,} ruled out' if left else ''}"


def simulated_words(simulated: int, stopped: int = 0, refused: int = 0, failed: int = 0, of: int | None = None) -> str:
    """How many were simulated, and what became of them: "24 of 30 simulated (9 stopped early), 2 would not start"."""
    less = [f"{stopped:,} stopped early"] if stopped else []
    less += [f"{failed:,} failed"] if failed else []
    unfinished = f" ({', '.join(less)})" if less else ""
    start = f", {refused:,} would not start" if refused else ""
    return f"{simulated:,}{f' of {of:,}' if of else ''} simulated{unfinished}{start}"
