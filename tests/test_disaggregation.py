"""What must hold of prefill and decode pools: physics, conservation, and llm-d's deciders."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.evaluate import make_evaluator
from planner.parameters import resolve
from planner.space import load_space
from sim.cluster import policy_names
from sim.deployment import Deployment, PolicySpec
from sim.errors import DoesNotFit, InputError
from sim.prefill_pool import kv_bytes_per_token
from sim.result import Result
from sim.simulate import simulate
from sim.workload import Workload, build_workload, parse_workload
from tests.serving_cases import MS, deployment, policy, workload

SPACE = Path(__file__).parent.parent / "search_spaces" / "llama31_70b_disaggregation.yaml"
LONG = {"kind": "lengths", "input": {"dist": "exponential", "mean": 4000, "min": 10, "max": 16000}, "output": 150}
COLUMNS = ("arrival_ps", "queue_ps", "scheduled_ps", "first_token_ps", "finish_ps", "cached_tokens", "outcome")


def load(rate_rps: float, requests: int, seed: int = 0, **given: Any) -> Workload:
    arrival = {"process": "poisson", "rate_rps": rate_rps}
    return build_workload(parse_workload(LONG | {"arrival": arrival, "num_requests": requests} | given), seed, None)


def pools(prefill: int, decode: int, **given: Any) -> Deployment:
    return deployment(replicas=decode, prefill_replicas=prefill, max_num_batched_tokens=8192, **given)


def times(result: Result, name: str) -> tuple[np.ndarray, np.ndarray]:
    """A column of the prefill pool's table and of the decode pool's."""
    assert result.prefill is not None
    return tuple(np.array(getattr(table, name), np.int64) for table in (result.prefill.table, result.table))


@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-V2-Lite"])
def test_the_first_token_comes_after_the_prefill_and_the_transfer_of_what_is_not_cached(model: str) -> None:
    plan = pools(1, 2, kv_transfer_gb_per_s=5.0, model=model, gpu="H200")
    requests = load(3, 200, prefix={"groups": 4, "tokens": 1000})
    result = simulate(plan, requests)
    (started, _), (ended, _), (_, first) = (times(result, n) for n in ("scheduled_ps", "finish_ps", "first_token_ps"))
    hits = np.array(result.table.cached_tokens)
    assert hits.max() >= 1000 - plan.block_size
    moved = requests.prompt_tokens - 1 - hits
    transfer = moved * kv_bytes_per_token(plan) / 5e9 * 1e12 + 0.05 * MS
    assert (first - np.array(result.table.arrival_ps) >= (ended - started) + transfer).all()
    assert sum(link.tokens for link in result.prefill.links) == moved.sum()


def test_a_single_request_takes_its_prefill_elsewhere_and_all_the_rest_of_the_way_more() -> None:
    requests = workload([0], 4000, 100)
    together, apart = (simulate(plan, requests) for plan in (deployment(), deployment(prefill_replicas=1)))
    (_, answered), overhead = times(apart, "first_token_ps"), apart.overhead
    assert times(apart, "finish_ps")[0] == np.array(together.table.first_token_ps)
    way = overhead.last_token_ps + overhead.before_queue_ps + overhead.before_queue_ps_per_token * 4000
    transfer = round(3999 * kv_bytes_per_token(apart.deployment) / 25e9 * 1e12) + 50_000_000
    waited = times(apart, "scheduled_ps")[1] - times(apart, "finish_ps")[0]
    assert abs(waited - way - transfer) <= 1
    assert answered > times(apart, "scheduled_ps")[1]


def test_bytes_do_not_depend_on_the_pools_tensor_parallelism() -> None:
    plans = [pools(1, 1, tensor_parallel_size=a, prefill_tensor_parallel_size=b) for a, b in ((1, 4), (2, 1), (4, 4))]
    moved = {simulate(plan, load(1, 20)).summary()["kv_transferred_gb"] for plan in plans}
    assert len(moved) == 1


def test_with_nobody_sent_to_it_a_prefill_pool_changes_nothing() -> None:
    never = PolicySpec("prefix-based", {"non_cached_tokens": 0})
    for routing in ("least-loaded", "weighted"):
        plan = deployment(replicas=3, routing=policy(routing))
        beside = replace(plan, prefill_replicas=2, disaggregation=never, kv_transfer_gb_per_s=1e9)
        alone, behind = (simulate(p, load(8, 300, prefix={"groups": 3, "tokens": 600})) for p in (plan, beside))
        for name in (*COLUMNS, "replica", "preemptions"):
            assert getattr(alone.table, name) == getattr(behind.table, name), name
        assert behind.summary()["disaggregated_share"] == 0
        assert behind.summary()["itl_ms"] == alone.summary()["itl_ms"]


def test_prefills_elsewhere_do_not_disturb_the_answers_of_others() -> None:
    requests = load(14, 500)
    together, apart = (simulate(plan, requests).summary() for plan in (pools(0, 4), pools(2, 2)))
    assert together["gpus"] == apart["gpus"]
    assert apart["itl_ms"]["p99"] < 0.3 * together["itl_ms"]["p99"]
    assert apart["itl_ms"]["max"] < together["itl_ms"]["max"]


@pytest.mark.parametrize("seed", range(4))
def test_more_prefill_replicas_never_raise_mean_prefill_queueing(seed: int) -> None:
    requests = load(20, 300, seed)
    waits = []
    for replicas in (1, 2, 3, 5):
        result = simulate(pools(replicas, 2, snapshot_interval_ms=0.0), requests)
        queued, started = (times(result, name)[0] for name in ("queue_ps", "scheduled_ps"))
        waits.append((started - queued).mean())
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > 2 * waits[-1]


def test_a_faster_link_never_brings_the_first_tokens_of_a_light_load_later() -> None:
    speeds = (1.0, 5.0, 25.0, 400.0)
    means = [simulate(pools(1, 1, kv_transfer_gb_per_s=s), load(1, 60)).summary()["ttft_ms"]["mean"] for s in speeds]
    assert means == sorted(means, reverse=True)
    assert means[0] > means[-1] + 100


def test_a_decode_pool_without_room_holds_up_the_prefill_pool() -> None:
    requests = workload(np.arange(60) * 5 * 10**11, 15_000, 400)
    waits = {}
    for seats in (1, 64):
        plan = pools(1, 1, max_num_seqs=seats, prefill_max_num_seqs=8, num_gpu_blocks_override=1000 * seats)
        result = simulate(plan, requests)
        (queued, _), (started, _) = (times(result, name) for name in ("queue_ps", "scheduled_ps"))
        waits[seats] = (started - queued)[-1]
        assert result.prefill.replicas[0].pool.free == result.prefill.capacity.num_blocks
    # Its cache holds fewer than 60 prompts that nobody has read yet.
    assert result.prefill.capacity.tokens < 40 * 15_000
    assert waits[1] > 10 * waits[64]


def test_concurrent_transfers_share_the_link() -> None:
    requests = workload([0] * 8, 2000, 10)
    result = simulate(pools(8, 1, kv_transfer_gb_per_s=1.0), requests)
    one = 1999 * kv_bytes_per_token(result.deployment) / 1e9 * 1e12
    queued, seated = (times(result, name)[1] for name in ("queue_ps", "scheduled_ps"))
    assert seated.max() - queued.min() >= 8 * one
    assert result.prefill.links[0].busy_ps >= 8 * one
    assert result.summary()["kv_transfer_mean_ms"] * MS >= 4 * one  # most of them wait for others


# -- conservation -------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["always", PolicySpec("prefix-based", {"non_cached_tokens": 1500})]),
    st.sampled_from(policy_names("routing")),
    st.sampled_from(policy_names("prefill_routing")),
    st.sampled_from(["none", "static", "soft-reflective"]),
    st.sampled_from(["always-admit", "probabilistic", "reject-negative"]),
    st.booleans(),
    st.sampled_from([0, 5.0]),
    st.integers(0, 10**6),
)
def test_every_request_ends_once(
    prefill: int,
    decode: int,
    decider: Any,
    routing: str,
    prefill_routing: str,
    flow: str,
    admission: str,
    closed: bool,
    limit_s: float,
    seed: int,
) -> None:
    arrival = {"process": "closed", "users": 30} if closed else {"process": "gamma", "rate_rps": 30, "cv": 3}
    client = {**LONG, "prefix": {"groups": 3, "tokens": 900}, "share": 1}
    document = {
        "kind": "clients",
        "arrival": arrival,
        "num_requests": 120,
        "clients": [client | {"slo_class": c} for c in ("critical", "sheddable")],
    }
    requests = build_workload(parse_workload(document | ({"time_limit_s": limit_s} if limit_s else {})), seed, None)
    plan = pools(
        prefill,
        decode,
        max_num_seqs=8,
        num_gpu_blocks_override=1600,
        disaggregation=PolicySpec(decider) if isinstance(decider, str) else decider,
        routing=policy(routing),
        prefill_routing=policy(prefill_routing),
        flow_control=PolicySpec(flow, {"ttl_s": 1.0} if flow != "none" else {}),
        admission=policy(admission),
    )
    result = simulate(plan, requests, seed % 100)
    summary = result.summary()
    ended = sum(summary[name] for name in ("completed", "shed", "expired", "rejected", "unfinished"))
    assert ended == summary["offered"] == (len(requests) if not limit_s else summary["offered"])
    assert summary["unfinished"] == 0 or limit_s
    prefilled, answered = times(result, "finish_ps")
    elsewhere = result.prefill.disaggregated
    assert (answered[elsewhere & (answered >= 0)] > prefilled[elsewhere & (answered >= 0)]).all()
    assert (prefilled[~elsewhere] < 0).all()
    for pool, replicas in (("prefill_replicas", result.prefill.replicas), ("replicas", result.replicas)):
        assert sum(row["completed"] for row in summary[pool]) <= sum(row["requests"] for row in summary[pool])
        if not limit_s:
            assert all(replica.pool.free == replica.pool.num_blocks for replica in replicas)
            assert all(replica.num_waiting == replica.num_running == 0 for replica in replicas)
    if not limit_s:
        assert sum(row["completed"] for row in summary["prefill_replicas"]) == elsewhere.sum()


def test_a_users_next_request_follows_the_answer_of_the_decode_pool() -> None:
    document = LONG | {"arrival": {"process": "closed", "users": 1, "think_time_s": 1}, "num_requests": 10}
    result = simulate(pools(1, 1), build_workload(parse_workload(document), 0, None))
    arrival, finish = times(result, "arrival_ps")[1], times(result, "finish_ps")[1]
    assert (arrival[1:] == finish[:-1] + result.overhead.last_token_ps + 10**12).all()


def test_the_next_turn_of_a_session_follows_the_answer_of_the_decode_pool() -> None:
    requests = workload([0, 2 * 10**12], [1000, 2000], 50, follows=np.array([-1, 0], np.int64))
    result = simulate(pools(2, 2, routing=policy("session-affinity")), requests)
    arrival, finish = times(result, "arrival_ps")[1], times(result, "finish_ps")[1]
    assert arrival[1] == finish[0] + result.overhead.last_token_ps + 2 * 10**12
    assert result.prefill.disaggregated.all()


def test_what_either_pool_cannot_hold_is_rejected() -> None:
    plan = deployment("meta-llama/Llama-3.1-8B-Instruct", "L4", tensor_parallel_size=4, prefill_replicas=1)
    smaller = replace(plan, prefill_tensor_parallel_size=1)
    requests = workload([0, 0], [1000, 100_000], 10)
    assert simulate(plan, requests).summary()["rejected"] == 0
    result = simulate(smaller, requests)
    assert result.prefill.capacity.tokens < 100_000 < result.capacity.tokens
    assert result.summary()["rejected"] == 1
    assert result.summary()["completed"] == 1


# -- deciders -----------------------------------------------------------------------------------------------------


def test_a_prompt_goes_to_the_prefill_pool_if_enough_of_it_is_not_cached_where_it_decodes() -> None:
    content = {"content": np.array([1, 1, 1, 0], np.int64), "contents": [(), ((7, 6400),)]}
    requests = workload([0, 10**13, 2 * 10**13, 3 * 10**13], [6500, 6500, 7000, 200], 5, **content)
    for index in ("approximate", "precise"):
        decider = PolicySpec("prefix-based", {"non_cached_tokens": 300, "prefix_index": index})
        result = simulate(pools(1, 1, disaggregation=decider), requests)
        # All of it is new; 100 tokens are; 600 are; it is short.
        assert result.prefill.disaggregated.tolist() == [True, False, True, False], index


def test_at_the_threshold_itself_a_prompt_is_sent_as_in_llm_d() -> None:
    requests = workload([0, 10**13], [299, 300], 5)
    decider = PolicySpec("prefix-based", {"non_cached_tokens": 300})
    result = simulate(pools(1, 1, disaggregation=decider), requests)
    assert result.prefill.disaggregated.tolist() == [False, True]


# -- what is written down -----------------------------------------------------------------------------------------


def test_a_summary_counts_both_pools(tmp_path: Path) -> None:
    plan = pools(3, 2, tensor_parallel_size=2, prefill_tensor_parallel_size=1, num_gpu_blocks_override=None)
    result = simulate(plan, load(5, 100))
    summary = result.summary()
    assert summary["gpus"] == plan.gpus == 3 * 1 + 2 * 2
    assert summary["cost_per_hour"] == pytest.approx(7 * plan.gpu.price_usd_per_hour)
    assert [len(summary[pool]) for pool in ("prefill_replicas", "replicas")] == [3, 2]
    assert all(row["completed"] > 0 for pool in ("prefill_replicas", "replicas") for row in summary[pool])
    result.requests_csv(tmp_path / "requests.csv")
    rows = list(csv.DictReader((tmp_path / "requests.csv").open()))
    assert {row["prefill_replica"] for row in rows} == {"0", "1", "2"}
    assert all(float(row["queue_ms"]) + 1e-9 < float(row["ttft_ms"]) for row in rows)


def test_a_sampled_run_is_the_same_and_says_where_the_time_of_both_pools_goes() -> None:
    plan, requests = pools(2, 1), load(5, 80)
    plain, sampled = (simulate(plan, requests, sampled=s) for s in (False, True))
    for name in COLUMNS:
        assert all((a == b).all() for a, b in zip(times(plain, name), times(sampled, name), strict=True))
    assert sum(sampled.time_parts().values()) == pytest.approx(1)
    assert [len(result.prefill.timelines()) for result in (plain, sampled)] == [0, 2]
    assert max(sampled.prefill.timelines()[0].running) > 0


def test_the_parts_of_ttft_add_up_to_it() -> None:
    decider = PolicySpec("prefix-based", {"non_cached_tokens": 2000})
    result = simulate(pools(1, 2, disaggregation=decider), load(6, 150))
    parts, elsewhere = result.summary()["ttft_parts_ms"], result.prefill.disaggregated
    assert min(parts.values()) >= 0
    assert sum(parts.values()) == pytest.approx(result.records.ttft_ms[elsewhere].mean())
    assert parts["kv_and_seat"] >= result.summary()["kv_transfer_mean_ms"]


def test_on_the_same_gpus_pools_trade_the_first_token_for_an_even_flow() -> None:
    space = load_space(SPACE, ["workload.num_requests=250"])
    evaluate = make_evaluator(space)
    common = {"gpu": "H100-SXM-80GB", "gateway": "llm-d", "routing": "least-loaded", "max_num_batched_tokens": 8192}
    together = evaluate(resolve(common | {"tensor_parallel_size": 4, "replicas": 2})).metrics
    pool = {"prefill_replicas": 2, "prefill_tensor_parallel_size": 2}
    apart = evaluate(resolve(common | {"tensor_parallel_size": 4, "replicas": 1} | pool)).metrics
    assert together["gpus"] == apart["gpus"] == 8
    assert apart["itl_p99_ms"] < 0.1 * together["itl_p99_ms"]
    assert apart["ttft_p90_ms"] > 1.5 * together["ttft_p90_ms"]
    assert apart["output_tokens_per_s"] > 0.95 * together["output_tokens_per_s"]


def test_an_overloaded_decode_pool_shows_in_time_in_queue_and_saturation() -> None:
    summary = simulate(pools(4, 1, max_num_seqs=4), load(20, 400)).summary()
    assert summary["saturation"] == "overloaded"
    assert summary["queue_ms"]["mean"] > 1000


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"prefill_tensor_parallel_size": 3}, "tensor_parallel_size"),
        ({"prefill_max_num_batched_tokens": 100}, "deployment.prefill_max_num_batched_tokens"),
        ({"prefill_replicas": -1}, "deployment.prefill_replicas"),
        ({"kv_transfer_gb_per_s": 0.0}, "deployment.kv_transfer_gb_per_s"),
        ({"kv_transfer_latency_ms": -1.0}, "deployment.kv_transfer_latency_ms"),
        ({"disaggregation": PolicySpec("prefix-base")}, "deployment.disaggregation"),
        ({"prefill_routing": PolicySpec("least-load")}, "deployment.prefill_routing"),
    ],
)
def test_what_is_wrong_with_a_prefill_pool_is_said_of_its_own_parameters(given: dict, field: str) -> None:
    with pytest.raises(InputError) as error:
        simulate(deployment(**{"prefill_replicas": 1, **given}), load(1, 3))
    assert error.value.field.endswith(field)


def test_a_model_that_does_not_fit_the_prefill_pool_is_refused() -> None:
    plan = deployment("meta-llama/Llama-3.1-70B-Instruct", tensor_parallel_size=4, prefill_replicas=1)
    with pytest.raises(DoesNotFit, match="prefill pool"):
        simulate(replace(plan, prefill_tensor_parallel_size=1), workload([0], 10, 10))


def test_a_pool_s_simulation_is_deterministic_in_the_seed() -> None:
    plan = pools(2, 2, routing=policy("random"), prefill_routing=policy("power-of-two"))
    a, b = (simulate(plan, load(10, 100), 3).summary() for _ in range(2))
    assert a == b
