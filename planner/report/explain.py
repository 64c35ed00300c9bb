"""One sentence on what limits a plan, from what the simulation counted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from planner.report import names, reasons, verdict

if TYPE_CHECKING:
    from planner.store import Run

# A resource counts as the limit from this share on: past it, queues grow faster than the load.
FULL = 0.85
# The share of TTFT from which waiting for a seat, not the prefill, explains it.
QUEUEING = 0.3


def limit_sentence(run: Run, plan: verdict.Evaluation) -> str:
    """What keeps this plan from doing better, and what the nearest constraint leaves: in one sentence.

    It reads the counts of the simulation (seats, KV blocks, queue, preemptions), never a guess about kernels.
    """
    if not plan["simulated"]:
        return f"Not simulated to the end: {reasons.words(plan)}."
    clauses = [_resource(plan), _refused(plan["metrics"]), margin_words(run, plan)]
    return "; ".join(clause for clause in clauses if clause) + "."


def _resource(plan: verdict.Evaluation) -> str:
    metrics = plan["metrics"]
    full = _full_resource(plan)
    if plan.get("saturation") == "overloaded":
        return f"Overloaded: {full or 'steps are too slow for this load'}{_unfinished(metrics)}"
    if full:
        return f"Limited by {full}"
    queue, ttft = _value(metrics, "queue_p90_ms"), _value(metrics, "ttft_p90_ms")
    if ttft and queue > QUEUEING * ttft:
        return f"Limited by queueing: {names.number(queue)} ms of a p90 TTFT of {names.number(ttft)} ms is waiting"
    if plan.get("saturation") == "backlogged":
        return f"Limited by the backlog that bursts leave behind{_unfinished(metrics)}"
    return f"No resource is full: {_room(metrics)}"


def _full_resource(plan: verdict.Evaluation) -> str:
    metrics = plan["metrics"]
    seats, kv = _value(metrics, "seats_mean_utilization"), _value(metrics, "kv_utilization_mean")
    preemptions = _value(metrics, "preemptions")
    pools = (("prefill pool", "prefill_utilization_mean"), ("links for KV", "kv_link_utilization_mean"))
    for label, key in pools:
        if _value(metrics, key) >= FULL:
            return f"the {label}: busy {names.percent(metrics[key])} of the time"
    if preemptions and kv >= seats:
        return f"KV cache: {names.percent(kv)} used on average, {names.number(preemptions)} preemptions"
    if seats >= FULL and seats >= kv:
        limit = plan["parameters"].get("max_num_seqs")
        return f"seats: {names.percent(seats)} of max_num_seqs{f' {limit}' if limit else ''} taken on average"
    if kv >= FULL:
        return f"KV cache: {names.percent(kv)} used on average"
    return ""


def _room(metrics: Mapping[str, Any]) -> str:
    uses = (("seats", "seats_mean_utilization"), ("KV cache", "kv_utilization_mean"))
    parts = [f"{label} {names.percent(metrics[key])}" for label, key in uses if not math.isnan(_or_nan(metrics, key))]
    busy = _or_nan(metrics, "replica_utilization_mean")
    if busy < FULL:
        parts.append(f"replicas busy {names.percent(busy)} of the time")
    prefill = _or_nan(metrics, "prefill_utilization_mean")
    if prefill < FULL:
        parts.append(f"prefill replicas {names.percent(prefill)}")
    return ", ".join(parts) if parts else "it serves what is offered"


def _refused(metrics: Mapping[str, Any]) -> str:
    """Requests that the plan does not serve: what it saves on them must be seen beside its figures."""
    offered = _value(metrics, "offered")
    kinds = (("shed", "sheds"), ("expired", "lets expire"), ("rejected", "rejects as too long"))
    counts = [(words, _value(metrics, name)) for name, words in kinds]
    parts = [
        f"{words} {names.percent(count / offered)} of the requests" for words, count in counts if count and offered
    ]
    return " and ".join(parts)


def _unfinished(metrics: Mapping[str, Any]) -> str:
    offered, completed = _value(metrics, "offered"), _or_nan(metrics, "completed")
    if not offered or math.isnan(completed) or completed >= offered:
        return ""
    return f", {names.percent(completed / offered)} of the requests completed"


def margin_words(run: Run, plan: verdict.Evaluation) -> str:
    """The constraints that a plan breaks, or what the nearest one leaves; empty where there is none."""
    broken = verdict.broken(run, plan)
    if broken:
        return "breaks " + " and ".join(
            f"{names.constraint(margin.metric, margin.operator, margin.limit)} ({_broken_by(margin)})"
            for margin in broken
        )
    margin = verdict.tightest(run, plan)
    if margin is None:
        return ""
    upper = margin.operator in ("<=", "<")
    below = (margin.value < margin.limit) if margin.value != margin.limit else upper
    apart = names.percent(abs(margin.headroom))
    side = "below" if below else "above"
    limit = names.measure(margin.metric, margin.limit)
    return f"{names.metric_name(margin.metric)} {names.measure(margin.metric, margin.value)}, {apart} {side} {limit}"


def _broken_by(margin: verdict.Margin) -> str:
    times = reasons.times_the_limit(margin)
    return f"{names.number(margin.value)}{f', {times}' if times else ''}"


def _or_nan(metrics: Mapping[str, Any], name: str) -> float:
    value = metrics.get(name)
    return math.nan if value is None else float(value)


def _value(metrics: Mapping[str, Any], name: str) -> float:
    value = _or_nan(metrics, name)
    return 0.0 if math.isnan(value) else value
