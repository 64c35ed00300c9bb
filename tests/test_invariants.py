"""What holds in every run, whatever the policies: conservation, causality, progress, and what the metrics say of it."""

from __future__ import annotations

import csv
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from sim.cluster.admission.always_admit import AlwaysAdmit
from sim.cluster.policies import AdmissionPolicy, RequestView
from sim.engine.nodes import Node
from sim.errors import InputError
from sim.latency import load_coefficients
from sim.latency.coefficient_set import RequestCoefficients
from sim.result import Result
from sim.simulate import simulate
from tests.serving_cases import MS, SECOND, Case, ConstantStep, deployment, policy, random_case, with_cache, workload

CASES = range(int(os.environ.get("SERVING_CASES", "120")))


def cases() -> Iterator[Case]:
    return map(random_case, CASES)


def table_of(result: Result) -> dict[str, np.ndarray]:
    """The engine's own columns, in ps."""
    names = ("arrival_ps", "queue_ps", "scheduled_ps", "first_token_ps", "finish_ps", "preemptions", "cached_tokens")
    return {name: np.array(getattr(result.table, name), dtype=np.int64) for name in names}


# -- requests and tokens -----------------------------------------------------------------------------------------


def test_every_request_ends_exactly_once() -> None:
    for case in cases():
        records, summary = case.result.records, case.result.summary()
        unfinished = records.offered & ~records.completed & ~records.shed & ~records.rejected
        ends = sum(mask.astype(int) for mask in (records.completed, records.shed, records.rejected, unfinished))
        assert (ends == records.offered).all(), case.seed
        assert summary["offered"] == sum(summary[k] for k in ("completed", "shed", "rejected", "unfinished"))
        if not case.load.time_limit_ps:
            assert records.offered.all(), case.seed
            assert summary["unfinished"] == 0, case.seed


def test_replicas_and_classes_add_up_to_the_whole() -> None:
    for case in cases():
        summary = case.result.summary()
        for parts in (summary["replicas"], list(summary["classes"].values())):
            assert sum(part["completed"] for part in parts) == summary["completed"], case.seed
        assert sum(part["offered"] for part in summary["classes"].values()) == summary["offered"]
        assert int(case.result.records.preemptions.sum()) == summary["preemptions"]
        if not case.load.time_limit_ps:
            served = summary["offered"] - summary["shed"] - summary["rejected"]
            assert sum(replica["requests"] for replica in summary["replicas"]) == served


def test_a_request_is_queued_scheduled_and_answered_in_this_order() -> None:
    for case in cases():
        table = table_of(case.result)
        order = ("arrival_ps", "queue_ps", "scheduled_ps", "first_token_ps", "finish_ps")
        for earlier, later in pairwise(order):
            reached = table[later] >= 0
            assert (table[earlier][reached] >= 0).all(), (case.seed, later)
            assert (table[earlier][reached] <= table[later][reached]).all(), (case.seed, later)
        reached = table["first_token_ps"] >= 0
        assert (table["scheduled_ps"][reached] < table["first_token_ps"][reached]).all(), case.seed
        several = (table["finish_ps"] >= 0) & (case.load.output_tokens > 1)
        took = (table["finish_ps"] - table["first_token_ps"])[several]
        assert (took >= case.load.output_tokens[several] - 1).all(), case.seed  # a step takes at least 1 ps


def test_end_to_end_is_finish_minus_arrival_however_often_preempted() -> None:
    preempted = 0
    for case in cases():
        table, records, overhead = table_of(case.result), case.result.records, case.result.overhead
        done = records.completed
        e2e_ps = table["finish_ps"] + overhead.last_token_ps - table["arrival_ps"]
        assert records.e2e_ms[done] * MS == pytest.approx(e2e_ps[done], abs=1000), case.seed
        preempted += int((table["preemptions"][done] > 0).sum())
    assert preempted > 100


def test_a_client_has_its_answer_no_sooner_than_its_first_token() -> None:
    for case in cases():
        records = case.result.records
        done = records.completed
        assert (records.ttft_ms[done] <= records.e2e_ms[done]).all(), case.seed


def test_every_token_but_the_first_ends_a_gap() -> None:
    for case in cases():
        if case.load.time_limit_ps:
            continue
        done = case.result.records.completed
        gaps = sum(sum(replica.stats.inter_token_bins().values()) for replica in case.result.replicas)
        assert gaps == int((case.load.output_tokens[done] - 1).sum()), case.seed


def test_gaps_add_up_to_the_time_from_first_token_to_last() -> None:
    """The histogram's bins are under 0.8% wide, so their middles are within 0.4%."""
    for case in cases():
        summary, table, done = case.result.summary(), table_of(case.result), case.result.records.completed
        count = int((case.load.output_tokens[done] - 1).sum())
        if case.load.time_limit_ps or not count:
            continue
        total_ms = int((table["finish_ps"] - table["first_token_ps"])[done].sum()) / MS
        assert summary["itl_ms"]["mean"] * count == pytest.approx(total_ms, rel=0.004), case.seed


