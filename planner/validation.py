"""Predicted against measured: how far a plan's figures are from what a load generator saw, and what to do about it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import yaml

from planner.measurements.results import LoadResult
from planner.plan import Plan, dump_plan, make_workload, simulate_plan
from planner.report import content, names, verdict
from planner.run_plans import evaluation_of, plan_of_run

if TYPE_CHECKING:
    from planner.store import Run

NEAR = 0.10  # an error up to this share is what the simulator is expected to make
APART = 0.01  # predictions closer than this have no order that could be broken
SAME_LOAD = 0.02


@dataclass(frozen=True, slots=True)
class MetricCheck:
    """One metric of one plan."""

    metric: str
    predicted: float
    measured: float
    interval: tuple[float, float] | None = None  # of the prediction, where the run has one

    @property
    def error(self) -> float:
        """Signed error of the prediction as a share of the measurement."""
        return self.predicted / self.measured - 1

    @property
    def inside(self) -> bool | None:
        """Whether the measurement is in the prediction's interval; None without one."""
        return None if self.interval is None else self.interval[0] <= self.measured <= self.interval[1]


@dataclass(slots=True)
class PlanCheck:
    """One measured run beside the plan that it measured."""

    plan_id: str
    label: str
    result: LoadResult
    metrics: list[MetricCheck]
    limits: list[tuple[str, bool, bool]]  # (the limit in words, predicted to hold, measured to hold)
    notes: list[str]
    saturation: str | None
    plan: Plan

    def check(self, metric: str) -> MetricCheck | None:
        """The check of a metric, if it was measured and predicted."""
        return next((check for check in self.metrics if check.metric == metric), None)


@dataclass(frozen=True, slots=True)
class Order:
    """Whether plans that the prediction holds apart in a metric come in the same order when measured."""

    metric: str
    pairs: int
    kept: int
    broken: tuple[tuple[str, str], ...]  # (predicted lower, predicted higher) that came out the other way


@dataclass(slots=True)
class Validation:
    """Everything that `planner validate` says."""

    run: str
    coefficients: str
    plans: list[PlanCheck]
    order: list[Order] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """What `planner validate --json` writes, and `planner calibrate --from-validation` reads."""
        return {
            "run": self.run,
            "coefficients": self.coefficients,
            "plans": [_plan_dict(check) for check in self.plans],
            "order": [
                {"metric": o.metric, "pairs": o.pairs, "kept": o.kept, "broken": [list(pair) for pair in o.broken]}
                for o in self.order
            ],
            "recalibrate": self.advice,
        }


def _plan_dict(check: PlanCheck) -> dict[str, Any]:
    result = check.result
    return {
        "id": check.plan_id,
        "label": check.label,
        "file": result.path,
        "tool": result.tool,
        "stage": result.stage,
        "metrics": {
            m.metric: {
                "predicted": m.predicted,
                "measured": m.measured,
                "error_percent": 100 * m.error,
                "interval": None if m.interval is None else list(m.interval),
                "inside": m.inside,
            }
            for m in check.metrics
        },
        "limits": [{"limit": text, "predicted": a, "measured": b} for text, a, b in check.limits],
        "notes": check.notes,
        "plan": yaml.safe_load(dump_plan(check.plan)),
    }


def validate(run: Run, measured: Sequence[tuple[str, LoadResult]]) -> Validation:
    """Compare each result with the plan of that id. Raises InputError for an id that the run does not have."""
    simulated: dict[str, dict[str, Any]] = {}
    checks = [_check(run, plan_id, result, simulated) for plan_id, result in measured]
    coefficients = str(run.manifest.get("coefficients", "default"))
    return Validation(run.name, coefficients, checks, _orders(run, checks), _advice(checks))


def _check(run: Run, plan_id: str, result: LoadResult, simulated: dict[str, dict[str, Any]]) -> PlanCheck:
    evaluation = evaluation_of(run, plan_id, "MEASURED")
    plan = plan_of_run(run, plan_id)
    predicted: Mapping[str, Any] = evaluation["metrics"]
    notes = list(result.notes)
    known = content.extras(run).get(plan_id, {})
    if result.stage is not None:
        if plan_id not in simulated:
            simulated[plan_id] = simulate_plan(plan).summary()
        predicted, known = _of_stage(simulated[plan_id], result.stage, notes), {}
    checks = [
        MetricCheck(metric, float(value), measured, content.interval(known, metric))
        for metric, measured in result.metrics.items()
        if (value := predicted.get(metric)) is not None and math.isfinite(value) and value > 0
    ]
    differences = _differences(plan, result)
    if result.tool == "inference-perf" and any(" output tokens a request" in note for note in differences):
        checks = [check for check in checks if not check.metric.startswith("tpot_")]
        notes = ["TPOT is left out: inference-perf counts the tokens of the text, not those that were generated"]
    notes += differences
    check = PlanCheck(plan_id, names.plan_label(evaluation["parameters"]), result, checks, [], notes, None, plan)
    check.saturation = evaluation.get("saturation")
    check.limits = _limits(run, checks) if result.stage is None else []
    return check


