"""A simulated plan over time and as distributions, in as many numbers as a picture can show."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from planner.report.replica_timelines import averaged_over
from sim.engine.timeline import Timeline
from sim.result import Result

SPANS = 100
POINTS = 200  # of a distribution
MOST_REPLICAS = 64
COLUMNS = {"waiting": "waiting", "running": "running", "kv_usage": "kv_usage", "hit_rate": "prefix_hit_rate"}

Floats = npt.NDArray[np.float64]


def distributions(result: Result) -> dict[str, dict[str, list[float | None]]]:
    """Of each latency (ms) its empirical distribution: values `x`, and the share `p` of requests at or below them."""
    found = {}
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms"):
        values = np.sort(getattr(result.records, name))
        values = values[np.isfinite(values)]
        n = len(values)
        at = np.unique(np.linspace(0, n - 1, min(n, POINTS)).round().astype(np.int64)) if n else np.zeros(0, np.int64)
        found[name] = {"x": _rounded(values[at]), "p": _rounded((at + 1) / max(n, 1))}
    return found


def timeline(result: Result) -> dict[str, Any]:
    """Means over `SPANS` equal spans of a `sampled` run, of each replica: requests waiting and running, the share of KV
    blocks held, and the share of prompt tokens that came from the prefix cache (None where none was looked up)."""
    replicas = [*(result.prefill.timelines() if result.prefill is not None else ()), *result.timelines()]
    last = max((float(each.time_s[-1]) for each in replicas if len(each.time_s)), default=0.0)
    edges = np.linspace(0.0, last or 1.0, SPANS + 1)
    return {
        "edges_s": _rounded(edges),
        "kv_capacity_tokens": result.capacity.tokens,
        "max_num_seqs": result.deployment.max_num_seqs,
        "names": replica_names(result)[:MOST_REPLICAS],
        "replicas": [_averaged(each, edges) for each in replicas[:MOST_REPLICAS]],
        "replicas_left_out": max(0, len(replicas) - MOST_REPLICAS),
    }


def replica_names(result: Result) -> list[str]:
    """How the page calls each replica: r0, r1, ...; of two pools p0, ... (prefill) and then d0, ... (decode)."""
    if result.prefill is None:
        return [f"r{index}" for index in range(len(result.replicas))]
    pools = (("p", result.prefill.replicas), ("d", result.replicas))
    return [f"{pool}{index}" for pool, replicas in pools for index in range(len(replicas))]


def _averaged(replica: Timeline, edges: Floats) -> dict[str, list[float | None]]:
    return {name: _rounded(averaged_over(replica, column, edges)) for name, column in COLUMNS.items()}


def _rounded(values: Floats) -> list[float | None]:
    """To six significant digits: more than a picture shows, in half the text."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]
