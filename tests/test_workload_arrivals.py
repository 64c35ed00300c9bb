"""Arrival processes: their moments, their ends, and that their draws stand apart from every other draw."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sim.errors import InputError
from sim.random_streams import random_stream
from sim.workload import Workload, build_workload, parse_workload
from sim.workload.arrivals import weibull_shape

PS_PER_S = 10**12


def workload(arrival: dict[str, Any], seed: int = 0, **rest: Any) -> Workload:
    raw = {"kind": "lengths", "input": 100, "output": 10, "arrival": arrival, **rest}
    return build_workload(parse_workload(raw), seed)


def gaps_s(load: Workload) -> np.ndarray:
    return np.diff(load.arrival_ps, prepend=0) / PS_PER_S


@pytest.mark.parametrize(
    ("arrival", "cv"),
    [
        ({"process": "poisson"}, 1.0),
        ({"process": "normalized-poisson"}, 1.0),
        ({"process": "gamma", "cv": 0.3}, 0.3),
        ({"process": "gamma", "cv": 2.5}, 2.5),
        ({"process": "weibull", "cv": 0.5}, 0.5),
        ({"process": "weibull", "cv": 2.0}, 2.0),
    ],
)
def test_gaps_have_the_mean_and_the_cv_asked_for(arrival: dict[str, Any], cv: float) -> None:
    n, rate = 200_000, 8.0
    gaps = gaps_s(workload({**arrival, "rate_rps": rate}, num_requests=n))
    assert len(gaps) == n
    assert gaps.mean() * rate == pytest.approx(1.0, abs=5 * cv / math.sqrt(n))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_poisson_counts_in_equal_windows_have_variance_equal_to_their_mean() -> None:
    load = workload({"process": "poisson", "rate_rps": 5}, duration_s=20_000)
    counts = np.histogram(load.arrival_ps, bins=np.arange(2001) * 10 * PS_PER_S)[0]
    assert counts.mean() == pytest.approx(50, rel=0.02)
    assert counts.var() / counts.mean() == pytest.approx(1, abs=0.12)


@pytest.mark.parametrize("cv", [0.01, 0.2, 1.0, 3.0, 30.0, 100.0])
def test_weibull_shape_gives_back_the_cv(cv: float) -> None:
    k = weibull_shape(cv)
    assert math.expm1(math.lgamma(1 + 2 / k) - 2 * math.lgamma(1 + 1 / k)) == pytest.approx(cv * cv, rel=1e-6)


def test_a_weibull_of_cv_1_is_exponential() -> None:
    assert weibull_shape(1.0) == pytest.approx(1.0, rel=1e-12)


def test_constant_arrivals_are_evenly_spaced_from_zero() -> None:
    load = workload({"process": "constant", "rate_rps": 4}, num_requests=9)
    assert load.arrival_ps.tolist() == [i * PS_PER_S // 4 for i in range(9)]


@pytest.mark.parametrize(
    ("rate", "duration", "count"), [(5, 600, 3000), (2.5, 600, 1500), (0.29, 100, 29), (3, 1.5, 4)]
)
def test_normalized_poisson_sends_int_rate_times_duration_and_spans_the_duration(
    rate: float, duration: float, count: int
) -> None:
    """inference-perf's ConstantLoadTimer: int(rate * duration) exponential gaps scaled to add up to the duration."""
    load = workload({"process": "normalized-poisson", "rate_rps": rate}, duration_s=duration)
    assert len(load) == count
    assert load.arrival_ps[-1] == round(duration * PS_PER_S)
    assert gaps_s(load).std() > 0


def test_normalized_poisson_with_a_count_lasts_count_over_rate() -> None:
    load = workload({"process": "normalized-poisson", "rate_rps": 5}, num_requests=5000)
    assert load.arrival_ps[-1] == 1000 * PS_PER_S
    assert load.stage is None


@pytest.mark.parametrize("process", ["normalized-poisson", "constant", "poisson"])
def test_each_stage_has_its_rate_and_stays_within_its_span(process: str) -> None:
    stages = [{"rate_rps": 8, "duration_s": 600}, {"rate_rps": 20, "duration_s": 300}]
    load = workload({"process": process, "stages": stages})
    assert load.stage is not None
    assert load.stage_duration_s == [600, 300]
    for i, (count, start, end) in enumerate([(4800, 0, 600), (6000, 600, 900)]):
        mine = load.arrival_ps[load.stage == i]
        assert start * PS_PER_S <= mine[0] <= mine[-1] <= end * PS_PER_S
        if process == "poisson":
            assert len(mine) == pytest.approx(count, abs=5 * math.sqrt(count))
        else:
            assert len(mine) == count
        if process == "normalized-poisson":
            assert mine[-1] == end * PS_PER_S


def test_a_longer_first_stage_does_not_redraw_the_second() -> None:
    def second_stage(first_duration_s: float) -> np.ndarray:
        stages = [{"rate_rps": 5, "duration_s": first_duration_s}, {"rate_rps": 10, "duration_s": 50}]
        load = workload({"process": "poisson", "stages": stages})
        assert load.stage is not None
        return load.arrival_ps[load.stage == 1] - round(first_duration_s * PS_PER_S)

    assert np.array_equal(second_stage(100), second_stage(200))