def _of_stage(summary: Mapping[str, Any], stage: int, notes: list[str]) -> dict[str, Any]:
    """The flat metrics of a stage, nothing where the simulation has no such stage."""
    stages = summary["stages"]
    if stage >= len(stages):
        notes.append(f"the plan's workload has no stage {stage}")
        return {}
    found = stages[stage]
    flat = {name: value for name, value in found.items() if isinstance(value, int | float)}
    for name in ("ttft", "tpot", "e2e", "queue"):
        for statistic, value in (found.get(f"{name}_ms") or {}).items():
            flat[f"{name}_{statistic}_ms"] = value
    return flat


def _limits(run: Run, checks: Sequence[MetricCheck]) -> list[tuple[str, bool, bool]]:
    by_metric = {check.metric: check for check in checks}
    found = []
    for metric, operator, limit in run.constraints:
        if metric in by_metric:
            check = by_metric[metric]
            text = names.constraint(metric, operator, limit)
            found.append((text, _holds(check.predicted, operator, limit), _holds(check.measured, operator, limit)))
    return found


def _holds(value: float, operator: str, limit: float) -> bool:
    return {"<=": value <= limit, "<": value < limit, ">=": value >= limit, ">": value > limit}.get(
        operator, value == limit
    )


def _differences(plan: Plan, result: LoadResult) -> list[str]:
    """In what the measured load is not the one that was simulated."""
    workload = make_workload(plan.workload, plan.folder, plan.seed)
    chosen: Any = slice(None)
    if result.stage is not None and workload.stage is not None:
        chosen = workload.stage == result.stage
    notes = []
    pairs = (
        ("output tokens", result.output_tokens_mean, workload.output_tokens[chosen]),
        ("prompt tokens", result.prompt_tokens_mean, workload.prompt_tokens[chosen]),
    )
    for what, measured, simulated in pairs:
        if measured is None or not len(simulated):
            continue
        expected = float(simulated.mean())
        if abs(measured / expected - 1) > SAME_LOAD:
            why = "; send with ignore_eos, or count the server's tokens" if what == "output tokens" else ""
            notes.append(
                f"{names.number(measured)} {what} a request were counted, {names.number(expected)} simulated{why}"
            )
    if result.failed:
        notes.append(f"{names.number(result.failed)} requests failed; their latency is in no figure")
    count = len(workload.output_tokens[chosen])
    if result.completed is not None and not result.failed and abs(result.completed / max(1, count) - 1) > SAME_LOAD:
        notes.append(f"{names.number(result.completed)} requests were measured, {names.number(count)} simulated")
    return notes


# -- the order of the plans ---------------------------------------------------------------------------------------


def _orders(run: Run, checks: Sequence[PlanCheck]) -> list[Order]:
    """The order of the measured plans in each objective, and in the latencies that the run is about."""
    whole = {check.plan_id: check for check in checks if check.result.stage is None}
    asked = [metric for metric, _ in run.objectives] + [verdict.ttft_metric(run), verdict.tpot_metric(run)]
    orders = []
    for metric in dict.fromkeys(asked):
        known = [(plan, found) for plan, check in whole.items() if (found := check.check(metric)) is not None]
        pairs, broken = 0, []
        for a, b in itertools.combinations(known, 2):
            (low, first), (high, second) = sorted((a, b), key=lambda item: item[1].predicted)
            if second.predicted <= first.predicted * (1 + APART):
                continue
            pairs += 1
            if first.measured > second.measured:
                broken.append((low, high))
        if pairs:
            orders.append(Order(metric, pairs, pairs - len(broken), tuple(broken)))
    return orders


# -- what to recalibrate ------------------------------------------------------------------------------------------


def _advice(checks: Sequence[PlanCheck]) -> list[str]:
    """What to fit again, read from which figures are off and in which direction; empty: nothing is."""
    found = []
    queued = [check for check in checks if check.saturation not in (None, "stable")]
    steady = [check for check in checks if check not in queued]
    for check in queued:
        if any(abs(metric.error) > NEAR for metric in check.metrics):
            found.append(
                f"{check.plan_id} is {check.saturation}: its queue multiplies every error of a step, so measure it "
                "again at a lower rate before you fit anything to it"
            )
    tpot = [m.error for check in steady if (m := check.check("tpot_mean_ms")) is not None]
    if tpot and abs(median(tpot)) > NEAR:
        found.append(
            f"steps: TPOT is predicted {_signed(median(tpot))} off, so refit what a step costs (engine.layer_us, the "
            "GPU's GEMM bandwidth)"
        )
    ttft = [(check, m) for check in steady if (m := check.check("ttft_mean_ms")) is not None]
    if ttft and abs(median(m.error for _, m in ttft)) > NEAR:
        late = median(m.measured - m.predicted for _, m in ttft)
        behind = any(check.plan.deployment.get("gateway") == "llm-d" for check, _ in ttft)
        where = "request.gateway_us" if behind else "request.before_queue_us"
        found.append(
            f"the way to the engine: first tokens come {names.number(abs(late))} ms "
            f"{'later' if late > 0 else 'sooner'} than predicted, so refit {where}"
        )
    rate = [m.error for check in checks if (m := check.check("requests_per_s")) is not None]
    if rate and abs(median(rate)) > NEAR:
        found.append(
            f"nothing, before the load is the same: the request rate is predicted {_signed(median(rate))} off, so "
            "other requests were sent than were simulated"
        )
    return found


def _signed(share: float) -> str:
    return f"{100 * share:+.0f}%"
