"""How plans, metrics and numbers are written, the same in tables, sentences and figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.parameters import OF_DISAGGREGATION

_STATISTICS = {"mean": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99", "max": "max"}
_LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E latency", "queue": "time in queue"}
_METRICS = {
    "output_tokens_per_s": ("output throughput", "tokens/s"),
    "total_tokens_per_s": ("total throughput", "tokens/s"),
    "requests_per_s": ("request throughput", "requests/s"),
    "goodput_rps": ("goodput", "requests/s"),
    "gpus": ("GPUs", ""),
    "cost_per_hour": ("cost", "$/h"),
    "cost_per_million_output_tokens": ("cost per million output tokens", "$"),
    "max_rate_rps": ("highest rate within the SLO", "requests/s"),
    "min_gpus": ("fewest GPUs within the SLO", ""),
    "slo_attainment": ("SLO attainment", ""),
    "shed_rate": ("share shed", ""),
    "duration_s": ("duration", "s"),
    "jain_index": ("fairness between tenants (Jain)", ""),
    "prefix_hit_rate": ("prefix-cache hit rate", ""),
    "tier_hit_rate": ("share loaded from cache tiers", ""),
    "kv_utilization_mean": ("mean KV-cache use", ""),
    "kv_capacity_tokens": ("KV cache of a replica", "tokens"),
    "disaggregated_share": ("share prefilled in the prefill pool", ""),
    "prefill_kv_capacity_tokens": ("KV cache of a prefill replica", "tokens"),
    "prefill_utilization_mean": ("mean use of prefill replicas", ""),
    "kv_transfer_mean_ms": ("mean KV transfer", "ms"),
    "kv_transferred_gb": ("KV transferred", "GB"),
    "kv_link_utilization_mean": ("mean use of the links for KV", ""),
}
OPERATORS = {"<=": "≤", ">=": "≥", "<": "<", ">": ">", "==": "="}

# Budgets bound what may be bought; everything else that is constrained is a service level.
BUDGETS = frozenset({"gpus", "min_gpus", "cost_per_hour", "cost_per_million_output_tokens"})
# What a plan's label already says.
SIZE = ("tensor_parallel_size", "replicas", "prefill_tensor_parallel_size", "prefill_replicas")


def metric_name(metric: str) -> str:
    """A metric in words, without its unit: ``ttft_p99_ms`` is "p99 TTFT"."""
    if metric in _METRICS:
        return _METRICS[metric][0]
    slo_class, dot, of_class = metric.partition(".")
    if dot:
        return f"{metric_name(of_class)} of {slo_class}"
    head, _, rest = metric.partition("_")
    statistic = rest.removesuffix("_ms")
    if head in _LATENCIES and statistic in _STATISTICS:
        return f"{_STATISTICS[statistic]} {_LATENCIES[head]}"
    return metric.removesuffix("_ms").replace("_", " ")


def metric_unit(metric: str) -> str:
    """The unit of a metric, empty where it is a count or a share."""
    metric = metric.rpartition(".")[2]
    if metric in _METRICS:
        return _METRICS[metric][1]
    return "ms" if metric.endswith("_ms") else ""


def axis_label(metric: str) -> str:
    """A metric as an axis names it: "Mean TTFT (ms)"."""
    name, unit = metric_name(metric), metric_unit(metric)
    name = name[0].upper() + name[1:]
    return f"{name} ({unit})" if unit else name


def number(value: Any) -> str:
    """A number to three significant digits, thousands grouped; a dash where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if float(value).is_integer() or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if abs(value) >= 0.001 else f"{value:.1e}"


def money(value: Any) -> str:
    """Dollars and cents, without the sign; a dash where there is no price."""
    return "-" if value is None or math.isnan(value) else f"{value:,.2f}"


def measure(metric: str, value: Any) -> str:
    """A metric's value with its unit: "112 ms", "$12.80/h"."""
    if metric == "cost_per_hour":
        return f"${money(value)}/h"
    if metric == "cost_per_million_output_tokens":
        return f"${money(value)}"
    unit = metric_unit(metric)
    return f"{number(value)} {unit}" if unit else number(value)


def constraint(metric: str, operator: str, value: float) -> str:
    """A constraint in words: "mean TTFT ≤ 300 ms"."""
    return f"{metric_name(metric)} {OPERATORS.get(operator, operator)} {measure(metric, value)}"


def percent(share: float) -> str:
    """A share as a whole percentage, with one digit below 10%."""
    return f"{share:.1%}" if 0 < abs(share) < 0.0995 else f"{share:.0%}"


def plan_label(parameters: Mapping[str, Any]) -> str:
    """TP x replicas, the way plans are spoken of: "4x1"; with a prefill pool both pools, "P 1x2, D 4x1"."""
    size = f"{parameters.get('tensor_parallel_size', 1)}x{parameters.get('replicas', 1)}"
    replicas = parameters.get("prefill_replicas")
    return f"P {prefill_size(parameters)}x{replicas}, D {size}" if replicas else size


def prefill_size(parameters: Mapping[str, Any]) -> int:
    """GPUs of a prefill replica."""
    return int(parameters.get("prefill_tensor_parallel_size") or parameters.get("tensor_parallel_size", 1))


def pools(parameters: Mapping[str, Any]) -> str:
    """The replicas of a plan: "4 x TP2", with a prefill pool "2 x TP1 prefill + 4 x TP2 decode"."""
    decode = f"{parameters.get('replicas', 1)} x TP{parameters.get('tensor_parallel_size', 1)}"
    replicas = parameters.get("prefill_replicas")
    return f"{replicas} x TP{prefill_size(parameters)} prefill + {decode} decode" if replicas else decode


def setting(value: Any) -> str:
    """A parameter's value on one line; a policy by its name and parameters."""
    if isinstance(value, Mapping):
        rest = {key: item for key, item in value.items() if key not in ("name", "parameters")}
        rest.update(value.get("parameters") or {})
        inner = ", ".join(f"{key}={setting(item)}" for key, item in rest.items())
        return f"{value.get('name', '')}({inner})" if inner else str(value.get("name", ""))
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def varying(plans: Sequence[Mapping[str, Any]], *, but: Iterable[str] = SIZE) -> list[str]:
    """The parameters in which the plans differ, in the plans' own order, without those in `but`."""
    names: dict[str, set[str]] = {}
    for parameters in plans:
        for name, value in parameters.items():
            names.setdefault(name, set()).add(setting(value))
    skipped = set(but)
    present = len(plans)
    return [
        name
        for name, values in names.items()
        if name not in skipped and (len(values) > 1 or sum(name in p for p in plans) < present)
    ]


def settings(parameters: Mapping[str, Any], names: Iterable[str]) -> str:
    """Parameters and values on one line: "max_num_seqs 64, routing weighted"."""
    said = [name for name in names if name in parameters and not _says_nothing(name, parameters)]
    return ", ".join(f"{name} {setting(parameters[name])}" for name in said)


def _says_nothing(name: str, parameters: Mapping[str, Any]) -> bool:
    return name in OF_DISAGGREGATION and not parameters.get("prefill_replicas")
