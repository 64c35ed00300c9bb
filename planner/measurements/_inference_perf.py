"""Results of inference-perf: seconds, a summary of everything, of a stage, or a list of requests.

Its own time per output token counts stream chunks, of which servers send up to two a token: TPOT is taken as
(E2E - TTFT) / (output tokens - 1) instead. Its `output_len` counts the text tokenised anew, which can be a fifth short
of what was generated; the server's own count, `output_tokens`, is taken where the file has it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from planner.measurements.results import LoadResult, number, put, put_distribution
from sim.errors import InputError

STATISTICS = {"mean": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99", "max": "max"}
LATENCIES = {"ttft": "time_to_first_token", "e2e": "request_latency"}
RATES = {
    "requests_per_s": "requests_per_sec",
    "output_tokens_per_s": "output_tokens_per_sec",
    "total_tokens_per_s": "total_tokens_per_sec",
}
MS_PER_S = 1e3
OWN_TPOT = "TPOT is (E2E - TTFT) / (output tokens - 1); inference-perf's own figure counts stream chunks"


def recognises(document: Any, name: str) -> bool:
    """Whether it is a lifecycle summary, or a list of its requests."""
    if isinstance(document, list):
        return bool(document) and isinstance(document[0], dict) and {"start_time", "end_time"} <= document[0].keys()
    return isinstance(document, dict) and "load_summary" in document and "successes" in document


def read(document: Any, name: str) -> list[LoadResult]:
    """The run, or the stage that the file's name says."""
    return [_of_requests(document) if isinstance(document, list) else _of_summary(document, name)]


def _of_summary(document: dict[str, Any], name: str) -> LoadResult:
    successes = document["successes"]
    metrics: dict[str, float] = {}
    for latency, key in LATENCIES.items():
        put_distribution(metrics, latency, successes["latency"].get(key), STATISTICS, MS_PER_S)
    for metric, key in RATES.items():
        put(metrics, metric, (successes.get("throughput") or {}).get(key))
    output = _mean(successes.get("output_tokens")) or _mean(successes.get("output_len"))
    notes = []
    if "e2e_mean_ms" in metrics and "ttft_mean_ms" in metrics and output is not None and output > 1:
        metrics["tpot_mean_ms"] = (metrics["e2e_mean_ms"] - metrics["ttft_mean_ms"]) / (output - 1)
        notes.append(OWN_TPOT)
    stage = re.match(r"stage_(\d+)_", name)
    return LoadResult(
        tool="inference-perf",
        path="",
        metrics=metrics,
        completed=successes.get("count"),
        failed=int((document.get("failures") or {}).get("count") or 0),
        stage=int(stage[1]) if stage else None,
        requested_rate=number(document["load_summary"].get("requested_rate")),
        prompt_tokens_mean=_mean(successes.get("prompt_len")) or _mean(successes.get("prompt_tokens")),
        output_tokens_mean=output,
        notes=tuple(notes),
    )


def _mean(given: Any) -> float | None:
    return number(given.get("mean")) if isinstance(given, dict) else None


def _of_requests(document: list[dict[str, Any]]) -> LoadResult:
    rows = [row for row in document if not row.get("error")]
    if not rows:
        raise InputError("", "holds no request that succeeded")
    e2e = np.array([row["end_time"] - row["start_time"] for row in rows]) * MS_PER_S
    ttft = np.array([_first_token_s(row) for row in rows]) * MS_PER_S
    output = np.array([_output_tokens(row) for row in rows], dtype=float)
    tpot = np.where(output > 1, (e2e - ttft) / np.maximum(output - 1, 1), np.nan)
    metrics: dict[str, float] = {}
    for latency, values in (("ttft", ttft), ("e2e", e2e), ("tpot", tpot)):
        known = values[np.isfinite(values)]
        if len(known):
            put(metrics, f"{latency}_mean_ms", float(known.mean()))
            for statistic in ("p50", "p90", "p95", "p99"):
                put(metrics, f"{latency}_{statistic}_ms", float(np.quantile(known, int(statistic[1:]) / 100)))
    seconds = max(row["end_time"] for row in document) - min(row["start_time"] for row in document)
    if seconds > 0:
        put(metrics, "requests_per_s", len(rows) / seconds)
        put(metrics, "output_tokens_per_s", float(np.nansum(output)) / seconds)
    return LoadResult(
        tool="inference-perf",
        path="",
        metrics=metrics,
        completed=len(rows),
        failed=len(document) - len(rows),
        output_tokens_mean=float(np.nanmean(output)) if np.isfinite(output).any() else None,
        notes=(OWN_TPOT,),
    )


def _first_token_s(row: dict[str, Any]) -> float:
    """Seconds to the first token of a request; nan where it was not streamed."""
    computed = number((row.get("computed_metrics") or {}).get("time_to_first_token"))
    if computed is not None:
        return computed
    times = _response(row).get("output_token_times") or []
    return float(times[0]) - row["start_time"] if times else float("nan")


def _output_tokens(row: dict[str, Any]) -> float:
    for given in (row.get("computed_metrics") or {}, _response(row), row.get("info") or {}):
        found = number(given.get("output_tokens"))
        if found is not None:
            return found
    return float("nan")


def _response(row: dict[str, Any]) -> dict[str, Any]:
    """The response's metrics, which older releases keep in `info` itself."""
    info = row.get("info") or {}
    return info.get("response_metrics") or info
