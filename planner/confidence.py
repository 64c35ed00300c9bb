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
    table, gpus = shipped_table()
    widening = 1.0 if regime.gpu in gpus else UNSEEN_WIDENING
    found = {}
    for name, metric in _INTERVALS.items():
        residuals = nearest(table, regime, metric)
        value = metrics.get(name)
        if residuals is not None and value is not None and not math.isnan(value):
            low, middle, high = residuals.ratios[0], residuals.at(0.5), residuals.ratios[-1]
            wide = [middle * (end / middle) ** widening for end in (low, high)]
            found[name] = [value * end for end in wide]
    return found


def outside_envelope(deployment: Deployment, workload: Workload, saturation: str | None) -> list[str]:
    """Why measurements do not vouch for a plan's numbers; empty if they do."""
    _, gpus = shipped_table()
    reasons = []
    if deployment.gpu.name not in gpus:
        reasons.append(f"no measured run on {deployment.gpu.name}")
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
        found = intervals(regime_of_plan(deployment, workload), evaluation["metrics"])
        throughput = found.get("output_tokens_per_s")
        if throughput and not workload.users and evaluation["saturation"] == "stable":
            throughput[1] = evaluation["metrics"]["output_tokens_per_s"]  # it serves all that arrives already
        evaluation["intervals"] = found
        evaluation["validated"] = outside_envelope(deployment, workload, evaluation["saturation"])
