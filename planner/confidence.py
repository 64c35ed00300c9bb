"""How sure a plan's numbers are: intervals from measured residuals, and how often it meets the SLO under them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from planner.goals import judge, metric_values
from planner.regimes import Regime, Residuals, nearest, shipped_table, weights_of
from sim.deployment import Deployment
from sim.latency import Coefficients, StepTime, build_step_time, load_coefficients

if TYPE_CHECKING:
    from planner.evaluate import Evaluator
    from planner.goals import Constraint
    from sim.workload import Workload

REPEATS = 10
MOST_PLANS = 12  # of a front that are re-simulated
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


class ScaledStepTime(StepTime):
    """Another latency model with every step `factor` times as long."""

    def __init__(self, base: StepTime, factor: float) -> None:
        self._base = base
        self._factor = factor
        self.window = base.window

    def decode(self, num_seqs: int) -> tuple[int, int, int]:
        constant, per_context, per_window_context = self._base.decode(num_seqs)
        factor = self._factor
        return round(constant * factor), round(per_context * factor), round(per_window_context * factor)

    def floor(self, num_seqs: int) -> int:
        return round(self._base.floor(num_seqs) * self._factor)

    def mixed(self, *batch: int) -> int:
        return round(self._base.mixed(*batch) * self._factor)


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
    if saturation not in (None, "stable"):
        reasons.append(f"{saturation}: queues amplify every error")
    return reasons


def slo_confidence(
    deployment: Deployment,
    workload: Workload,
    seed: int,
    coefficients: Coefficients | None,
    meets: Callable[[Mapping[str, Any]], bool],
    repeats: int = REPEATS,
) -> float:
    """The share of `repeats` re-simulations that meet the SLO, with latencies as wrong as they have been.

    Step times are scaled by stratified quantiles of the measured / predicted TPOT of the plan's regime, the overheads
    around a request by those of what TTFT errs beyond its steps, in another order. `meets` judges a summary.
    """
    from sim.simulate import simulate

    coefficients = coefficients or load_coefficients()
    regime = regime_of_plan(deployment, workload)
    table, _ = shipped_table()
    steps, firsts = nearest(table, regime, "tpot_mean"), nearest(table, regime, "ttft_mean")
    base = build_step_time(deployment, coefficients)
    good = 0
    for number in range(repeats):
        factor = _quantile(steps, (number + 0.5) / repeats)
        # 7 and 10 have no common factor: a permutation, so that slow steps meet slow and fast overheads alike
        overhead = _quantile(firsts, ((7 * number) % repeats + 0.5) / repeats)
        result = simulate(
            deployment,
            workload,
            seed,
            coefficients=_with_overheads(coefficients, overhead),
            step_time=ScaledStepTime(base, factor),
        )
        good += meets(result.summary())
    return good / repeats


def _quantile(residuals: Residuals | None, level: float) -> float:
    return 1.0 if residuals is None else residuals.at(level)


def _with_overheads(coefficients: Coefficients, factor: float) -> Coefficients:
    """The same set with everything around a request `factor` times as long."""
    request = coefficients.request
    scaled = {field.name: getattr(request, field.name) * factor for field in dataclasses.fields(request)}
    return dataclasses.replace(coefficients, request=type(request)(**scaled))


def annotate(
    front: Sequence[dict[str, Any]], evaluator: Evaluator, constraints: Sequence[Constraint], objectives: Sequence[str]
) -> None:
    """Give each plan of the front its `intervals`, what measurements do not vouch for (`validated`, a list of reasons),
    and its `slo_confidence`; plans with the same objective values share one. The first `MOST_PLANS` are re-simulated.
    """
    from planner.parameters import to_deployment

    def meets(summary: Mapping[str, Any]) -> bool:
        return judge(constraints, metric_values(summary))[0] == 0

    known: dict[tuple[float, ...], float] = {}
    for evaluation in front:
        deployment = to_deployment(evaluation["parameters"], evaluator.model, evaluator.gpus)
        workload = evaluator.workload
        found = intervals(regime_of_plan(deployment, workload), evaluation["metrics"])
        throughput = found.get("output_tokens_per_s")
        if throughput and not workload.users and evaluation["saturation"] == "stable":
            throughput[1] = evaluation["metrics"]["output_tokens_per_s"]  # it serves all that arrives already
        evaluation["intervals"] = found
        evaluation["validated"] = outside_envelope(deployment, workload, evaluation["saturation"])
        values = tuple(evaluation["metrics"][metric] for metric in objectives)
        if values not in known and len(known) < MOST_PLANS:
            known[values] = slo_confidence(deployment, workload, evaluator.seed, evaluator.coefficients, meets)
        evaluation["slo_confidence"] = known.get(values)
