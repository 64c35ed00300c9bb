"""What a sampled run shows over time, against the records of the same run."""

from __future__ import annotations

import numpy as np
import pytest

from sim.engine.timeline import MOST_SAMPLES
from sim.result import Result
from sim.simulate import simulate
from tests.serving_cases import MS, SECOND, deployment, poisson, policy, random_case, with_cache, workload

COLUMNS = ("queue_ps", "scheduled_ps", "first_token_ps", "finish_ps", "cached_tokens", "replica", "outcome")


def sampled(rate_rps: float, n: int = 400, **settings: object) -> Result:
    load = workload(poisson(n, rate_rps, 3), 700, 120)
    return simulate(deployment(replicas=2, **settings), load, sampled=True)


def column(result: Result, name: str, replica: int) -> np.ndarray:
    values = np.frombuffer(getattr(result.table, name), np.int64).astype(float)
    values[values < 0] = np.inf
    return values[np.frombuffer(result.table.replica, np.int32) == replica] / 1e12


@pytest.mark.parametrize("seed", range(60))
def test_sampling_changes_nothing_that_is_served(seed: int) -> None:
    case = random_case(seed)
    again = simulate(case.plan, case.load, seed, sampled=True)
    for name in COLUMNS:
        assert getattr(again.table, name) == getattr(case.result.table, name)
    for ours, theirs in zip(again.replicas, case.result.replicas, strict=True):
        assert ours.stats.inter_token_bins() == theirs.stats.inter_token_bins()
        assert (ours.stats.steps, ours.stats.busy_ps) == (theirs.stats.steps, theirs.stats.busy_ps)


@pytest.mark.parametrize("rate_rps", [0.5, 10.0, 60.0])
@pytest.mark.parametrize("routing", ["round-robin", "least-loaded"])
def test_samples_count_those_who_wait_and_those_who_run(rate_rps: float, routing: str) -> None:
    result = sampled(rate_rps, routing=policy(routing), max_num_seqs=16)
    assert not sum(replica.stats.preemptions for replica in result.replicas)
    for number, timeline in enumerate(result.timelines()):
        queued, started, ended = (column(result, name, number) for name in ("queue_ps", "scheduled_ps", "finish_ps"))
        for at, waiting, running in zip(timeline.time_s, timeline.waiting, timeline.running, strict=True):
            assert waiting == ((queued <= at) & (started >= at)).sum()
            assert running == ((started < at) & (ended >= at)).sum()


def test_samples_stay_few_however_long_the_run_and_reach_its_end() -> None:
    result = sampled(0.5)
    for timeline in result.timelines():
        assert MOST_SAMPLES // 2 - 1 <= len(timeline.time_s) <= MOST_SAMPLES
        assert timeline.time_s[-1] == pytest.approx(result.duration_s, rel=0.05)
        assert np.ptp(np.diff(timeline.time_s)) == pytest.approx(0.0, abs=1e-9)


def test_kv_usage_over_time_agrees_with_its_mean() -> None:
    result = sampled(40.0)
    mean = np.mean([timeline.kv_usage.sum() * timeline.time_s[1] for timeline in result.timelines()])
    assert mean / result.duration_s == pytest.approx(result.summary()["kv_utilization_mean"], rel=0.05)


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("limit_s", [0, 25])
def test_blocks_are_held_while_their_kv_is_on_its_way(async_scheduling: bool, limit_s: int) -> None:
    load = workload(np.arange(20) * 3 * SECOND, 8000, 20, time_limit_ps=limit_s * SECOND)
    plan = deployment(prefill_replicas=1, kv_transfer_gb_per_s=0.5, async_scheduling=async_scheduling)
    result = simulate(with_cache(plan, 1000), load, sampled=True)
    (timeline,), summary = result.timelines(), result.summary()
    mean = timeline.kv_usage.sum() * timeline.time_s[1] / result.duration_s
    assert summary["kv_utilization_mean"] == pytest.approx(mean, rel=0.02)
    assert mean > 0.4 * summary["kv_link_utilization_mean"]  # 501 of 1000 blocks, for as long as they take
    assert summary["replica_utilization_mean"] < 0.1


def test_hit_rate_over_time_is_that_of_the_prompts_looked_up_then() -> None:
    content = np.ones(40, np.int64)
    load = workload(np.arange(40) * 300 * MS, 700, 20, content=content, contents=[(), ((1, 640),)])
    (timeline,) = simulate(deployment(), load, sampled=True).timelines()
    rates = timeline.prefix_hit_rate[~np.isnan(timeline.prefix_hit_rate)]
    assert rates[0] == 0.0  # the first request finds an empty cache
    assert rates[-1] == pytest.approx(640 / 700)
