"""What the command line shows of one simulated plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from planner.report import names
from planner.report.layout import line, table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_result(console: Console, summary: Mapping[str, Any], plan: Any) -> None:
    """One simulated plan in sections: what was served, latencies, resources, and the replicas where there are several.

    `summary` is what ``planner simulate --json`` writes; `plan` names the model and the deployment.
    """
    line(console, _plan_title(summary, plan), style="bold")
    line(console, _served(summary))
    console.print(_latency_table(summary))
    line(console, _resources(summary))
    goodput, attainment = summary.get("goodput_rps"), summary.get("slo_attainment")
    if attainment is not None and goodput is not None:
        line(
            console,
            f"SLO: {names.percent(attainment)} of requests attain it, goodput {names.number(goodput)} requests/s",
        )
    classes = summary.get("classes") or {}
    if classes:
        console.print(_class_table(classes))
    replicas, prefill = summary.get("replicas") or [], summary.get("prefill_replicas") or []
    if prefill:
        line(console, _transfers(summary))
        if summary["ttft_parts_ms"] is not None:
            line(console, _ttft_parts(summary["ttft_parts_ms"]))
        replicas = [*({"name": f"prefill {i}"} | r for i, r in enumerate(prefill)), *replicas]
    if len(replicas) > 1:
        console.print(_replica_table(replicas, len(prefill)))


def _plan_title(summary: Mapping[str, Any], plan: Any) -> str:
    raw = plan if isinstance(plan, Mapping) else {"model": getattr(plan, "model", ""), "deployment": plan.deployment}
    deployment = raw["deployment"]
    if not isinstance(deployment, Mapping):
        deployment = {name: getattr(deployment, name) for name in (*names.SIZE, "gpu")}
    model, gpu = _name_of(raw.get("model")), _name_of(deployment.get("gpu"))
    cost = summary.get("cost_per_hour")
    price = f", ${cost:.2f}/h" if cost is not None else ""
    return f"{model} on {gpu}, TP x replicas {names.plan_label(deployment)}, {summary['gpus']} GPUs{price}"


def _name_of(value: Any) -> str:
    return str(getattr(value, "name", value))


def _served(summary: Mapping[str, Any]) -> str:
    others = (
        ("shed", "shed"),
        ("expired", "expired at the gateway"),
        ("rejected", "rejected as too long"),
        ("unfinished", "unfinished"),
    )
    extra = "".join(f", {names.number(summary[key])} {words}" for key, words in others if summary.get(key))
    return (
        f"{names.number(summary['completed'])} of {names.number(summary['offered'])} requests completed{extra} in "
        f"{names.number(summary['duration_s'])} s ({summary['saturation']}): "
        f"{names.number(summary['requests_per_s'])} requests/s, {names.number(summary['output_tokens_per_s'])} output "
        f"tokens/s, {names.number(summary['total_tokens_per_s'])} total tokens/s"
    )


def _latency_table(summary: Mapping[str, Any]) -> Table:
    grid = table()
    grid.add_column("ms")
    statistics = ("mean", "p50", "p90", "p95", "p99", "max")
    for statistic in statistics:
        grid.add_column(statistic, justify="right")
    bound = "≥" if summary.get("ttft_lower_bound") else ""
    for key, label in (
        ("ttft_ms", "TTFT"),
        ("tpot_ms", "TPOT"),
        ("itl_ms", "ITL"),
        ("e2e_ms", "E2E"),
        ("queue_ms", "queue"),
    ):
        values = summary.get(key) or {}
        mark = bound if key == "ttft_ms" else ""
        grid.add_row(label, *(mark + names.number(values.get(statistic)) for statistic in statistics))
    return grid


def _resources(summary: Mapping[str, Any]) -> str:
    parts = [
        f"KV cache {names.number(summary.get('kv_capacity_tokens'))} tokens a replica, "
        f"{_share(summary.get('kv_utilization_mean'))} used on average",
        f"prefix hit rate {_share(summary.get('prefix_hit_rate'))}" + _of_tiers(summary.get("cache_sources", {})),
        f"{names.number(summary.get('preemptions'))} preemptions",
    ]
    cost = summary.get("cost_per_million_output_tokens")
    return "; ".join(parts) + (f"; ${cost:.2f} per million output tokens" if cost is not None else "")


def _transfers(summary: Mapping[str, Any]) -> str:
    return (
        f"Prefill pool: {_share(summary['disaggregated_share'])} of the requests, busy "
        f"{_share(summary['prefill_utilization_mean'])} of the time; KV transfers: "
        f"{names.number(summary['kv_transferred_gb'])} GB, mean {names.number(summary['kv_transfer_mean_ms'])} ms, "
        f"links busy {_share(summary['kv_link_utilization_mean'])} of the time"
    )


def _ttft_parts(parts: Mapping[str, float]) -> str:
    """The mean TTFT of what went through both pools, part by part."""
    words = {"kv_and_seat": "KV transfer and seat"}
    said = [f"{words.get(name, name.replace('_', ' '))} {names.number(value)}" for name, value in parts.items()]
    return f"Their mean TTFT, {names.number(sum(parts.values()))} ms: {', '.join(said)}"


def _of_tiers(sources: Mapping[str, float]) -> str:
    """What the cache tiers add to the hits in the GPU's memory."""
    tiers = [f"{name} {_share(share)}" for name, share in sources.items() if name != "gpu"]
    return f" (from tiers: {', '.join(tiers)})" if tiers else ""


def _share(value: Any) -> str:
    return "-" if value is None else names.percent(value)


def _class_table(classes: Mapping[str, Mapping[str, Any]]) -> Table:
    grid = table()
    grid.add_column("class")
    for heading in ("offered", "completed", "shed", "TTFT mean ms", "TTFT p99 ms", "TPOT mean ms", "SLO attained"):
        grid.add_column(heading, justify="right")
    for name, group in classes.items():
        ttft, tpot = group["ttft_ms"], group["tpot_ms"]
        figures = (group["offered"], group["completed"], group["shed"], ttft["mean"], ttft["p99"], tpot["mean"])
        grid.add_row(name, *(names.number(figure) for figure in figures), _share(group["slo_attainment"]))
    return grid


def _replica_table(replicas: Sequence[Mapping[str, Any]], prefill: int = 0) -> Table:
    """The first `prefill` of the replicas are those of the prefill pool."""
    grid = table()
    for heading in ("replica", "requests", "busy", "peak queue", "hit rate"):
        grid.add_column(heading, justify="right")
    for index, replica in enumerate(replicas):
        grid.add_row(
            replica.get("name") or (f"decode {index - prefill}" if prefill else str(index)),
            names.number(replica.get("requests")),
            _share(replica.get("utilization")),
            names.number(replica.get("peak_queue")),
            _share(replica.get("prefix_hit_rate", replica.get("hit_rate"))),
        )
    return grid
