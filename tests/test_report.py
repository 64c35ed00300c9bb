"""What a run's report says: the front, the recommendation, the limits, and the picture."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread
from matplotlib.text import Annotation, Text
from rich.console import Console

from planner.report import explain, names, verdict
from planner.report.console import print_front, print_hardware, print_models, print_result
from planner.report.pareto import pareto_figure, png, svg
from planner.store import Run
from sim.catalog import gpu_names, model_names

SPACE = {
    "model": "meta-llama/Llama-2-70b-hf",
    "workload": {
        "kind": "shared_prefix",
        "num_groups": 10,
        "num_prompts_per_group": 10,
        "system_prompt_len": 100,
        "question_len": 466,
        "output_len": 247,
        "arrival": {"process": "normalized-poisson", "rate_rps": 5},
        "num_requests": 5000,
    },
}
OBJECTIVES = [("output_tokens_per_s", "max"), ("ttft_mean_ms", "min"), ("gpus", "min")]


def evaluation(plan: str, tp: int, replicas: int, ttft: float, *, limit: float = 300.0, **more: Any) -> dict[str, Any]:
    gpus = tp * replicas
    metrics = {
        "gpus": float(gpus),
        "cost_per_hour": 3.2 * gpus,
        "output_tokens_per_s": 1235.0,
        "ttft_mean_ms": ttft,
        "ttft_p90_ms": 1.3 * ttft,
        "tpot_mean_ms": 18.0,
        "queue_p90_ms": 1.0,
        "seats_mean_utilization": 0.2,
        "kv_utilization_mean": 0.1,
        "preemptions": 0.0,
        "offered": 5000.0,
        "completed": 5000.0,
        **more.pop("metrics", {}),
    }
    parameters = {"gpu": "H100-SXM-80GB", "tensor_parallel_size": tp, "replicas": replicas, "max_num_seqs": 64}
    return {
        "id": plan,
        "parameters": {**parameters, **more.pop("parameters", {})},
        "simulated": True,
        "metrics": metrics,
        "saturation": more.pop("saturation", "stable"),
        "feasible": ttft <= limit,
        "why_not": None if ttft <= limit else f"ttft_mean_ms <= {limit:g} is {ttft:g}",
        "violation": max(0.0, ttft / limit - 1),
        **more,
    }


def run(evaluations: list[dict[str, Any]], front: list[str], **more: Any) -> Run:
    values: dict[str, Any] = {
        "name": "codegen",
        "space": SPACE,
        "objectives": OBJECTIVES,
        "constraints": [("ttft_mean_ms", "<=", 300.0), ("gpus", "<=", 8.0)],
        "exact": True,
        "manifest": {"wall_time_s": 12.3},
        **more,
    }
    return Run(evaluations=evaluations, front=front, **values)


def usual() -> Run:
    return run(
        [
            evaluation("a", 8, 1, 60.0),
            evaluation("b", 4, 1, 90.0, parameters={"max_num_seqs": 256}),
            evaluation("c", 4, 1, 120.0),
            evaluation(
                "d", 2, 1, 90_000.0, saturation="overloaded", metrics={"seats_mean_utilization": 1.0, "completed": 600}
            ),
        ],
        ["a", "b"],
    )


def nothing_feasible() -> Run:
    return run([evaluation("a", 8, 1, 400.0), evaluation("b", 4, 1, 350.0)], [])


def shown(what: Run, width: int, **console: Any) -> str:
    out = Console(file=io.StringIO(), width=width, **console)
    print_front(out, what)
    return out.file.getvalue()


# -- which plan -------------------------------------------------------------------------------------------------


def test_the_cheapest_plan_of_the_front_is_recommended() -> None:
    best = verdict.recommended(usual())
    assert best is not None
    assert best["id"] == "b"


def test_among_equally_cheap_plans_the_one_with_the_best_ttft_is_recommended() -> None:
    plans = [evaluation("slow", 4, 1, 95.0), evaluation("fast", 4, 1, 90.0), evaluation("two", 2, 2, 99.0)]
    best = verdict.recommended(run(plans, ["slow", "two", "fast"]))
    assert best is not None
    assert best["id"] == "fast"


def test_a_plan_does_not_win_by_shedding_requests() -> None:
    plans = [evaluation("sheds", 4, 1, 60.0, metrics={"shed": 500.0}), evaluation("serves", 4, 1, 90.0)]
    what = run(plans, ["sheds", "serves"])
    best = verdict.recommended(what)
    assert best is not None
    assert best["id"] == "serves"
    assert "fewest requests refused" in verdict.rule(what)


def test_a_plan_s_label_has_both_pools() -> None:
    plan = {"tensor_parallel_size": 4, "replicas": 1}
    assert names.plan_label(plan) == names.plan_label({**plan, "prefill_replicas": 0}) == "4x1"
    assert names.plan_label({**plan, "prefill_replicas": 2}) == "P 4x2, D 4x1"
    pools = {**plan, "prefill_replicas": 2, "prefill_tensor_parallel_size": 1}
    assert names.plan_label(pools) == "P 1x2, D 4x1"
    assert names.pools(pools) == "2 x TP1 prefill + 1 x TP4 decode"
    assert names.settings({**plan, "prefill_replicas": 0, "disaggregation": "always"}, ["disaggregation"]) == ""


def test_nothing_is_recommended_where_nothing_is_feasible() -> None:
    assert verdict.recommended(nothing_feasible()) is None


@given(st.floats(1, 1e6), st.floats(1, 1e6), st.sampled_from(["<=", ">="]))
def test_headroom_is_negative_exactly_where_a_constraint_is_broken(value: float, limit: float, operator: str) -> None:
    plan = evaluation("a", 1, 1, value)
    (margin,) = verdict.margins(run([plan], [], constraints=[("ttft_mean_ms", operator, limit)]), plan)
    broken = value > limit if operator == "<=" else value < limit
    assert (margin.headroom < 0) == broken


def test_a_gpu_budget_does_not_hide_the_headroom_to_the_slo() -> None:
    plan = evaluation("a", 8, 1, 60.0)  # all eight GPUs used, TTFT far below its limit
    margin = verdict.tightest(run([plan], ["a"]), plan)
    assert margin is not None
    assert (margin.metric, margin.headroom) == ("ttft_mean_ms", pytest.approx(0.8))


def test_the_nearest_plan_of_each_size_is_shown_where_nothing_is_feasible() -> None:
    plans = [evaluation("a", 4, 1, 350.0), evaluation("b", 4, 1, 351.0), evaluation("c", 8, 1, 400.0)]
    assert [plan["id"] for plan in verdict.least_violating(run(plans, []))] == ["a", "c"]


# -- what limits it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metrics", "saturation", "words"),
    [
        ({"seats_mean_utilization": 0.93}, "stable", "Limited by seats: 93% of max_num_seqs 64"),
        ({"kv_utilization_mean": 0.95}, "stable", "Limited by KV cache: 95%"),
        ({"kv_utilization_mean": 0.7, "preemptions": 40.0}, "stable", "40 preemptions"),
        ({"queue_p90_ms": 80.0}, "stable", "Limited by queueing: 80 ms of a p90 TTFT of 117 ms"),
        ({"seats_mean_utilization": 1.0, "completed": 600.0}, "overloaded", "12% of the requests completed"),
        ({}, "stable", "No resource is full: seats 20%, KV cache 10%"),
        ({"seats_mean_utilization": math.nan}, "stable", "No resource is full: KV cache 10%"),
    ],
)
def test_the_sentence_names_the_resource_that_is_full(metrics: dict, saturation: str, words: str) -> None:
    plan = evaluation("a", 4, 1, 90.0, metrics=metrics, saturation=saturation)
    assert words in explain.limit_sentence(run([plan], ["a"]), plan)


def test_the_sentence_names_every_broken_constraint() -> None:
    plan = evaluation("a", 16, 1, 400.0)
    assert "breaks GPUs ≤ 8 (16) and mean TTFT ≤ 300 ms (400)" in explain.limit_sentence(run([plan], []), plan)


def test_a_plan_that_sheds_requests_says_so() -> None:
    plan = evaluation("a", 4, 1, 90.0, metrics={"shed": 600.0})
    assert "sheds 12% of the requests" in explain.limit_sentence(run([plan], ["a"]), plan)


def test_a_plan_that_was_not_simulated_says_why() -> None:
    plan = {**evaluation("a", 4, 1, 400.0), "simulated": False, "why_not": "needs 131.4 GiB for weights, has 72.0 GiB"}
    assert "needs 131.4 GiB" in explain.limit_sentence(run([plan], []), plan)


# -- the table --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("what", [usual(), nothing_feasible()])
def test_the_table_fits_the_terminal_at_any_width(what: Run, width: int) -> None:
    for line in shown(what, width).splitlines():
        assert len(line) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_every_plan_of_the_front_is_shown_with_its_figures(width: int) -> None:
    text = shown(usual(), width)
    star = next(line for line in text.splitlines() if line.startswith("★"))
    assert all(figure in star for figure in ("4x1", "12.80", "1,235", "90", "70%"))
    assert "8x1" in text
    assert "256" in next(line for line in text.splitlines() if "  4x1" in line or "★ 4x1" in line)
    assert "4 candidates: 4 simulated; 3 feasible, 2 on the front; exact" in " ".join(text.split())
    assert "12.3 s" in text


def test_the_star_is_an_asterisk_where_the_terminal_has_no_such_letter() -> None:
    out = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace"), width=80)
    print_front(out, usual())
    out.file.flush()
    text = out.file.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert text.count("\n* ") >= 2


def test_without_colour_the_text_is_the_same() -> None:
    assert "\x1b" not in shown(usual(), 80, no_color=True, force_terminal=False)


def test_where_nothing_is_feasible_the_binding_constraint_is_named() -> None:
    text = shown(nothing_feasible(), 100)
    assert "No plan meets the SLO" in text
    assert "mean TTFT ≤ 300 ms: broken by 2 of 2 plans" in text


def test_plans_with_the_same_figures_are_shown_once() -> None:
    text = shown(run([evaluation("a", 4, 1, 90.0), evaluation("b", 4, 1, 90.0)], ["a", "b"]), 100)
    assert "Same figures: b" in " ".join(text.split())


def test_the_catalog_is_listed_in_full() -> None:
    out = Console(file=io.StringIO(), width=160)
    print_models(out)
    print_hardware(out)
    text = out.file.getvalue()
    assert all(name in text for name in (*gpu_names(), *model_names()))


def test_a_simulated_plan_is_shown_with_units() -> None:
    spread = dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max"), 1.5)
    summary = {
        "offered": 100, "completed": 98, "shed": 2, "duration_s": 20.0, "requests_per_s": 4.9, "gpus": 4,
        "output_tokens_per_s": 1200.0, "total_tokens_per_s": 4000.0, "cost_per_hour": 12.8, "saturation": "stable",
        "cost_per_million_output_tokens": 2.96, "goodput_rps": 4.5, "slo_attainment": 0.92, "preemptions": 0,
        "prefix_hit_rate": 0.5, "kv_capacity_tokens": 300_000, "kv_utilization_mean": 0.08,
        **dict.fromkeys(("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "queue_ms"), spread),
        "replicas": [{"requests": 49, "utilization": 0.9, "peak_queue": 3, "hit_rate": 0.5}] * 2,
    }  # fmt: skip
    plan = {"model": "m", "deployment": {"gpu": "L4", "tensor_parallel_size": 2, "replicas": 2}}
    out = Console(file=io.StringIO(), width=100)
    print_result(out, summary, plan)
    text = out.file.getvalue()
    for words in ("98 of 100 requests completed, 2 shed", "$12.80/h", "2x2", "300,000 tokens", "92% of requests"):
        assert words in text


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=1e-3, max_value=1e12))
def test_numbers_are_written_to_at_least_three_significant_digits(value: float) -> None:
    written = float(names.number(value).replace(",", ""))
    assert written == pytest.approx(value, rel=5.1e-3)


# -- the picture ------------------------------------------------------------------------------------------------


def cases() -> dict[str, Run]:
    one = run([evaluation("a", 4, 1, 90.0)], ["a"])
    two = run(usual().evaluations, ["a", "b"], objectives=OBJECTIVES[1:])
    single = run(usual().evaluations, ["a"], objectives=OBJECTIVES[1:2])
    unlimited = run(usual().evaluations, ["a", "b"], constraints=[])
    empty = run([], [])
    four = run(usual().evaluations, ["a", "b"], objectives=[*OBJECTIVES, ("tpot_mean_ms", "min")])
    return {
        "usual": usual(), "nothing feasible": nothing_feasible(), "one point": one, "two objectives": two,
        "one objective": single, "no constraints": unlimited, "no plans": empty, "four objectives": four,
    }  # fmt: skip


@pytest.mark.parametrize("name", cases())
def test_every_kind_of_run_can_be_drawn(name: str) -> None:
    picture = imread(io.BytesIO(png(pareto_figure(cases()[name]))))
    assert picture.std() > 0.01


def test_the_same_run_gives_the_same_bytes() -> None:
    assert png(pareto_figure(usual())) == png(pareto_figure(usual()))
    assert svg(pareto_figure(usual())) == svg(pareto_figure(usual()))


def test_axes_name_metric_and_unit() -> None:
    labels = [text for axes in pareto_figure(usual()).axes for text in (axes.get_xlabel(), axes.get_ylabel())]
    assert any("Mean TTFT (ms)" in label for label in labels)
    assert any("Output throughput (tokens/s)" in label for label in labels)


def crowded(count: int, seed: int) -> Run:
    rng = np.random.default_rng(seed)
    plans = [
        evaluation(f"p{i}", int(2 ** rng.integers(0, 4)), int(rng.integers(1, 5)), float(rng.uniform(50, 290)))
        for i in range(count)
    ]
    for plan in plans:
        plan["metrics"]["output_tokens_per_s"] = float(rng.uniform(900, 1300))
    return run(plans, [plan["id"] for plan in plans])


@settings(max_examples=5, deadline=None)
@given(st.integers(2, 20), st.integers(0, 1000))
def test_labels_of_the_front_never_overlap(count: int, seed: int) -> None:
    figure = pareto_figure(crowded(count, seed))
    renderer = FigureCanvasAgg(figure).get_renderer()
    for axes in figure.axes:
        for text in axes.texts:
            if isinstance(text, Annotation):
                text.update_positions(renderer)
        boxes = [Text.get_window_extent(text, renderer) for text in axes.texts if "x" in text.get_text()[:3]]
        for a in range(len(boxes)):
            assert not any(boxes[a].overlaps(boxes[b]) for b in range(a))
