"""Results of guidellm (`benchmarks.json`): one or more benchmarks, successful requests apart from the others.

Its `time_per_output_token_ms` spreads the whole answer, the first token included, over the tokens; what the planner
calls TPOT is its `inter_token_latency_ms`. `request_latency` is in seconds.
"""

from __future__ import annotations

from typing import Any

from planner.measurements.results import LoadResult, number, put
from sim.errors import InputError

# The planner's latency -> guidellm's key, and what makes it milliseconds.
LATENCIES = {
    "ttft": ("time_to_first_token_ms", 1.0),
    "tpot": ("inter_token_latency_ms", 1.0),
    "e2e": ("request_latency", 1e3),
}
PERCENTILES = ("p50", "p90", "p95", "p99")
RATES = {
    "requests_per_s": "requests_per_second",
    "output_tokens_per_s": "output_tokens_per_second",
    "total_tokens_per_s": "tokens_per_second",
}
OWN_TPOT = "TPOT is guidellm's inter_token_latency_ms; its time_per_output_token_ms counts the first token in"


def recognises(document: Any, name: str) -> bool:
    """Whether it holds benchmarks with metrics by status."""
    benchmarks = document.get("benchmarks") if isinstance(document, dict) else None
    return isinstance(benchmarks, list) and bool(benchmarks) and "metrics" in benchmarks[0]


def read(document: Any, name: str) -> list[LoadResult]:
    """One run for each benchmark of the file."""
    if not document.get("benchmarks"):
        raise InputError("", "holds no benchmark")
    return [_read(benchmark) for benchmark in document["benchmarks"]]


def _read(benchmark: dict[str, Any]) -> LoadResult:
    given = benchmark["metrics"]
    metrics: dict[str, float] = {}
    notes = []
    for latency, (key, scale) in LATENCIES.items():
        successful = _successful(given.get(key))
        put(metrics, f"{latency}_mean_ms", successful.get("mean"), scale)
        for percentile in PERCENTILES:
            put(metrics, f"{latency}_{percentile}_ms", (successful.get("percentiles") or {}).get(percentile), scale)
        put(metrics, f"{latency}_p50_ms", successful.get("median"), scale)
        if latency == "tpot" and successful:
            notes.append(OWN_TPOT)
    if "tpot_mean_ms" not in metrics:
        _tpot_from_the_whole(given, metrics)
    for metric, key in RATES.items():
        put(metrics, metric, _successful(given.get(key)).get("mean"))
    totals = given.get("request_totals") or {}
    return LoadResult(
        tool="guidellm",
        path="",
        metrics=metrics,
        completed=totals.get("successful"),
        failed=int(totals.get("errored") or 0),
        requested_rate=_requested_rate(benchmark),
        prompt_tokens_mean=number(_successful(given.get("prompt_token_count")).get("mean")),
        output_tokens_mean=number(_successful(given.get("output_token_count")).get("mean")),
        notes=tuple(notes),
    )


def _tpot_from_the_whole(given: dict[str, Any], metrics: dict[str, float]) -> None:
    output = number(_successful(given.get("output_token_count")).get("mean"))
    if output is not None and output > 1 and "e2e_mean_ms" in metrics and "ttft_mean_ms" in metrics:
        put(metrics, "tpot_mean_ms", (metrics["e2e_mean_ms"] - metrics["ttft_mean_ms"]) / (output - 1))


def _successful(given: Any) -> dict[str, Any]:
    found = given.get("successful") if isinstance(given, dict) else None
    return found if isinstance(found, dict) else {}


def _requested_rate(benchmark: dict[str, Any]) -> float | None:
    strategy = (benchmark.get("config") or {}).get("strategy") or {}
    return number(strategy.get("rate")) if isinstance(strategy, dict) else None
