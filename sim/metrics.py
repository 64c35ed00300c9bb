"""Per-request records to what people read: distributions, rates, SLO attainment, saturation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.backlog import backlog_trend
from sim.engine.stats import bin_start
from sim.workload import SLO_CLASS_PRIORITY

PS_PER_MS = 1e9
PS_PER_S = 1e12
STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")
DISTRIBUTIONS = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "queue_ms")

_SCALARS = {
    "offered": "max",
    "completed": "max",
    "shed": "min",
    "expired": "min",
    "shed_rate": "min",
    "rejected": "min",
    "unfinished": "min",
    "duration_s": "min",
    "requests_per_s": "max",
    "output_tokens_per_s": "max",
    "total_tokens_per_s": "max",
    "gpus": "min",
    "cost_per_hour": "min",
    "cost_per_million_output_tokens": "min",
    "goodput_rps": "max",
    "slo_attainment": "max",
    "jain_index": "max",
    "preemptions": "min",
    "prefix_hit_rate": "max",
    "tier_hit_rate": "max",
    "kv_capacity_tokens": "max",
    "kv_utilization_mean": "min",
    "seats_mean_utilization": "min",
    "replica_utilization_mean": "min",
    "disaggregated_share": "max",
    "prefill_kv_capacity_tokens": "max",
    "prefill_utilization_mean": "min",
    "kv_transfer_mean_ms": "min",
    "kv_transferred_gb": "min",
    "kv_link_utilization_mean": "min",
}


def flat_name(distribution: str, statistic: str) -> str:
    """``ttft_ms`` and ``p99`` make ``ttft_p99_ms``."""
    return f"{distribution.removesuffix('_ms')}_{statistic}_ms"


_WHOLE: dict[str, str] = _SCALARS | {flat_name(d, s): "min" for d in DISTRIBUTIONS for s in STATISTICS}

_CLASS_SCALARS = (
    "offered",
    "completed",
    "shed",
    "expired",
    "shed_rate",
    "requests_per_s",
    "output_tokens_per_s",
    "goodput_rps",
    "slo_attainment",
)
_CLASS_DISTRIBUTIONS = ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms")
_OF_A_CLASS = (*_CLASS_SCALARS, *(flat_name(d, s) for d in _CLASS_DISTRIBUTIONS for s in STATISTICS))
METRICS: dict[str, str] = _WHOLE | {f"{c}.{name}": _WHOLE[name] for c in SLO_CLASS_PRIORITY for name in _OF_A_CLASS}
"""Every flat metric and whether more (`max`) or less (`min`) of it is better; those of one SLO class are called
``critical.ttft_p99_ms``, and have no value where the workload has no such class.
"""

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Records:
    """One entry a request, in order of the workload; times in ms, nan where they have not come within the run.

    `ttft_ms`, `e2e_ms` are as the client sees them, from the moment it sent the request. `ttft_floor_ms` is the TTFT,
    and where there is none how long the request had waited when the run ended.
    """

    arrival_ms: Floats
    queue_ms: Floats
    ttft_ms: Floats
    ttft_floor_ms: Floats
    tpot_ms: Floats
    e2e_ms: Floats
    prompt_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]
    cached_tokens: npt.NDArray[np.int64]
    preemptions: npt.NDArray[np.int64]
    replica: npt.NDArray[np.int64]
    slo_class: npt.NDArray[np.int64]
    stage: npt.NDArray[np.int64]
    offered: Mask
    completed: Mask
    shed: Mask
    expired: Mask
    rejected: Mask
    tenant: npt.NDArray[np.int64]


def distribution(values: Floats) -> dict[str, float | None]:
    """Mean, p50, p90, p95, p99 (linear interpolation) and max of the values that are not nan; None where there are
    none.
    """
    values = np.sort(values[~np.isnan(values)])
    n = len(values)
    if n == 0:
        return dict.fromkeys(STATISTICS, None)
    found: dict[str, float | None] = {"mean": float(values.sum() / n)}
    for percent in (50, 90, 95, 99):
        at = (n - 1) * percent / 100
        low = int(at)
        high = min(low + 1, n - 1)
        found[f"p{percent}"] = float(values[low] + (values[high] - values[low]) * (at - low))
    found["max"] = float(values[-1])
    return found


def inter_token_distribution(bins: Mapping[int, int]) -> dict[str, float | None]:
    """The distribution of gaps between tokens from their histogram (bins under 0.8% wide), in ms."""
    total = sum(bins.values())
    if not total:
        return dict.fromkeys(STATISTICS, None)
    keys = sorted(bins)
    counts = np.array([bins[key] for key in keys], dtype=np.float64)
    middles = np.array([(bin_start(key) + bin_start(key + 1)) / 2 for key in keys]) / PS_PER_MS
    cumulative = np.cumsum(counts)
    found: dict[str, float | None] = {"mean": float((middles * counts).sum() / total)}
    for percent in (50, 90, 95, 99):
        found[f"p{percent}"] = float(middles[int(np.searchsorted(cumulative, percent / 100 * total))])
    found["max"] = float(middles[-1])
    return found


def meets_slo(records: Records, request_slo: Mapping[str, float]) -> Mask:
    """Which requests completed within every limit (`ttft_ms`, `tpot_ms`, `e2e_ms`); one of a single token has no TPOT
    to miss.
    """
    good = records.completed.copy()
    for name, limit in request_slo.items():
        values = getattr(records, name)
        good &= (values <= limit) | (np.isnan(values) if name == "tpot_ms" else False)
    return good


def group_summary(records: Records, mask: Mask, duration_s: float, request_slo: Mapping[str, float]) -> dict[str, Any]:
    """What the contract says of a group of requests: counts, rates over `duration_s`, distributions, SLO attainment."""
    completed = records.completed & mask
    offered = int((records.offered & mask).sum())
    output = int(records.output_tokens[completed].sum())
    total = output + int(records.prompt_tokens[completed].sum())
    rate = 1.0 / duration_s if duration_s > 0 else 0.0
    good = int((meets_slo(records, request_slo) & mask).sum())
    shed = int((records.shed & mask).sum())
    expired = int((records.expired & mask).sum())
    rejected = int((records.rejected & mask).sum())
    done = int(completed.sum())
    unfinished = offered - done - shed - expired - rejected
    return {
        "offered": offered,
        "completed": done,
        "shed": shed,
        "expired": expired,
        "shed_rate": (shed + expired) / offered if offered else 0.0,
        "rejected": rejected,
        "unfinished": unfinished,
        "requests_per_s": done * rate,
        "output_tokens_per_s": output * rate,
        "total_tokens_per_s": total * rate,
        "goodput_rps": good * rate,
        "slo_attainment": good / offered if offered else 0.0,
        "ttft_ms": distribution(records.ttft_floor_ms[mask]),
        "ttft_lower_bound": bool(np.any(np.isnan(records.ttft_ms[mask]) & ~np.isnan(records.ttft_floor_ms[mask]))),
        "tpot_ms": distribution(records.tpot_ms[mask]),
        "e2e_ms": distribution(records.e2e_ms[mask]),
        "queue_ms": distribution(records.queue_ms[mask]),
    }


def flatten(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """The flat metrics (`METRICS`) of a summary, of its own classes only; None where one has no value."""
    flat: dict[str, float | None] = {name: summary.get(name) for name in _SCALARS}
    for name in DISTRIBUTIONS:
        for statistic in STATISTICS:
            flat[flat_name(name, statistic)] = summary[name][statistic]
    for slo_class, group in summary.get("classes", {}).items():
        for name in _CLASS_SCALARS:
            flat[f"{slo_class}.{name}"] = group[name]
        for name in _CLASS_DISTRIBUTIONS:
            for statistic in STATISTICS:
                flat[f"{slo_class}.{flat_name(name, statistic)}"] = group[name][statistic]
    return flat


def jain_index(records: Records, tenants: int) -> float | None:
    """How evenly tenants are served, 1 / number (one gets all) to 1: Jain's index of the share of each tenant's tokens
    that was served. None where there are no tenants (Jain, Chiu, Hawe 1984).
    """
    if tenants == 0:
        return None
    tokens = (records.prompt_tokens + records.output_tokens).astype(np.float64)
    asked = np.bincount(records.tenant[records.offered], tokens[records.offered], tenants)
    served = np.bincount(records.tenant[records.completed], tokens[records.completed], tenants)
    share = served[asked > 0] / asked[asked > 0]
    squares = float((share**2).sum())
    return float(share.sum()) ** 2 / (len(share) * squares) if squares else None


def saturation(records: Records, closed_loop: bool) -> str:
    """`stable`, `backlogged` or `overloaded`, from the requests that wait for their first token over the arrivals.

    In an open loop: overloaded if their number, seen by arriving requests, grows beyond its own noise (`BacklogTrend`),
    or if more than one in a hundred expires at the gateway; backlogged if more than one in ten requests queues
    for longer than the median request takes to be answered after it. A closed loop cannot overload: it is backlogged
    or stable.
    """
    served = records.offered & ~records.shed & ~records.rejected & ~records.expired
    n = int(served.sum())
    if n < 10:
        return "stable"
    arrival = records.arrival_ms[served]
    start = arrival + np.where(np.isnan(records.queue_ms[served]), np.inf, records.queue_ms[served])
    expired = float(records.expired.sum() / records.offered.sum())
    if not closed_loop and (expired > 0.01 or backlog_trend(arrival, start).is_growing):
        return "overloaded"
    queue = records.queue_ms[served]
    service = records.e2e_ms[served] - queue
    if np.isnan(service).all():
        return "overloaded"
    if np.mean(np.nan_to_num(queue, nan=np.inf) > np.nanmedian(service)) > 0.1:
        return "backlogged"
    return "stable"
