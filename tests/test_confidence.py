"""Intervals and SLO confidence: what the residuals of measured runs say of a plan."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.cli import main
from planner.confidence import annotate, error_factors, error_levels, intervals, outside_envelope, regime_of_plan
from planner.evaluate import Evaluator, Outcome, Trial, make_evaluator
from planner.fidelity import Comparison
from planner.parameters import to_deployment
from planner.regimes import ENOUGH, Regime, build_table, coverage, dump_table, nearest, shipped_table, weights_of
from planner.report import content
from planner.search.robustness import try_plans
from planner.space import parse_space
from sim.catalog import load_gpu, load_model
from sim.deployment import Deployment, PolicySpec
from sim.workload import build_workload, parse_workload

SPEC = {
    "kind": "lengths",
    "input": 300,
    "output": 60,
    "arrival": {"process": "poisson", "rate_rps": 8},
    "num_requests": 150,
}


SPACE = {
    "name": "sure",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "workload": SPEC,
    "objectives": [{"minimize": "tpot_mean_ms"}, {"minimize": "gpus"}],
    "space": {"gpu": "H100-SXM-80GB"},
}


class Trials:
    """Simulates trials."""

    capacities = None

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    def trials(self, trials: Mapping[str, Trial]) -> dict[str, Outcome]:
        return {name: self._evaluator(trial) for name, trial in trials.items()}


def plan(model: str = "meta-llama/Llama-3.1-8B-Instruct", gpu: str = "H100-SXM-80GB", **settings: object) -> Deployment:
    return Deployment(load_model(model), load_gpu(gpu), **settings)


def row(ratio: float, gpu: str = "H100-SXM-80GB", source: str = "a", number: int = 0) -> Comparison:
    """A run measured `ratio` times as long as predicted."""
    error = 100 * abs(1 / ratio - 1)
    return Comparison(
        f"{source}{number}",
        "tpot_mean",
        10 * ratio,
        10,
        error,
        "mean",
        source,
        "open loop",
        gpu,
        "m",
        "bf16",
        False,
        "ok",
    )


def test_intervals_cover_nine_in_ten_of_runs_drawn_as_the_table_s_were() -> None:
    draw = random.Random(3)
    table = build_table(row(math.exp(draw.gauss(0.02, 0.1)), number=i) for i in range(400))
    residuals = nearest(table, Regime("H100-SXM-80GB", "16-bit", "dense", "open loop"), "tpot_mean")
    fresh = [math.exp(draw.gauss(0.02, 0.1)) for _ in range(4000)]
    inside = sum(residuals.ratios[0] <= ratio <= residuals.ratios[-1] for ratio in fresh) / len(fresh)
    assert 0.87 <= inside <= 0.94
    assert residuals.at(0.0) == residuals.ratios[0] <= residuals.at(0.3) <= residuals.at(0.9) <= residuals.at(1.0)


def test_a_regime_with_few_measurements_borrows_from_a_wider_one() -> None:
    rows = [row(1.1, number=i) for i in range(ENOUGH)] + [row(1.5, "L40S", number=i) for i in range(ENOUGH - 1)]
    table = build_table(rows)
    own = nearest(table, Regime("H100-SXM-80GB", "16-bit", "dense", "open loop"), "tpot_mean")
    borrowed = nearest(table, Regime("L40S", "16-bit", "dense", "open loop"), "tpot_mean")
    assert own.runs == ENOUGH
    assert own.regime.gpu == "H100-SXM-80GB"
    assert borrowed.regime.gpu is None
    assert borrowed.runs == 2 * ENOUGH - 1


def test_coverage_is_judged_without_the_runs_of_the_same_source() -> None:
    draw = random.Random(1)
    rows = [row(math.exp(draw.gauss(0, 0.05)), number=i) for i in range(200)]
    rows += [row(2.0, source="strange", number=i) for i in range(50)]
    inside, total = coverage(rows)["tpot_mean"]
    assert total == 250
    assert inside <= 200


def test_the_table_says_where_it_comes_from() -> None:
    document = yaml.safe_load(dump_table([row(1.0 + i / 100, number=i) for i in range(70)], "default", ["f.csv"]))
    assert document["provenance"]["files"] == ["f.csv"]
    assert document["provenance"]["runs"] == 70
    shipped = yaml.safe_load((Path(__file__).parent.parent / "planner/validated_regimes.yaml").read_text())
    assert shipped["provenance"]["runs"] > 300
    assert all(0.8 <= share <= 0.97 for share in shipped["provenance"]["coverage_of_90_percent_intervals"].values())


@pytest.mark.parametrize(
    ("precision", "kind"),
    [("bf16", "16-bit"), ("fp16", "16-bit"), ("fp8", "8-bit"), ("nvfp4", "4-bit"), ("int4", "4-bit"), ("awq", "4-bit")],
)
def test_kinds_of_weights(precision: str, kind: str) -> None:
    assert weights_of(precision) == kind


def test_a_gpu_that_nobody_measured_has_wider_intervals_and_says_so() -> None:
    load = build_workload(parse_workload(SPEC), 0)
    known, unknown = plan(), plan(gpu="MI300X")
    assert outside_envelope(known, load, "stable") == []
    assert any("MI300X" in reason for reason in outside_envelope(unknown, load, "stable"))
    table, gpus = shipped_table()
    assert "MI300X" not in gpus
    pooled = Regime(None, "16-bit", "dense", "open loop")
    low, high = intervals(replace(pooled, gpu="MI300X"), {"tpot_mean_ms": 10.0})["tpot_mean_ms"]
    residuals = nearest(table, pooled, "tpot_mean")
    assert low < 10 * residuals.ratios[0]
    assert high > 10 * residuals.ratios[-1]


def test_tensor_parallelism_over_pcie_is_named_as_measured_on_one_server_only() -> None:
    load = build_workload(parse_workload(SPEC), 0)
    (reason,) = outside_envelope(plan(gpu="L40S", tensor_parallel_size=2), load, "stable")
    assert "PCIe" in reason
    assert outside_envelope(plan(gpu="L40S"), load, "stable") == []
    assert outside_envelope(plan(tensor_parallel_size=2), load, "stable") == []  # NVLink


def test_what_was_never_measured_is_named() -> None:
    load = build_workload(parse_workload(SPEC), 0)
    reasons = outside_envelope(plan(scheduling=PolicySpec("sjf")), load, "overloaded")
    assert [word for word in ("sjf", "overloaded") if any(word in reason for reason in reasons)] == [
        "sjf",
        "overloaded",
    ]


def test_a_plan_far_inside_its_slo_is_sure_and_one_far_outside_is_not() -> None:
    parsed = parse_space(SPACE, Path())
    evaluator = make_evaluator(parsed)
    parameters = parsed.parameters((0,))
    deployment, load = to_deployment(parameters, evaluator.model, evaluator.gpus), evaluator.workload
    assert regime_of_plan(deployment, load) == Regime("H100-SXM-80GB", "16-bit", "dense", "open loop")

    def at_most(limit_ms: float) -> float:
        space = parse_space(SPACE | {"slo": [f"tpot_mean_ms <= {limit_ms}"]}, Path())
        found = {"id": "a", "parameters": parameters, "simulated": True, "feasible": True, "violation": 0.0}
        found["metrics"] = evaluator(parameters).metrics
        try_plans(space, evaluator, Trials(evaluator), [found])
        return float(found["slo_confidence"])

    assert at_most(1000.0) == 1.0
    assert at_most(0.1) == 0.0
    assert 0.0 < at_most(8.0) < 1.0


@cache
def simulated(gpu: str) -> tuple[Evaluator, dict[str, Any]]:
    parsed = parse_space(SPACE | {"space": {"gpu": gpu}}, Path())
    evaluator = make_evaluator(parsed)
    outcome = evaluator(parsed.parameters((0,)))
    found = {"id": "a", "parameters": parsed.parameters((0,)), "simulated": True, "feasible": True, "violation": 0.0}
    return evaluator, found | {"metrics": outcome.metrics, "saturation": outcome.saturation}


class Unmoved:
    """Trials that find what the model finds as it is, but for those numbers that are said."""

    capacities = None

    def __init__(self, metrics: dict[str, float], but: Mapping[int, dict[str, float]] | None = None) -> None:
        self._metrics, self._but = metrics, but or {}

    def trials(self, trials: Mapping[str, Trial]) -> dict[str, Outcome]:
        return {name: Outcome(self._metrics | self._but.get(number, {})) for number, name in enumerate(trials)}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["H100-SXM-80GB", "MI300X"]),
    st.sampled_from(["ttft_mean_ms", "ttft_p99_ms", "tpot_p90_ms", "e2e_mean_ms", "output_tokens_per_s"]),
    st.floats(-1.0, 2.0),
)
def test_the_confidence_in_a_limit_agrees_with_the_interval(gpu: str, metric: str, where: float) -> None:
    evaluator, found = simulated(gpu)
    found = dict(found)
    annotate([found], evaluator)
    low, high = found["intervals"][metric]
    limit = low + where * (high - low)
    assume(limit > 0)
    upper = metric.endswith("_ms")
    space = parse_space(SPACE | {"slo": [f"{metric} {'<=' if upper else '>='} {limit!r}"]}, Path())
    try_plans(space, evaluator, Unmoved(found["metrics"]), [found])
    sure = found["slo_confidence"]
    beyond, within = (low > limit, high <= limit) if upper else (high < limit, low >= limit)
    if beyond:
        assert sure == 0.0
    elif within:
        assert sure == 1.0
        assert found["confidence_breaks"] == {}
    else:
        assert sure < 1.0
        assert found["confidence_breaks"] == {str(space.constraints[0]): round(10 * (1 - sure))}


def test_a_draw_that_breaks_only_when_simulated_counts_against_the_limit_that_it_breaks() -> None:
    evaluator, found = simulated("H100-SXM-80GB")
    found = dict(found)
    space = parse_space(SPACE | {"slo": ["ttft_mean_ms <= 9000", "tpot_p90_ms <= 900"]}, Path())
    try_plans(space, evaluator, Unmoved(found["metrics"], {9: {"tpot_p90_ms": 901.0}}), [found])
    assert found["slo_confidence"] == 0.9
    assert found["confidence_breaks"] == {"tpot_p90_ms <= 900": 1}
    assert content.breaks_words(found) == "1 of 10 draws breaks p90 TPOT ≤ 900 ms"


def test_an_error_is_common_to_plans_of_a_regime_and_leaves_their_order_alone() -> None:
    levels = error_levels(10)
    assert sorted(a for a, _ in levels) == sorted(b for _, b in levels)
    assert len(set(levels)) == 10
    known = Regime("H100-SXM-80GB", "16-bit", "dense", "open loop")
    factors = [error_factors(known, level, 0.5)[0] for level in (0.05, 0.5, 0.95)]
    assert factors == sorted(factors)
    assert factors[0] < 1 < factors[2]
    parsed = parse_space(SPACE | {"space": {"gpu": "H100-SXM-80GB", "tensor_parallel_size": [1, 2]}}, Path())
    evaluator = make_evaluator(parsed)
    found = []
    for number in (0, 1):
        outcome = evaluator(parsed.parameters((0, number)))
        found.append({"id": str(number), "parameters": parsed.parameters((0, number)), "metrics": outcome.metrics})
        found[-1] |= {"simulated": True, "feasible": True, "violation": 0.0}
    try_plans(parsed, evaluator, Trials(evaluator), found)
    assert [plan["front_confidence"] for plan in found] == [1.0, 1.0]  # one is smaller, the other faster, however wrong


def test_steps_that_take_longer_show_in_what_is_simulated() -> None:
    parsed = parse_space(SPACE, Path())
    evaluator = make_evaluator(parsed)
    parameters = parsed.parameters((0,))
    plain, slow, late = (
        evaluator(Trial(parameters, step_factor=s, overhead_factor=o)).metrics for s, o in ((1, 1), (2, 1), (1, 3))
    )
    assert plain == pytest.approx(evaluator(parameters).metrics, nan_ok=True)
    assert slow["tpot_mean_ms"] > 1.9 * plain["tpot_mean_ms"]
    assert late["ttft_mean_ms"] > plain["ttft_mean_ms"]
    assert late["tpot_mean_ms"] == pytest.approx(plain["tpot_mean_ms"], rel=0.05)


def test_every_plan_of_a_front_says_how_sure_it_is(tmp_path: Path) -> None:
    space = {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "workload": SPEC,
        "slo": ["ttft_mean_ms <= 300"],
        "objectives": [{"minimize": "ttft_mean_ms"}, {"minimize": "gpus"}],
        "space": {"gpu": ["H100-SXM-80GB"], "tensor_parallel_size": [1, 2]},
    }
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(space))
    assert main(["search", str(tmp_path / "space.yaml"), "--out", str(tmp_path / "run"), "--quiet"]) == 0
    plans = json.loads((tmp_path / "run/front.json").read_text())["plans"]
    assert plans
    for found in plans:
        low, high = found["intervals"]["ttft_mean_ms"]
        assert low < found["metrics"]["ttft_mean_ms"] < high
        assert found["slo_confidence"] == found["front_confidence"] == 1.0
        assert found["validated"] == []
