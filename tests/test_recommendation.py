"""Which plan is starred: the cheapest that is sure to hold, and of equally cheap ones the best in the objectives."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.report import content, verdict
from planner.report.html import report_html
from planner.store import Run
from tests.test_report import evaluation, run, shown


def starred(what: Run) -> str:
    best = verdict.recommended(what)
    assert best is not None
    return str(best["id"])


def of(*plans: dict[str, Any], **more: Any) -> Run:
    return run(list(plans), [plan["id"] for plan in plans], **more)


def test_a_cheaper_plan_that_holds_too_seldom_is_passed_over_and_that_is_said() -> None:
    what = of(
        evaluation("two", 1, 2, 90.0, slo_confidence=0.5),
        evaluation("three", 1, 3, 80.0, slo_confidence=0.8),
        evaluation("four", 1, 4, 70.0, slo_confidence=0.9),
    )
    assert starred(what) == "three"
    assert [plan["id"] for plan in verdict.front(what)] == ["three", "two", "four"]
    assert verdict.passed_over(what) == "1x2 is cheaper and holds in 50% of draws."
    text = " ".join(shown(what, 100).split())
    assert "the cheapest plan of the front that holds in at least 80% of draws" in text
    assert "1x2 is cheaper and holds in 50% of draws" in text
    assert "1x2 is cheaper and holds in 50% of draws" in content.why(what)


def test_where_no_plan_is_sure_the_surest_is_starred_and_of_those_the_cheapest() -> None:
    what = of(
        evaluation("two", 1, 2, 90.0, slo_confidence=0.3),
        evaluation("three", 1, 3, 80.0, slo_confidence=0.7),
        evaluation("four", 1, 4, 70.0, slo_confidence=0.7),
    )
    assert starred(what) == "three"
    assert verdict.passed_over(what).startswith("No plan is sure to hold: 1x3 holds in 70% of draws")


def test_without_confidences_the_cheapest_plan_is_starred_and_nothing_is_said_of_draws() -> None:
    what = of(evaluation("two", 1, 2, 90.0), evaluation("three", 1, 3, 80.0))
    assert starred(what) == "two"
    assert verdict.passed_over(what) == ""
    assert "draws" not in verdict.rule(what)


def test_a_plan_that_was_not_tried_is_not_taken_for_sure() -> None:
    what = of(evaluation("two", 1, 2, 90.0), evaluation("three", 1, 3, 80.0, slo_confidence=1.0))
    assert starred(what) == "three"
    assert verdict.passed_over(what) == "1x2 is cheaper and was not tried in draws."


def test_a_ttft_that_is_lower_by_a_hair_does_not_outweigh_another_objective() -> None:
    objectives = [("cost_per_hour", "min"), ("ttft_p95_ms", "min"), ("itl_p99_ms", "min")]
    plans = [
        evaluation("stalls", 4, 1, 100.0, metrics={"ttft_p95_ms": 1626.0, "itl_p99_ms": 426.0}),
        evaluation("steady", 4, 1, 100.0, metrics={"ttft_p95_ms": 1642.0, "itl_p99_ms": 22.0}),
        evaluation("late", 4, 1, 100.0, metrics={"ttft_p95_ms": 1700.0, "itl_p99_ms": 2.0}),
    ]
    what = of(*plans, objectives=objectives, constraints=[])
    assert starred(what) == "steady"
    assert "the lowest p95 TTFT, then the lowest p99 ITL" in verdict.rule(what)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.floats(90, 110), st.floats(10, 12)), min_size=1, max_size=8), st.randoms())
def test_the_starred_plan_does_not_depend_on_the_order_of_the_front(values: list[Any], random: Any) -> None:
    plans = [
        evaluation(str(number), 4, 1, ttft, metrics={"tpot_mean_ms": tpot})
        for number, (ttft, tpot) in enumerate(values)
    ]
    objectives = [("ttft_mean_ms", "min"), ("tpot_mean_ms", "min")]
    first = starred(of(*plans, objectives=objectives))
    best = min(ttft for ttft, _ in values)
    assert values[int(first)][0] <= 1.03 * best
    random.shuffle(plans)
    assert starred(of(*plans, objectives=objectives)) == first


def test_the_page_says_of_every_plan_of_the_front_which_limit_fails_in_how_many_draws() -> None:
    fails = {"slo_confidence": 0.5, "confidence_draws": 10, "confidence_breaks": {"ttft_mean_ms <= 300": 5}}
    what = of(evaluation("two", 1, 2, 90.0, **fails), evaluation("three", 1, 3, 80.0, slo_confidence=1.0))
    assert "5 of 10 draws break mean TTFT ≤ 300 ms" in report_html(what)
