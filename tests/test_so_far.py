"""Runs watched while they go on: watching changes nothing, and what is said to be sure comes to pass."""

from __future__ import annotations

import dataclasses
from random import Random

import numpy as np
import pytest

from sim.deployment import PolicySpec
from sim.metrics import METRICS, flatten
from sim.result import Result
from sim.simulate import simulate
from sim.so_far import SoFar
from tests.serving_cases import SECOND, deployment, poisson, random_plan, random_workload, workload

LIMITS = {"ttft_ms": 300.0, "tpot_ms": 20.0}


class Recorder:
    """Notes the bounds of every look."""

    def __init__(self) -> None:
        self.ticks = 0
        self.seen: list[tuple[int, dict[str, float]]] = []

    def tick(self) -> None:
        self.ticks += 1

    def look(self, so_far: SoFar) -> None:
        self.seen.append((so_far.reached, so_far.bounds(METRICS)))


class Ends(Recorder):
    """Ends the run at its first look."""

    def look(self, so_far: SoFar) -> None:
        raise StopIteration(so_far.reached)


def columns(result: Result) -> list[bytes]:
    table = result.table
    names = ("arrival_ps", "queue_ps", "scheduled_ps", "first_token_ps", "finish_ps", "replica", "outcome")
    return [getattr(table, name).tobytes() for name in names]


def better(name: str, value: float, bound: float) -> bool:
    slack = 1e-9 * abs(bound)
    return value < bound - slack if METRICS[name] == "min" else value > bound + slack


@pytest.mark.parametrize("part", range(10))
def test_a_watched_run_is_the_same_run_and_no_better_than_any_bound_on_its_way(part: int) -> None:
    looks = 0
    for seed in range(part * 20, part * 20 + 20):
        random = Random(f"watched {seed}")
        load = random_workload(random, 16)
        plan = random_plan(random, load)
        if random.random() < 0.4:
            flow = PolicySpec(random.choice(("static", "soft-reflective")), {"ttl_s": random.choice((0.2, 5.0))})
            plan = dataclasses.replace(plan, flow_control=flow)
        if random.random() < 0.3:
            plan = dataclasses.replace(plan, prefill_replicas=random.choice((1, 2)))
        recorder = Recorder()
        alone = simulate(plan, load, seed, request_slo=LIMITS)
        watched = simulate(plan, load, seed, request_slo=LIMITS, watch=recorder)
        assert columns(alone) == columns(watched)
        assert repr(alone.summary()) == repr(watched.summary())
        metrics = flatten(alone.summary())
        for _, bounds in recorder.seen:
            wrong = {
                n: (metrics[n], b) for n, b in bounds.items() if metrics[n] is not None and better(n, metrics[n], b)
            }
            assert not wrong, (seed, wrong)
        looks += len(recorder.seen)
    assert looks > 5


def overloaded(n: int = 600, **columns: object) -> Recorder:
    """One H100 under ten times what it can serve."""
    load = workload(poisson(n, 200, 0), 800, 300, **columns)
    recorder = Recorder()
    simulate(deployment(max_num_seqs=16), load, request_slo=LIMITS, watch=recorder)
    return recorder


@pytest.mark.parametrize("n", [1, 12, 100])
def test_a_long_drain_is_looked_at_a_few_times(n: int) -> None:
    recorder = Recorder()
    simulate(deployment(max_num_seqs=16), workload(poisson(n, 200, 0), 100, 3000), watch=recorder)
    assert 0 < len(recorder.seen) < 100


def test_the_later_the_look_the_more_is_sure() -> None:
    recorder = overloaded()
    for name in ("ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms", "e2e_mean_ms", "duration_s"):
        values = [bounds[name] for _, bounds in recorder.seen]
        assert values == sorted(values)
        assert values[-1] > 0
    for name in ("slo_attainment", "goodput_rps"):
        values = [bounds.get(name, np.inf) for _, bounds in recorder.seen]
        assert values == sorted(values, reverse=True)
        assert values[-1] < values[0]


def test_an_overload_is_sure_long_before_it_has_been_served() -> None:
    metrics = flatten(simulate(deployment(max_num_seqs=16), workload(poisson(600, 200, 0), 800, 300)).summary())
    reached = [n for n, bounds in overloaded().seen if bounds["ttft_mean_ms"] > 1000]
    assert metrics["ttft_mean_ms"] is not None
    assert metrics["ttft_mean_ms"] > 30_000
    assert reached[0] <= 600
    assert overloaded().seen[-1][1]["ttft_mean_ms"] <= metrics["ttft_mean_ms"]


def test_a_burst_that_has_all_arrived_is_looked_at_while_it_drains() -> None:
    recorder = Recorder()
    load = workload(np.zeros(2000), 500, 200)
    result = simulate(deployment(max_num_seqs=8), load, watch=recorder)
    floors = [bounds["ttft_mean_ms"] for _, bounds in recorder.seen]
    assert len({*floors}) > 5
    assert floors[-1] <= flatten(result.summary())["ttft_mean_ms"]


def test_what_a_watch_raises_ends_the_run() -> None:
    load = workload(poisson(6400, 20, 0), 100, 10)
    with pytest.raises(StopIteration, match="200"):
        simulate(deployment(), load, watch=Ends())


def test_of_a_class_only_its_own_requests_count() -> None:
    classes = np.array([0, 1] * 300, np.int64)
    recorder = overloaded(slo_class=classes, slo_classes=["critical", "standard"])
    for _, bounds in recorder.seen:
        assert bounds["critical.e2e_max_ms"] <= bounds["e2e_max_ms"]
        assert bounds["critical.slo_attainment"] <= 1
        assert "batch.ttft_mean_ms" not in bounds


def test_a_run_of_any_length_is_looked_at_a_few_times_and_ticks_often() -> None:
    recorder = Recorder()
    load = workload(np.arange(20_000, dtype=np.int64) * (SECOND // 50), 50, 2)
    simulate(deployment(replicas=2, routing=PolicySpec("least-loaded")), load, watch=recorder)
    assert recorder.ticks >= 30
    assert 4 <= len(recorder.seen) <= 10


@pytest.mark.parametrize("users", [0, 2])
@pytest.mark.parametrize("requests", [1, 12, 60, 200])
def test_a_run_of_few_requests_and_many_steps_is_looked_at_a_few_times(requests: int, users: int) -> None:
    """With chunks of a token each step is a boundary, in a closed loop as while a queue drains."""
    recorder = Recorder()
    plan = deployment(long_prefill_token_threshold=1, max_num_seqs=2)
    load = workload(np.zeros(requests, np.int64), 300, 2, users=users)
    result = simulate(plan, load, watch=recorder)
    assert sum(replica.stats.steps for replica in result.replicas) > 100 * requests
    assert len(recorder.seen) < 64