def test_a_prompt_is_looked_up_once_an_admission_and_never_hit_whole() -> None:
    for case in cases():
        table = table_of(case.result)
        cached = table["cached_tokens"]
        assert (cached < case.load.prompt_tokens).all(), case.seed
        assert (cached % case.plan.block_size == 0).all(), case.seed
        if not case.plan.enable_prefix_caching:
            assert not cached.any(), case.seed
        loaded = sum(np.array(column, dtype=np.int64) for column in case.result.table.tier_tokens)
        assert (cached + loaded < case.load.prompt_tokens).all(), case.seed
        stats = [replica.stats for replica in case.result.replicas]
        scheduled = table["scheduled_ps"] >= 0
        if not table["preemptions"].any():
            prompts = int(case.load.prompt_tokens[scheduled].sum())
            assert sum(s.looked_up_tokens for s in stats) == prompts, case.seed
            assert sum(s.hit_tokens for s in stats) == int(cached[scheduled].sum()), case.seed


# -- blocks ------------------------------------------------------------------------------------------------------


def nodes_below(node: Node) -> Iterator[Node]:
    for child in node.children.values():
        yield child
        yield from nodes_below(child)


def test_every_block_comes_back_and_none_is_cached_twice() -> None:
    for case in cases():
        for replica in case.result.replicas:
            pool = replica.pool
            everywhere = list(nodes_below(pool.root))
            cached = [node for node in everywhere if not node.tier]
            assert 0 <= pool.free <= pool.num_blocks, case.seed
            assert sum(node.num_blocks for node in cached) <= pool.num_blocks, case.seed
            assert all(node.num_blocks > 0 for node in everywhere)
            for level, tier in enumerate(replica.tiers.tiers if replica.tiers else [], start=1):
                unfindable = sum(count for node, count in tier.queue if node is None)
                held = sum(node.num_blocks for node in everywhere if node.tier == level)
                assert held + unfindable == tier.used <= tier.num_blocks, case.seed
            for node in everywhere:  # the GPU's first, then those of each tier
                assert node.parent is pool.root or node.parent.tier <= node.tier, case.seed
            if not case.load.time_limit_ps:
                assert pool.free == pool.num_blocks == case.result.capacity.num_blocks, case.seed
                assert all(node.holders == 0 for node in cached), case.seed


def test_no_more_seats_blocks_or_time_are_used_than_there_are() -> None:
    for case in cases():
        for replica in case.result.replicas:
            stats = replica.stats
            assert stats.steps <= stats.busy_ps, case.seed
            assert stats.seat_area <= stats.busy_ps * case.plan.max_num_seqs * (1 + 1e-12), case.seed
            if not case.load.time_limit_ps:
                end_ps = max(case.result.table.finish_ps)
                assert stats.busy_ps <= end_ps, case.seed
                assert stats.block_area <= end_ps * case.result.capacity.num_blocks * (1 + 1e-12), case.seed


