"""Capacity: the rate found holds, a rate just above does not, and looking early changes nothing of it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner import capacity
from planner.bounds import Bounds
from planner.capacity import TOLERANCE, Prober, fewest_replicas, max_rate
from planner.plan import parse_plan
from planner.sweep import knee, sweep
from sim.errors import InputError

PLAN: dict[str, Any] = {
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "workload": {
        "kind": "lengths",
        "input": 400,
        "output": {"dist": "uniform", "min": 20, "max": 200},
        "arrival": {"process": "poisson", "rate_rps": 3},
        "num_requests": 600,
    },
    "deployment": {"gpu": "H100", "max_num_seqs": 16},
    "slo": ["ttft_p90_ms <= 300", "tpot_mean_ms <= 50"],
}


def prober(**changes: Any) -> Prober:
    deployment = PLAN["deployment"] | changes.pop("deployment", {})
    workload = PLAN["workload"] | changes.pop("workload", {})
    return Prober(parse_plan(PLAN | {"deployment": deployment, "workload": workload} | changes, Path()))


def test_the_highest_rate_holds_and_one_just_above_it_does_not() -> None:
    plan = prober()
    found = max_rate(plan)
    assert found.broken_at_rps is not None
    assert 1 < found.broken_at_rps / found.max_rate_rps <= 1 + TOLERANCE
    assert plan.at(found.max_rate_rps, early=False).holds
    assert not plan.at(found.broken_at_rps, early=False).holds
    assert "ttft_p90_ms" in found.limited_by


def test_where_the_search_starts_changes_nothing_beyond_the_tolerance() -> None:
    rates = [
        max_rate(prober(workload={"arrival": {"process": "poisson", "rate_rps": r}})).max_rate_rps for r in (0.2, 90)
    ]
    assert rates[0] == pytest.approx(rates[1], rel=2 * TOLERANCE)


def test_judging_by_the_first_requests_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    load = {"arrival": {"process": "poisson", "rate_rps": 90}}
    early = max_rate(prober(workload=load))
    monkeypatch.setattr(capacity, "HOPELESS", math.inf)
    full = max_rate(prober(workload=load))
    assert (early.max_rate_rps, early.broken_at_rps) == (full.max_rate_rps, full.broken_at_rps)
    assert any(probe.cut_short for probe in early.probes)


def test_more_seats_carry_no_less_and_two_replicas_about_twice_as_much() -> None:
    rates = [max_rate(prober(deployment=d)).max_rate_rps for d in ({}, {"max_num_seqs": 32}, {"replicas": 2})]
    assert rates[1] > rates[0]
    assert 1.6 < rates[2] / rates[0] < 2.6


def test_no_rate_is_above_what_the_bounds_allow() -> None:
    plan = prober()
    ceiling = Bounds(plan._evaluator).of(plan.plan.deployment)
    found = max_rate(plan)
    assert found.max_rate_rps < plan.at(found.max_rate_rps, early=False).outcome.metrics["requests_per_s"] * 1.1  # type: ignore[union-attr]
    assert ceiling["requests_per_s"] > 0


def test_a_limit_that_no_rate_meets_gives_zero() -> None:
    found = max_rate(prober(slo=["ttft_mean_ms <= 0.001"]))
    assert found.max_rate_rps == 0


def test_the_fewest_replicas_hold_and_one_fewer_does_not() -> None:
    plan = prober()
    rate = 3.3 * max_rate(plan).max_rate_rps
    replicas, probes = fewest_replicas(plan, rate)
    assert replicas is not None
    assert replicas >= 3
    assert plan.at(rate, plan.plan.deployment | {"replicas": replicas}, early=False).holds
    assert not plan.at(rate, plan.plan.deployment | {"replicas": replicas - 1}, early=False).holds
    assert len(probes) < 10


@pytest.mark.parametrize(
    ("workload", "field"),
    [
        ({"arrival": {"process": "closed", "users": 4}}, "arrival.process"),
        ({"time_limit_s": 10}, "time_limit_s"),
        ({"num_requests": 1}, "workload"),
    ],
)
def test_a_workload_without_a_rate_of_its_own_is_an_input_error(workload: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=field):
        prober(workload=workload)


def test_the_knee_of_a_single_server_queue_is_at_half_its_service_rate() -> None:
    loads = [i / 100 for i in range(1, 100)]  # M/M/1: the power load / latency is largest at half (Kleinrock 1979)
    assert knee(loads, [1 / (1 - load) for load in loads]) == 0.5


def test_a_sweep_goes_from_rates_that_hold_to_rates_that_do_not() -> None:
    found = sweep(prober(), 6)
    holds = [point.holds for point in found.points]
    assert holds[0]
    assert not holds[-1]
    assert found.points[0].rate_rps <= found.knee_rps <= found.points[-1].rate_rps
    assert [point.holds for point in found.points if point.rate_rps < 0.9 * found.max_rate_rps].count(False) == 0


def planner(folder: Path, *arguments: str) -> str:
    (folder / "plan.yaml").write_text(yaml.safe_dump(PLAN))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-m", "planner.cli", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def test_the_commands_write_what_they_found(tmp_path: Path) -> None:
    document = json.loads(planner(tmp_path, "capacity", "plan.yaml", "--json", "-", "--rate", "5"))
    assert document["max_rate_rps"] < document["broken_at_rps"]
    assert document["min_gpus"] == document["min_replicas"]
    text = planner(tmp_path, "sweep", "plan.yaml", "--points", "4", "--plot", "sweep.png", "--json", "sweep.json")
    assert "knee" in text
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert len(json.loads((tmp_path / "sweep.json").read_text())["points"]) == 4


def test_a_limit_on_the_time_is_left_out_with_a_warning(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import argparse

    from planner.commands._probing import prober

    path = tmp_path / "limited.yaml"
    path.write_text(yaml.safe_dump(PLAN | {"workload": PLAN["workload"] | {"time_limit_s": 1800}}))
    assert prober(argparse.Namespace(plan=path, overrides=[])).plan.workload == PLAN["workload"]
    assert "time_limit_s is left out" in capsys.readouterr().err
