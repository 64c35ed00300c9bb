"""Rates of the load stages of a run."""

from __future__ import annotations

import pytest

from sim.catalog import load_gpu, load_model
from sim.deployment import Deployment
from sim.simulate import simulate
from sim.workload import build_workload, parse_workload


def test_a_stage_that_a_time_limit_cuts_short_has_its_rates_over_what_ran_of_it() -> None:
    stages = [{"rate_rps": 5, "duration_s": 600}, {"rate_rps": 5, "duration_s": 600}]
    spec = {"kind": "lengths", "input": 100, "output": 5, "time_limit_s": 60}
    workload = build_workload(parse_workload(spec | {"arrival": {"process": "constant", "stages": stages}}), 0)
    deployment = Deployment(load_model("Qwen/Qwen3-8B"), load_gpu("H100-SXM-80GB"))
    first, second = simulate(deployment, workload).summary()["stages"]
    assert (first["duration_s"], second["duration_s"]) == (60, 0)
    assert first["requests_per_s"] == pytest.approx(5, rel=0.02)
    assert second["requests_per_s"] == 0