@pytest.mark.parametrize("cv", [0.05, 1.0, 8.0])
def test_arrivals_in_a_duration_are_those_of_a_count_cut_at_the_duration(cv: float) -> None:
    arrival = {"process": "gamma", "cv": cv, "rate_rps": 3}
    cut = workload(arrival, duration_s=500)
    longer = workload(arrival, num_requests=20_000)
    assert cut.arrival_ps[-1] < 500 * PS_PER_S <= longer.arrival_ps[len(cut)]
    assert np.array_equal(cut.arrival_ps, longer.arrival_ps[: len(cut)])


def test_arrivals_are_sorted_whole_nanoseconds_in_int64() -> None:
    load = workload({"process": "weibull", "cv": 4, "rate_rps": 1000}, num_requests=50_000)
    assert load.arrival_ps.dtype == np.int64
    assert (np.diff(load.arrival_ps) >= 0).all()
    assert (load.arrival_ps % 1000 == 0).all()


def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_ones() -> None:
    def columns(seed: int) -> tuple[object, ...]:
        load = build_workload(parse_workload({"preset": "codegen"}), seed)
        columns = (load.arrival_ps, load.prompt_tokens, load.output_tokens, load.content)
        return (*(c.tobytes() for c in columns), load.contents)

    assert columns(7) == columns(7)
    assert columns(7)[0] != columns(8)[0]
    assert columns(7)[4] != columns(8)[4]


def test_arrivals_lengths_and_prompt_order_never_shift_one_another() -> None:
    normal = {"dist": "normal", "mean": 100, "sd": 30}
    base: dict[str, Any] = {
        "kind": "shared_prefix", "num_groups": 4, "num_prompts_per_group": 5, "system_prompt_len": 10,
        "question_len": normal, "output_len": normal,
        "arrival": {"process": "poisson", "rate_rps": 5}, "num_requests": 200,
    }  # fmt: skip

    def built(**change: Any) -> Workload:
        return build_workload(parse_workload(base | change), 3)

    def prompts(load: Workload) -> list[int]:
        return [load.contents[c][-1][0] for c in load.content.tolist()]

    a = built()
    b = built(question_len={"dist": "exponential", "mean": 10, "min": 1})
    assert np.array_equal(a.arrival_ps, b.arrival_ps)
    assert np.array_equal(a.output_tokens, b.output_tokens)
    assert prompts(a) == prompts(b)
    assert prompts(built(num_groups=5)) != prompts(a)
    c = built(arrival={"process": "gamma", "cv": 3, "rate_rps": 9})
    assert np.array_equal(a.prompt_tokens, c.prompt_tokens)
    assert np.array_equal(a.output_tokens, c.output_tokens)


def test_a_faster_rate_is_the_same_arrivals_on_a_shorter_clock() -> None:
    slow = workload({"process": "poisson", "rate_rps": 2}, num_requests=500)
    fast = workload({"process": "poisson", "rate_rps": 4}, num_requests=500)
    assert np.abs(slow.arrival_ps - 2 * fast.arrival_ps).max() <= 2000


def test_streams_of_different_purposes_and_seeds_are_uncorrelated() -> None:
    draws = [random_stream(s, p).standard_normal(20_000) for s in (0, 1) for p in ("workload/input", "workload/output")]
    off_diagonal = np.corrcoef(draws) - np.eye(4)
    assert np.abs(off_diagonal).max() < 5 / math.sqrt(20_000)


def test_a_closed_loop_lists_its_requests_and_names_its_users() -> None:
    load = workload({"process": "closed", "users": 16, "think_time_s": 0.25}, num_requests=100)
    assert (load.users, load.think_time_ps, len(load)) == (16, PS_PER_S // 4, 100)
    assert not load.arrival_ps.any()


def test_a_time_limit_is_carried_in_picoseconds() -> None:
    load = workload({"process": "poisson", "rate_rps": 5}, num_requests=10, time_limit_s=1800)
    assert load.time_limit_ps == 1800 * PS_PER_S


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("arrival", "rest", "field"),
    [
        ({"process": "constant", "rate_rps": 0.001}, {"duration_s": 10}, "workload.arrival"),
        ({"process": "poisson", "rate_rps": 1e-6}, {"num_requests": 1000}, "workload.arrival"),
        ({"process": "poisson", "rate_rps": 1e-320}, {"num_requests": 10}, "workload.arrival"),
        ({"process": "poisson", "rate_rps": 1e6}, {"duration_s": 1e6}, "workload.arrival"),
    ],
)
def test_loads_that_cannot_be_simulated_are_refused(arrival: dict[str, Any], rest: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        workload(arrival, **rest)
    assert caught.value.field == field


def test_a_million_requests_are_built_in_seconds() -> None:
    load = build_workload(
        parse_workload({"preset": "codegen", "arrival": {"process": "poisson", "rate_rps": 50}, "num_requests": 10**6}),
        0,
    )
    columns = (load.arrival_ps, load.prompt_tokens, load.output_tokens, load.content)
    assert sum(c.nbytes for c in columns) <= 32 * 10**6
