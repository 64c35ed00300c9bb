"""What a time limit cuts: nothing that would have come after it counts."""

from __future__ import annotations

import math

import pytest

from sim.catalog import load_gpu, load_model
from sim.deployment import Deployment
from sim.simulate import Result, simulate
from sim.workload import build_workload, parse_workload


def _cut_run(time_limit_s: float, **settings: object) -> Result:
    """A burst of long prompts that keeps two L4 busy for much longer than the limit."""
    workload = {
        "kind": "lengths",
        "input": 7000,
        "output": 20,
        "arrival": {"process": "constant", "rate_rps": 100},
        "num_requests": 60,
        "time_limit_s": time_limit_s,
    }
    made: dict[str, object] = {"model": load_model("meta-llama/Llama-3.1-8B-Instruct"), "gpu": load_gpu("L4")}
    made |= {"replicas": 2, "max_num_batched_tokens": 8192} | settings
    return simulate(Deployment(**made), build_workload(parse_workload(workload), 0), 0, sampled=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_parts_of_the_time_add_up_though_the_end_cuts_a_step(asynchronous: bool) -> None:
    result = _cut_run(0.5, async_scheduling=asynchronous)
    parts = result.time_parts()
    assert math.fsum(parts.values()) == pytest.approx(1, abs=1e-9)
    assert parts["compute"] > 0.5


@pytest.mark.parametrize("asynchronous", [True, False])
def test_no_replica_is_busy_for_longer_than_the_run(asynchronous: bool) -> None:
    result = _cut_run(0.5, async_scheduling=asynchronous)
    assert result.summary()["unfinished"] > 0
    whole_ps = result.duration_s * 1e12
    for replica in result.replicas:
        stats = replica.stats
        assert 0.8 * whole_ps < stats.busy_ps <= whole_ps
        assert 0 < stats.block_area <= whole_ps * replica.pool.num_blocks


def test_links_move_no_more_than_their_bandwidth_by_the_end_of_the_run() -> None:
    result = _cut_run(12, prefill_replicas=2, kv_transfer_gb_per_s=0.2, replicas=1)
    summary = result.summary()
    assert result.prefill is not None
    assert result.prefill.links[0].free_ps > 12e12  # transfers were cut off
    moved = summary["kv_transferred_gb"]
    could = 0.2 * summary["duration_s"] * summary["kv_link_utilization_mean"]
    assert 0.9 * could < moved <= could <= 0.2 * summary["duration_s"]
