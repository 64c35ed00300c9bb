"""Results of aiperf (`profile_export_aiperf.json`): a statistic with its unit for each metric.

Its inter-token latency is of a request, (E2E - TTFT) / (output tokens - 1): what the planner calls TPOT.
"""

from __future__ import annotations

from typing import Any

from planner.measurements.results import LoadResult, number, put
from sim.errors import InputError

LATENCIES = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "e2e": "request_latency"}
STATISTICS = {"mean": "avg", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "max": "max"}
MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "milliseconds": 1.0}
RATES = {
    "requests_per_s": "request_throughput",
    "output_tokens_per_s": "output_token_throughput",
    "total_tokens_per_s": "total_token_throughput",
    "goodput_rps": "goodput",
}


def recognises(document: Any, name: str) -> bool:
    """Whether its metrics carry units."""
    latency = document.get("request_latency") if isinstance(document, dict) else None
    return isinstance(latency, dict) and "unit" in latency


def read(document: Any, name: str) -> list[LoadResult]:
    """The one run of the file. Raises InputError for a unit that is not a time."""
    metrics: dict[str, float] = {}
    for latency, key in LATENCIES.items():
        given = document.get(key)
        if not isinstance(given, dict):
            continue
        unit = str(given.get("unit", "ms")).lower()
        if unit not in MS:
            raise InputError(key, f"has the unit {unit!r}, which is not one of {', '.join(MS)}")
        for statistic, own in STATISTICS.items():
            put(metrics, f"{latency}_{statistic}_ms", given.get(own), MS[unit])
    for metric, key in RATES.items():
        put(metrics, metric, _average(document, key))
    notes = [] if document.get("is_complete", True) is not False else ["aiperf says that this run is not complete"]
    count = _average(document, "request_count")
    return [
        LoadResult(
            tool="aiperf",
            path="",
            metrics=metrics,
            completed=int(count) if count is not None else None,
            failed=int(_average(document, "error_request_count") or 0),
            prompt_tokens_mean=_average(document, "input_sequence_length"),
            output_tokens_mean=_average(document, "output_sequence_length"),
            notes=tuple(notes),
        )
    ]


def _average(document: dict[str, Any], key: str) -> float | None:
    given = document.get(key)
    return number(given.get("avg")) if isinstance(given, dict) else None
