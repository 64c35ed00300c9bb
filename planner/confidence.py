"""How sure a plan's numbers are: intervals from measured residuals, and how often it meets the SLO under them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from planner.regimes import Regime, Residuals, nearest, shipped_table, weights_of
from sim.deployment import Deployment

if TYPE_CHECKING:
    from planner.evaluate import Evaluator
    from sim.workload import Workload

INTERVAL_LEVELS = (0.05, 0.95)
UNSEEN_WIDENING = 1.2  # with it intervals cover 88 to 93% of the runs of a model and source that the table never saw
LONGEST_VALIDATED_TOKENS = 33_000  # prompt and output of the longest measured requests

_INTERVALS = {
    "ttft_mean_ms": "ttft_mean",
    "ttft_p50_ms": "ttft_mean",
    "ttft_p90_ms": "ttft_mean",
    "ttft_p95_ms": "ttft_p99",
    "ttft_p99_ms": "ttft_p99",
    "tpot_mean_ms": "tpot_mean",
    "tpot_p50_ms": "tpot_mean",
    "tpot_p90_ms": "tpot_mean",
    "e2e_mean_ms": "e2e_mean",
    "e2e_p50_ms": "e2e_mean",
    "e2e_p90_ms": "e2e_mean",
    "output_tokens_per_s": "output_tokens_per_s",
}


def regime_of_plan(deployment: Deployment, workload: Workload) -> Regime:
    """The regime that a plan is in."""
    model = deployment.model
    precision = deployment.quantization or model.weight_format or model.dtype
    kind = "mixture" if model.num_moe_layers > 0 else "dense"
    return Regime(deployment.gpu.name, weights_of(precision), kind, "closed loop" if workload.users else "open loop")


def intervals(regime: Regime, metrics: Mapping[str, float]) -> dict[str, list[float]]:
    """90% intervals [low, high] of a plan's metrics, from the residuals of the nearest validated regime."""
    found = {}
    for name in _INTERVALS:
        value = metrics.get(name)
        ends = [measured_over_predicted(regime, name, level) for level in INTERVAL_LEVELS]
        if value is not None and not math.isnan(value):
            wide = [value * end for end in ends if end is not None]
            if wide:
                found[name] = wide
    return found


def plan_intervals(
    regime: Regime, metrics: Mapping[str, float], load: Workload, saturation: str | None
) -> dict[str, list[float]]:
    """The same of a plan under a load: one that serves all that arrives already serves no more of it."""
    found = intervals(regime, metrics)
    throughput = found.get("output_tokens_per_s")
    if throughput and serves_all(load, saturation):
        throughput[1] = metrics["output_tokens_per_s"]
    return found


def serves_all(load: Workload, saturation: str | None) -> bool:
    """Whether a plan's throughput is that of the requests, which it cannot exceed."""
    return not load.users and saturation == "stable"


def measured_over_predicted(regime: Regime, metric: str, level: float) -> float | None:
    """What a metric of a plan has been off in its regime at a quantile of the ratio; None where that is not known.

    A GPU that was never measured is off by more: `UNSEEN_WIDENING`, around the median.
    """
    table, gpus = shipped_table()
    residuals = nearest(table, regime, _INTERVALS[metric]) if metric in _INTERVALS else None
    if residuals is None:
        return None
    middle = residuals.at(0.5)
    return float(middle * (residuals.at(level) / middle) ** (1.0 if regime.gpu in gpus else UNSEEN_WIDENING))


def level_in_draw(metric: str, steps_level: float, overheads_level: float) -> float:
    """At which quantile of its own ratio a metric is in a draw: TTFT with the overheads, the rest with the steps; slow
    steps are little throughput."""
    if metric.startswith("ttft_"):
        return overheads_level
    return round(1.0 - steps_level, 12) if metric == "output_tokens_per_s" else steps_level


def outside_envelope(deployment: Deployment, workload: Workload, saturation: str | None) -> list[str]:
    """Why measurements do not vouch for a plan's numbers; empty if they do."""
    _, gpus = shipped_table()
    reasons = []
    if deployment.gpu.name not in gpus:
        reasons.append(f"no measured run on {deployment.gpu.name}")
    if deployment.gpu.interconnect == "pcie" and deployment.tensor_parallel_size > 1:
        reasons.append("tensor parallelism over PCIe: its all-reduces were measured on one L40S server only")
    if len(workload) and int((workload.prompt_tokens + workload.output_tokens).max()) > LONGEST_VALIDATED_TOKENS:
        reasons.append(f"requests beyond {LONGEST_VALIDATED_TOKENS:,} tokens")
    if deployment.scheduling.name != "fcfs":
        reasons.append(f"{deployment.scheduling.name} scheduling was never measured")
    if deployment.admission.name != "always-admit":
        reasons.append(f"{deployment.admission.name} admission was never measured")
    if deployment.flow_control.name != "none":
        reasons.append(f"{deployment.flow_control.name} flow control was never measured")
    if deployment.prefill_replicas:
        reasons.append("prefill and decode pools were never measured")
    if deployment.kv_offload.name != "none":
        reasons.append("KV offloading was never measured")
    if saturation not in (None, "stable"):
        reasons.append(f"{saturation}: queues amplify every error")
    return reasons


def error_factors(regime: Regime, steps_level: float, overheads_level: float) -> tuple[float, float]:
    """(factor of step times, factor of the overheads around a request) at these quantiles of how wrong predictions
    have been in a regime: of measured / predicted TPOT, and of what TTFT errs beyond its steps.

    At one pair of levels all plans err alike, each by what its own regime has erred.
    """
    table, _ = shipped_table()
    steps, firsts = nearest(table, regime, "tpot_mean"), nearest(table, regime, "ttft_mean")
    return _quantile(steps, steps_level), _quantile(firsts, overheads_level)


def error_levels(count: int) -> list[tuple[float, float]]:
    """`count` pairs of quantiles for `error_factors`, each stratified; slow steps meet slow and fast overheads alike.
    `count` is no multiple of 7, the stride of the permutation."""
    return [((number + 0.5) / count, ((7 * number) % count + 0.5) / count) for number in range(count)]


def _quantile(residuals: Residuals | None, level: float) -> float:
    return 1.0 if residuals is None else residuals.at(level)


def annotate(front: Sequence[dict[str, Any]], evaluator: Evaluator) -> None:
    """Give each plan of the front its `intervals`, and what measurements do not vouch for (`validated`, a list of
    reasons)."""
    from planner.parameters import to_deployment

    for evaluation in front:
        deployment = to_deployment(evaluation["parameters"], evaluator.model, evaluator.gpus)
        workload = evaluator.workload
        regime, saturation = regime_of_plan(deployment, workload), evaluation["saturation"]
        evaluation["intervals"] = plan_intervals(regime, evaluation["metrics"], workload, saturation)
        evaluation["validated"] = outside_envelope(deployment, workload, evaluation["saturation"])
