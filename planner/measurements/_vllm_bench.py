"""Results of `vllm bench serve --save-result`: milliseconds by name; with `--save-detailed`, lists in seconds."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.measurements.results import LoadResult, number, put

# The planner's name of a latency -> vLLM's. Its TPOT is (E2E - TTFT) / (output tokens - 1), its ITL the gaps.
LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2el"}
STATISTICS = {"mean": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99"}
RATES = {
    "requests_per_s": "request_throughput",
    "output_tokens_per_s": "output_throughput",
    "total_tokens_per_s": "total_token_throughput",
    "goodput_rps": "request_goodput",
}


def recognises(document: Any, name: str) -> bool:
    """Whether it has vLLM's names of throughput and of a latency."""
    return isinstance(document, dict) and "request_throughput" in document and "mean_ttft_ms" in document


def read(document: Any, name: str) -> list[LoadResult]:
    """The one run of the file."""
    metrics: dict[str, float] = {}
    for latency, key in LATENCIES.items():
        for statistic, prefix in STATISTICS.items():
            put(metrics, f"{latency}_{statistic}_ms", document.get(f"{prefix}_{key}_ms"))
    _from_requests(document, metrics)
    for metric, key in RATES.items():
        put(metrics, metric, document.get(key))
    completed = document.get("completed")
    rate = number(document.get("request_rate"))
    return [
        LoadResult(
            tool="vllm-bench",
            path="",
            metrics=metrics,
            completed=completed,
            failed=int(document.get("failed") or 0),
            requested_rate=rate,
            prompt_tokens_mean=_mean(document.get("total_input_tokens"), completed),
            output_tokens_mean=_mean(document.get("total_output_tokens"), completed),
        )
    ]


def _from_requests(document: dict[str, Any], metrics: dict[str, float]) -> None:
    """Statistics that the summary lacks (only the asked percentiles are in it), from the detailed lists."""
    ttfts, gaps = document.get("ttfts"), document.get("itls")
    if not ttfts or not gaps or len(ttfts) != len(gaps):
        return
    served = [(first, rest) for first, rest in zip(ttfts, gaps, strict=True) if first > 0]
    if not served:
        return
    first = 1e3 * np.array([ttft for ttft, _ in served])
    whole = first + 1e3 * np.array([float(sum(rest)) for _, rest in served])
    for latency, values in (("ttft", first), ("e2e", whole)):
        for statistic, quantile in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)):
            metrics.setdefault(f"{latency}_{statistic}_ms", float(np.quantile(values, quantile)))
        metrics.setdefault(f"{latency}_mean_ms", float(values.mean()))


def _mean(total: Any, count: Any) -> float | None:
    found = number(total)
    return found / count if found is not None and count else None