# -- progress ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduling", ["fcfs", "priority", "sjf"])
@pytest.mark.parametrize("preemption", ["fcfs", "priority"])
def test_a_preemption_storm_ends(scheduling: str, preemption: str) -> None:
    """A cache that one request fills, prefix caching and chunked prefill on, everybody at once."""
    for seed in range(8):
        random = Random(seed)
        n, size = random.choice((8, 30)), random.choice((1, 16))
        prompts = [random.randint(1, 900) for _ in range(n)]
        outputs = [random.randint(1, 500) for _ in range(n)]
        contents = [(), ((1, min(prompts)),)]
        load = workload(
            [random.choice((0, 1, 40)) * i * MS for i in range(n)] if seed % 2 else [0] * n,
            prompts,
            outputs,
            content=np.array([random.randrange(2) for _ in range(n)], np.int64),
            contents=contents,
            priority=np.array([random.randrange(3) for _ in range(n)], np.int64),
        )
        load.arrival_ps.sort()
        plan = deployment(
            max_num_seqs=random.choice((2, n)),
            max_num_batched_tokens=random.choice((n, 64, 2048)) + n,
            block_size=size,
            long_prefill_token_threshold=random.choice((0, 16)),
            async_scheduling=bool(seed % 3),
            scheduling=policy(scheduling),
            preemption=policy(preemption),
        )
        largest = max(-(-(p + o) // size) for p, o in zip(prompts, outputs, strict=True))
        result = simulate(with_cache(plan, largest + random.choice((0, 0, 1, 5))), load)
        assert result.summary()["completed"] == n, seed
        assert result.summary()["preemptions"] > 0 or plan.max_num_seqs == 2


def test_a_run_cut_short_is_the_beginning_of_the_whole_run() -> None:
    """So a request that is preempted later has had its first token, and keeps it."""
    kept = 0
    for seed in CASES:
        case = random_case(seed)
        whole = table_of(case.result)
        first, preempted = whole["first_token_ps"], whole["preemptions"] > 0
        if case.load.time_limit_ps or not (preempted & (first > 0)).any():
            continue
        cut_ps = int(np.median(first[preempted & (first > 0)]))
        cut = table_of(simulate(case.plan, replace(case.load, time_limit_ps=cut_ps), case.seed))
        for name in ("queue_ps", "first_token_ps", "finish_ps"):
            before = (whole[name] >= 0) & (whole[name] <= cut_ps)
            assert (cut[name][before] == whole[name][before]).all(), (seed, name)
            assert ((cut[name] < 0) | (cut[name] == whole[name]))[~before].all(), (seed, name)
        kept += int((preempted & (first <= cut_ps) & (whole["finish_ps"] > cut_ps)).sum())
    assert kept > 10


def test_a_time_limit_counts_what_it_cuts() -> None:
    """At 1 s a step, 10 s see the first token and eight more; of the other two, one waits and one never comes."""
    load = workload([0, 2 * SECOND, 20 * SECOND], 100, 50, time_limit_ps=10 * SECOND)
    result = simulate(deployment(max_num_seqs=1), load, step_time=ConstantStep(SECOND))
    summary = result.summary()
    assert (summary["offered"], summary["completed"], summary["unfinished"]) == (2, 0, 2)
    assert summary["duration_s"] == 10
    assert summary["ttft_lower_bound"]
    assert result.records.ttft_floor_ms[1] == pytest.approx(8000)
    assert np.isnan(result.records.ttft_floor_ms[2])
    assert summary["output_tokens_per_s"] == 0


def test_an_answer_too_late_for_its_client_is_unfinished_everywhere() -> None:
    """The engine ends at the limit; its answer would reach the client 1 ms later."""
    load = workload([0], 100, 20)
    whole = simulate(deployment(), load)
    cut = simulate(deployment(), replace(load, time_limit_ps=whole.table.finish_ps[0])).summary()
    assert cut["unfinished"] == 1
    assert cut["replicas"][0]["completed"] == cut["completed"] == 0


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_what_a_time_limit_cuts_has_used_the_replica(async_scheduling: bool) -> None:
    plan, load = deployment(async_scheduling=async_scheduling), workload([0] * 4, 100, 4000)
    whole = simulate(plan, load).summary()
    cut = simulate(plan, replace(load, time_limit_ps=10 * SECOND)).summary()
    assert cut["unfinished"] == 4
    assert cut["replica_utilization_mean"] > 0.98
    assert cut["seats_mean_utilization"] == pytest.approx(4 / plan.max_num_seqs, rel=0.02)
    assert cut["itl_ms"]["p50"] == pytest.approx(whole["itl_ms"]["p50"], rel=0.05)


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_a_busy_replica_sees_a_request_at_one_time_whatever_it_computes(async_scheduling: bool) -> None:
    """Without overheads, user 0's next request comes the moment an answer ends, at a boundary of both replicas."""
    coefficients = load_coefficients()
    nothing = RequestCoefficients(0.0, 0.0, 0.0, 0.0, 0.0)
    scheduled = set()
    for prompt, output in ((1, 60), (60, 1)):  # the second replica decodes, or prefills a token a step
        plan = deployment(replicas=2, long_prefill_token_threshold=1, async_scheduling=async_scheduling)
        result = simulate(
            plan,
            workload([0] * 4, [1, prompt, 1, 1], [5, output, 20, 20], users=3),
            coefficients=replace(coefficients, request=nothing),
            step_time=ConstantStep(MS),
        )
        assert result.records.replica[3] == 1
        scheduled.add(result.table.scheduled_ps[3])
    assert len(scheduled) == 1


def test_a_run_that_outlasts_the_clock_is_refused_not_cut() -> None:
    with pytest.raises(InputError, match="lasts longer"):
        simulate(deployment(), workload([0, 3 * 10**18], 100, 40))
    limited = simulate(deployment(), workload([0], 100, 40, time_limit_ps=3 * 10**18))
    assert limited.summary()["completed"] == 1


@pytest.mark.parametrize("value", [-5.0, float("nan"), float("inf")])
def test_a_snapshot_is_never_from_the_future(value: float) -> None:
    with pytest.raises(InputError, match="snapshot_interval_ms"):
        simulate(deployment(snapshot_interval_ms=value), workload([0], 10, 10))


def test_a_chunk_is_never_negative() -> None:
    with pytest.raises(InputError, match="long_prefill_token_threshold"):
        simulate(deployment(long_prefill_token_threshold=-3), workload([0], 10, 10))


# -- sameness ----------------------------------------------------------------------------------------------------


class Coin(AdmissionPolicy):
    """Admits by a coin of its own."""

    def admit(self, request: RequestView, replicas: Any, now_s: float) -> bool:
        return self.random.random() < 0.5


class EverySecond(AlwaysAdmit):
    """A shipped policy, extended."""

    def admit(self, request: RequestView, replicas: Any, now_s: float) -> bool:
        return request.index % 2 == 0


def test_draws_of_one_policy_never_shift_those_of_another() -> None:
    load = workload(np.arange(300) * 5 * MS, 200, 20)
    shed = {
        simulate(
            deployment(replicas=3, admission=policy(f"{__name__}:Coin"), routing=policy(routing)), load, seed=7
        ).records.shed.tobytes()
        for routing in ("round-robin", "random", "least-loaded", "weighted")
    }
    assert len(shed) == 1


def test_a_subclass_of_a_shipped_policy_decides() -> None:
    plan = deployment(admission=policy(f"{__name__}:EverySecond"))
    assert simulate(plan, workload([0] * 10, 50, 4)).summary()["shed"] == 5


def digest(seeds: range) -> str:
    """Of everything that can be seen of some runs."""
    seen = hashlib.sha256()
    for seed in seeds:
        result = random_case(seed).result
        for column in table_of(result).values():
            seen.update(column.tobytes())
        seen.update(repr(result.summary()).encode())
    return seen.hexdigest()


@pytest.mark.parametrize("variables", [{"PLANNER_INTERPRETED": "1"}, {"PYTHONHASHSEED": "4711"}])
def test_same_bytes_interpreted_or_compiled_and_whatever_the_hash_seed(variables: dict[str, str]) -> None:
    command = "from tests.test_invariants import digest; print(digest(range(12)))"
    other = subprocess.run(
        [sys.executable, "-c", command],
        env=os.environ | variables,
        cwd=Path(__file__).resolve().parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == digest(range(12))


# -- metrics -----------------------------------------------------------------------------------------------------


def naive_percentile(values: list[float], percent: int) -> float:
    values = sorted(values)
    at = (len(values) - 1) * percent / 100
    below = values[int(at)]
    return below + (values[min(int(at) + 1, len(values) - 1)] - below) * (at - int(at))


def test_metrics_are_what_one_computes_from_the_requests(tmp_path: Path) -> None:
    for case in list(cases())[::3]:
        case.result.requests_csv(tmp_path / "requests.csv")
        with open(tmp_path / "requests.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        summary = case.result.summary()
        done = [row for row in rows if row["outcome"] == "completed"]
        offered = [row for row in rows if row["outcome"] != "not offered"]
        assert (len(done), len(offered)) == (summary["completed"], summary["offered"]), case.seed
        start = min(float(row["arrival_s"]) for row in offered)
        end = max((float(row["finish_s"]) for row in done), default=start)
        if summary["unfinished"]:
            end = case.load.time_limit_ps / SECOND
        assert summary["duration_s"] == pytest.approx(end - start, abs=1e-6)
        rate = 1 / summary["duration_s"] if summary["duration_s"] else 0.0
        output = sum(int(row["output_tokens"]) for row in done)
        assert summary["output_tokens_per_s"] == pytest.approx(output * rate)
        assert summary["total_tokens_per_s"] == pytest.approx(
            (output + sum(int(row["prompt_tokens"]) for row in done)) * rate
        )
        good = [r for r in done if float(r["ttft_ms"]) <= 300 and (not r["tpot_ms"] or float(r["tpot_ms"]) <= 20)]
        assert summary["goodput_rps"] == pytest.approx(len(good) * rate)
        for name in ("tpot_ms", "e2e_ms", "queue_ms", *(() if summary["ttft_lower_bound"] else ("ttft_ms",))):
            values = [float(row[name]) for row in rows if row[name]]
            if not values:
                assert summary[name]["mean"] is None
                continue
            assert summary[name]["mean"] == pytest.approx(sum(values) / len(values), rel=1e-9, abs=1e-9)
            assert summary[name]["max"] == pytest.approx(max(values))
            for percent in (50, 90, 95, 99):
                assert summary[name][f"p{percent}"] == pytest.approx(naive_percentile(values, percent))


def test_a_week_into_a_trace_the_requests_still_add_up(tmp_path: Path) -> None:
    week = 7 * 86400 * SECOND
    result = simulate(deployment(), workload([week + 123_456_789, week + 987_654_321], 100, 40))
    result.requests_csv(tmp_path / "requests.csv")
    with open(tmp_path / "requests.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            took_ms = (float(row["finish_s"]) - float(row["arrival_s"])) * 1e3
            assert took_ms == pytest.approx(float(row["e2e_ms"]), abs=0.002)
