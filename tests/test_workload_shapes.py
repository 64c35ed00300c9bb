"""Shapes of the arrival rate: exact for evenly spaced requests, right in the mean for random ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.capacity import offered_rate
from planner.evaluate import Trial, make_evaluator
from planner.space import parse_space
from sim.errors import InputError
from sim.simulate import simulate
from sim.workload import PS_PER_S, Workload, build_workload, parse_workload
from sim.workload.shapes import Diurnal, Drain, Shape, Spike
from tests.serving_cases import deployment

DIURNAL = {"kind": "diurnal", "peak_to_trough": 4, "period_s": 600}
SPIKE = {"kind": "spike", "factor": 5, "start_s": 100, "length_s": 20}
DRAIN = {"kind": "drain", "start_s": 100, "length_s": 60}
SHAPES = [
    Diurnal(peak_to_trough=4, period_s=600),
    Diurnal(peak_to_trough=1, period_s=10),
    Diurnal(peak_to_trough=1e6, period_s=86_400),
    Spike(factor=5, start_s=100, length_s=20),
    Spike(factor=0.1, start_s=0, length_s=700),
    Drain(start_s=100, length_s=60),
    Drain(start_s=0, length_s=500),
    Drain(start_s=100),
]


def built(shape: dict[str, Any], arrival: dict[str, Any], seed: int = 0, **fields: Any) -> Workload:
    raw = {"kind": "lengths", "input": 50, "output": 20, "arrival": arrival | {"shape": shape}, **fields}
    return build_workload(parse_workload(raw), seed)


def arrivals_s(load: Workload) -> np.ndarray:
    return load.arrival_ps / PS_PER_S


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_the_change_of_time_goes_back_and_forth(shape: Shape) -> None:
    end_s = min(1000.0, shape.end_s)
    times = np.linspace(0, end_s, 2001)
    integral = np.array([shape.operational(float(t)) for t in times])
    assert (np.diff(integral) >= 0).all()
    assert shape.times(integral) == pytest.approx(times, abs=2e-6)


def test_evenly_spaced_requests_of_a_spike_come_closer_by_its_factor() -> None:
    times = arrivals_s(built(SPIKE, {"process": "constant", "rate_rps": 2}, duration_s=200))
    before, during, after = (times[(times >= a) & (times < b)] for a, b in ((0, 100), (100, 120), (120, 200)))
    assert before == pytest.approx(np.arange(200) / 2)
    assert during == pytest.approx(100 + np.arange(200) / 10)
    assert after == pytest.approx(120 + np.arange(160) / 2)


def test_evenly_spaced_requests_of_a_drain_thin_out_as_its_rate_falls() -> None:
    times = arrivals_s(built(DRAIN, {"process": "constant", "rate_rps": 10}))
    assert len(times) == 10 * (100 + 60 / 2)
    assert times[:1001] == pytest.approx(np.arange(1001) / 10)
    k = np.arange(300)  # of those after 100 s: rate 10 (1 - x / 60) integrates to k
    assert times[1000:] == pytest.approx(100 + 60 * (1 - np.sqrt(1 - k / 300)))
    at_once = arrivals_s(built({"kind": "drain", "start_s": 30}, {"process": "constant", "rate_rps": 10}))
    assert at_once == pytest.approx(np.arange(300) / 10)


def test_evenly_spaced_requests_of_a_day_are_spaced_by_equal_parts_of_its_integral() -> None:
    times = arrivals_s(built(DIURNAL, {"process": "constant", "rate_rps": 5}, duration_s=1200))
    assert len(times) == 5 * 1200
    swing = (4 - 1) / (4 + 1)
    integral = times - swing * 600 / (2 * np.pi) * np.sin(2 * np.pi * times / 600)
    assert integral == pytest.approx(np.arange(6000) / 5, abs=1e-7)


@pytest.mark.parametrize(
    "process", [{"process": "poisson"}, {"process": "gamma", "cv": 2}, {"process": "weibull", "cv": 0.5}]
)
def test_a_day_has_its_mean_rate_and_its_peak_to_trough(process: dict[str, Any]) -> None:
    times = arrivals_s(built(DIURNAL, process | {"rate_rps": 20}, duration_s=100 * 600))
    assert len(times) / (100 * 600) == pytest.approx(20, rel=0.02)
    counts = np.histogram(times % 600, 60)[0] / (100 * 10)
    trough, peak = 20 * 0.4, 20 * 1.6
    assert counts[[0, -1]].mean() == pytest.approx(trough, rel=0.06)
    assert counts[[29, 30]].mean() == pytest.approx(peak, rel=0.06)


def test_a_shaped_poisson_process_is_poisson_within_a_short_time() -> None:
    times = arrivals_s(built(DIURNAL, {"process": "poisson", "rate_rps": 20}, duration_s=200 * 600))
    middle = np.histogram(times, np.arange(0, 200 * 600 + 1, 1.0))[0].reshape(200, 600)[:, 290:310]
    assert middle.var() / middle.mean() == pytest.approx(1, abs=0.06)


def test_a_number_of_requests_or_the_end_of_the_drain_ends_a_shaped_workload() -> None:
    counted = built(SPIKE, {"process": "poisson", "rate_rps": 4}, num_requests=700)
    assert len(counted) == 700
    spanned = arrivals_s(built(SPIKE, {"process": "normalized-poisson", "rate_rps": 4}, duration_s=200))
    assert (len(spanned), spanned[-1]) == (4 * (200 + 4 * 20), 200)
    assert arrivals_s(built(DRAIN, {"process": "poisson", "rate_rps": 4})).max() < 160


def test_sessions_come_in_shapes_too() -> None:
    raw = {"kind": "sessions", "turns": 3, "input": 20, "output": 5, "think_time_s": 1, "duration_s": 200}
    load = build_workload(parse_workload(raw | {"arrival": {"process": "constant", "rate_rps": 2, "shape": SPIKE}}), 0)
    begun = load.arrival_ps[load.follows < 0] / PS_PER_S
    assert ((begun >= 100) & (begun < 120)).sum() == 2 * 5 * 20


@pytest.mark.parametrize("shape", [SPIKE, DIURNAL])
@pytest.mark.parametrize("end", [{"duration_s": 600}, {"num_requests": 3000}])
def test_at_another_rate_a_shape_keeps_its_times(shape: dict[str, Any], end: dict[str, Any]) -> None:
    document = {
        "name": "shaped",
        "model": "Qwen/Qwen3-14B",
        "workload": {"kind": "lengths", "input": 50, "output": 20,
                     "arrival": {"process": "constant", "rate_rps": 4, "shape": shape}, **end},
        "objectives": [{"minimize": "gpus"}],
        "space": {"gpu": ["H100-SXM-80GB"]},
    }  # fmt: skip
    space = parse_space(document, Path())
    evaluator = make_evaluator(space)
    parameters = space.parameters(next(space.choices()))
    once, twice = evaluator.workload, evaluator.requests_of(Trial(parameters, rate_scale=2.0))
    assert len(twice) == pytest.approx(2 * len(once), abs=2)
    assert offered_rate(twice) == pytest.approx(2 * offered_rate(once), rel=0.01)
    assert np.abs(twice.arrival_ps[::2][: len(once)] - once.arrival_ps).max() <= 2000


def test_a_spike_that_is_absorbed_is_no_overload() -> None:
    long_spike = {"kind": "spike", "factor": 12, "start_s": 60, "length_s": 30}
    plan = deployment(max_num_seqs=32)
    raw = {"input": 500, "output": 200}
    calm = built(long_spike, {"process": "poisson", "rate_rps": 2}, duration_s=50, **raw)
    absorbed = built(long_spike, {"process": "poisson", "rate_rps": 2}, duration_s=300, **raw)
    cut = built(long_spike, {"process": "poisson", "rate_rps": 2}, duration_s=90, **raw)
    always = built(long_spike, {"process": "poisson", "rate_rps": 24}, duration_s=60, **raw)
    labels = [simulate(plan, load).summary()["saturation"] for load in (calm, absorbed, cut, always)]
    assert labels == ["stable", "backlogged", "overloaded", "overloaded"]


CLOSED = {"process": "closed", "rate_rps": None, "users": 3}
STAGES = {"rate_rps": None, "stages": [{"rate_rps": 1, "duration_s": 9}]}


@pytest.mark.parametrize(
    ("arrival", "end", "path", "problem"),
    [
        ({"shape": {"kind": "dirunal"}}, {"num_requests": 5}, "arrival.shape.kind", "did you mean 'diurnal'"),
        (
            {"shape": DIURNAL | {"peak_to_trough": 0.5}},
            {"num_requests": 5},
            "arrival.shape.peak_to_trough",
            "at least 1",
        ),
        ({"shape": DIURNAL} | STAGES, {}, "arrival.shape", "contradicts stages"),
        ({"shape": DIURNAL} | CLOSED, {"num_requests": 5}, "arrival.shape", "has no meaning"),
        ({"shape": DRAIN}, {"num_requests": 5}, "num_requests", "contradicts arrival.shape"),
        ({"shape": SPIKE}, {}, "num_requests", "is required"),
    ],
)
def test_a_wrong_shape_is_refused(arrival: dict[str, Any], end: dict[str, Any], path: str, problem: str) -> None:
    full = {"process": "poisson", "rate_rps": 4} | arrival
    raw = {"kind": "lengths", "input": 5, "output": 2, "arrival": {k: v for k, v in full.items() if v is not None}}
    with pytest.raises(InputError) as refused:
        parse_workload(raw | end)
    assert refused.value.field == f"workload.{path}"
    assert problem in refused.value.problem


def test_who_knows_the_peak_of_a_day_is_told_the_mean() -> None:
    shape = {"kind": "diurnal", "peak_to_trough": 4, "period_s": 60, "peak_rps": 10}
    arrival = {"process": "poisson", "rate_rps": 1, "shape": shape}
    with pytest.raises(InputError, match=r"peak x \(1 \+ 1 / peak_to_trough\) / 2"):
        parse_workload({"kind": "lengths", "input": 9, "output": 9, "arrival": arrival, "num_requests": 9})
