"""What is said of each kind of plan where a space has several: the losing kinds too."""

from __future__ import annotations

from typing import Any

from planner.report.html import report_html
from planner.report.kinds import best_of_kinds
from planner.report.markdown import report_markdown
from planner.store import Run
from tests.test_report import evaluation, run, shown, usual


def on(gpu: str, plan: str, ttft: float, **more: Any) -> dict[str, Any]:
    return evaluation(plan, 4, 1, ttft, parameters={"gpu": gpu, **more.pop("parameters", {})}, **more)


def of_three_gpus() -> Run:
    refused = {"simulated": False, "feasible": False, "why_not": "the weights do not fit", "violation": float("inf")}
    plans = [
        on("H100-SXM-80GB", "best", 90.0, slo_confidence=1.0, seed_confidence=0.75, cliff=True),
        on("H200-SXM-141GB", "dear", 80.0, metrics={"cost_per_hour": 20.0}),
        on("H200-SXM-141GB", "dearer", 70.0, metrics={"cost_per_hour": 30.0}),
        on("A100-SXM-80GB", "far", 600.0),
        on("A100-SXM-80GB", "near", 330.0),
        on("L40S", "small", 0.0) | refused,
    ]
    return run(plans, ["best"])


def test_each_gpu_has_its_cheapest_plan_or_the_nearest_and_what_it_lacks() -> None:
    said = dict(best_of_kinds(of_three_gpus()))
    assert list(said) == ["A100-SXM-80GB", "H100-SXM-80GB", "H200-SXM-141GB", "L40S"]
    assert said["H100-SXM-80GB"].startswith("4x1 best at $12.80/h")
    assert said["H100-SXM-80GB"].endswith("the recommended plan")
    assert said["H200-SXM-141GB"].startswith("4x1 dear at $20.00/h, mean TTFT 80 ms")
    assert "nearest 4x1 near" in said["A100-SXM-80GB"]
    assert "breaks mean TTFT ≤ 300 ms (330)" in said["A100-SXM-80GB"]
    assert said["L40S"] == "none was simulated (the weights do not fit)"


def test_every_report_has_a_line_for_each_kind() -> None:
    what = of_three_gpus()
    for text in (shown(what, 200), report_html(what), report_markdown(what)):
        assert text.count("Best with ") == 4
        assert "the weights do not fit" in text
    nothing = run([plan for plan in what.evaluations if not plan["feasible"]], [])
    for text in (shown(nothing, 200), report_html(nothing), report_markdown(nothing)):
        assert text.count("Best with ") == 2


def test_plans_with_and_without_prefill_pools_are_two_kinds() -> None:
    pooled = on("H100-SXM-80GB", "pooled", 200.0, parameters={"prefill_replicas": 2})
    plain = on("H100-SXM-80GB", "plain", 90.0, parameters={"prefill_replicas": 0})
    said = dict(best_of_kinds(run([pooled, plain], ["plain"])))
    assert list(said) == ["prefill pools", "no prefill pool"]
    assert said["prefill pools"].startswith("P 4x2, D 4x1 pooled")


def test_nothing_is_said_of_kinds_where_there_is_one() -> None:
    assert best_of_kinds(usual()) == []


def test_the_front_says_how_a_plan_fares_under_other_seeds_and_that_it_is_on_a_cliff() -> None:
    text = " ".join(shown(of_three_gpus(), 200).split())
    assert "feasible under 75% of the seeds" in text
    assert "On a cliff" in text
