"""Multi-turn sessions: what they hold, when their turns arrive, and what caches and routers make of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.capacity import offered_rate
from planner.evaluate import faster, first_requests, make_evaluator
from planner.goals import judge
from planner.report.workload_words import workload_words
from planner.space import load_space
from sim.cluster.policies import RequestView
from sim.deployment import Deployment
from sim.engine.requests import RequestTable
from sim.errors import InputError
from sim.result import Result
from sim.simulate import simulate
from sim.workload import PS_PER_S, Workload, build_workload, parse_workload
from sim.workload.describe import describe, reusable_tokens
from tests.serving_cases import deployment, policy

ROOT = Path(__file__).parents[1]
CHAT: dict[str, Any] = {
    "kind": "sessions",
    "turns": {"dist": "uniform", "min": 1, "max": 8},
    "first_input": {"dist": "lognormal", "mean": 300, "sd": 200},
    "input": {"dist": "lognormal", "mean": 60, "sd": 40},
    "output": {"dist": "exponential", "mean": 100},
    "think_time_s": {"dist": "lognormal", "mean": 5, "sd": 4},
    "arrival": {"process": "poisson", "rate_rps": 3},
}
PREFIX = {"groups": 3, "tokens": 500}


def built(seed: int = 0, **fields: Any) -> Workload:
    raw = CHAT | fields
    if not {"num_sessions", "num_requests", "duration_s", "clients"} & set(raw):
        raw["num_sessions"] = 100
    return build_workload(parse_workload({k: v for k, v in raw.items() if v is not None}), seed)


def turn_of(load: Workload) -> np.ndarray:
    """The number of each turn in its session, from 0."""
    turns = np.zeros(len(load), np.int64)
    for index, before in enumerate(load.follows.tolist()):
        turns[index] = turns[before] + 1 if before >= 0 else 0
    return turns


def arrived_ps(result: Result) -> np.ndarray:
    return np.array(result.table.arrival_ps)


def ended_ps(result: Result) -> np.ndarray:
    """When the client has the last token of each."""
    return np.array(result.table.finish_ps) + result.overhead.last_token_ps


# -- what they hold -------------------------------------------------------------------------------------------------


def test_a_prompt_is_all_that_was_said_before_and_a_question() -> None:
    load = built(prefix=PREFIX, first_input=40, input=7, output={"dist": "uniform", "min": 1, "max": 9})
    for index, before in enumerate(load.follows.tolist()):
        if before < 0:
            assert load.prompt_tokens[index] == 500 + 40
        else:
            assert load.session[index] == load.session[before]
            assert load.prompt_tokens[index] == load.prompt_tokens[before] + load.output_tokens[before] + 7


def test_sessions_have_as_many_turns_as_drawn_and_think_as_long() -> None:
    load = built(num_sessions=4000)
    turns = np.bincount(load.session)
    assert (len(turns), turns.min(), turns.max()) == (4000, 1, 8)
    assert turns.mean() == pytest.approx(4.5, rel=0.03)
    later = load.follows >= 0
    think_s = load.arrival_ps[later] / PS_PER_S
    assert (think_s.mean(), think_s.std()) == (pytest.approx(5, rel=0.03), pytest.approx(4, rel=0.1))
    gaps_s = np.diff(np.sort(load.arrival_ps[~later])) / PS_PER_S
    assert gaps_s.mean() == pytest.approx(1 / 3, rel=0.05)


def test_no_context_exceeds_its_maximum_and_none_is_cut_short_without_need() -> None:
    free, bound = built(prefix=PREFIX), built(prefix=PREFIX, max_context=1200)
    context = free.prompt_tokens + free.output_tokens
    assert (bound.prompt_tokens + bound.output_tokens).max() <= 1200
    fits = context <= 1200
    first = turn_of(free) == 0
    assert len(bound) == int((fits | first).sum()) < len(free)
    tiny = built(prefix=PREFIX, max_context=2)
    assert (tiny.prompt_tokens.max(), tiny.output_tokens.max(), tiny.follows.max()) == (1, 1, -1)


def test_requests_that_follow_come_after_those_they_follow_and_all_in_order_of_their_earliest_arrival() -> None:
    load = built()
    assert (load.follows < np.arange(len(load))).all()
    earliest = load.earliest_ps()
    assert (np.diff(earliest) >= 0).all()
    later = load.follows >= 0
    assert (earliest[later] == earliest[load.follows[later]] + load.arrival_ps[later]).all()
    assert (earliest[~later] == load.arrival_ps[~later]).all()


def test_a_session_ends_by_itself_or_is_the_last_and_cut_by_the_number_of_requests() -> None:
    whole, cut = built(num_sessions=100), built(num_requests=250)
    assert len(cut) == 250
    sizes = np.bincount(cut.session)
    assert (np.bincount(whole.session)[: len(sizes) - 1] == sizes[:-1]).all()
    assert sizes[-1] <= np.bincount(whole.session)[len(sizes) - 1]
    timed = built(duration_s=20)
    starts = timed.arrival_ps[timed.follows < 0]
    assert starts.max() < 20 * PS_PER_S < timed.earliest_ps().max()


def test_sessions_mix_with_other_clients_by_their_share_of_the_arrivals() -> None:
    chat = {k: v for k, v in CHAT.items() if k != "arrival"} | {"share": 1, "slo_class": "critical", "tenant": "chat"}
    once = {"kind": "lengths", "input": 100, "output": 10, "share": 3, "slo_class": "batch"}
    load = build_workload(
        parse_workload({"clients": [once, chat], "arrival": CHAT["arrival"], "num_requests": 3000}), 1
    )
    assert len(load) == 3000
    of_chat = load.session >= 0
    assert (load.slo_class[of_chat] == load.slo_classes.index("critical")).all()
    assert (load.tenant[of_chat] == load.tenants.index("chat")).all()
    assert (load.follows[~of_chat] == -1).all()
    assert (load.session[load.follows[load.follows >= 0]] == load.session[load.follows >= 0]).all()
    sessions = len(np.unique(load.session[of_chat]))
    assert sessions / (sessions + (~of_chat).sum()) == pytest.approx(0.25, abs=0.03)


def test_streams_of_sessions_merge_and_stay_whole() -> None:
    one = CHAT | {"num_sessions": 40, "prefix": PREFIX}
    merged = build_workload(parse_workload({"clients": [one, one | {"tenant": "b"}]}), 0)
    alone = built(num_sessions=40, prefix=PREFIX)
    later = merged.follows >= 0
    assert (merged.session[merged.follows[later]] == merged.session[later]).all()
    assert (np.diff(merged.earliest_ps()) >= 0).all()
    assert len(np.unique(merged.session)) == 2 * len(np.unique(alone.session))
    grown = merged.prompt_tokens[merged.follows[later]] + merged.output_tokens[merged.follows[later]]
    assert (merged.prompt_tokens[later] > grown).all()


def test_the_memory_of_a_session_does_not_grow_with_the_square_of_its_turns() -> None:
    load = built(turns=200, first_input=10, input=10, output=10, num_sessions=20, prefix=PREFIX)
    assert len(load) == 4000
    assert len(load.contents) <= 21
    assert max(len(pieces) for pieces in load.contents) == 2


# -- when their turns arrive ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("routing", ["round-robin", "least-loaded", "session-affinity", "weighted"])
def test_a_turn_comes_when_its_user_has_thought_about_the_answer_before(routing: str) -> None:
    load = built(num_sessions=60)
    result = simulate(deployment(replicas=2, routing=policy(routing)), load)
    later = load.follows >= 0
    arrived, ended = arrived_ps(result), ended_ps(result)
    assert (arrived[later] == ended[load.follows[later]] + np.maximum(load.arrival_ps[later], 1)).all()
    assert (arrived[~later] == load.arrival_ps[~later]).all()
    summary = result.summary()
    assert (summary["offered"], summary["completed"], summary["unfinished"]) == (len(load), len(load), 0)


def test_a_refused_turn_is_followed_by_the_next() -> None:
    load = built(num_sessions=60, slo_class="sheddable", think_time_s=0.5)
    plan = deployment(max_model_len=900, admission=policy("token-bucket", refill_tokens_per_s=300.0))
    result = simulate(plan, load)
    summary = result.summary()
    assert summary["shed"] > 0
    assert summary["rejected"] > 0
    assert summary["completed"] + summary["shed"] + summary["rejected"] == len(load)
    refused = np.array(result.table.finish_ps) < 0
    later = load.follows >= 0
    after_refusal = later & refused[load.follows]
    arrived = arrived_ps(result)
    wait_ps = arrived[after_refusal] - arrived[load.follows[after_refusal]]
    assert after_refusal.any()
    assert (wait_ps == load.arrival_ps[after_refusal] + result.overhead.last_token_ps).all()


def test_sessions_go_on_through_flow_control_and_what_expires_there() -> None:
    flow = policy("static", ceiling=0.5, ttl_s=0.2, detector={"name": "concurrency-detector", "max_concurrency": 4})
    load = built(num_sessions=60, think_time_s=0.1, arrival={"process": "poisson", "rate_rps": 30})
    result = simulate(deployment(replicas=2, flow_control=flow), load)
    summary = result.summary()
    assert summary["expired"] > 0
    assert summary["completed"] + summary["expired"] == len(load)


def test_users_of_a_closed_loop_take_one_session_after_the_other() -> None:
    load = built(arrival={"process": "closed", "users": 5, "think_time_s": 2}, num_sessions=40)
    result = simulate(deployment(), load)
    arrived, ended = arrived_ps(result), ended_ps(result)
    begins = np.array([arrived[load.session == s].min() for s in range(40)])
    ends = np.array([ended[load.session == s].max() for s in range(40)])
    assert (np.sort(begins)[:5] == 0).all()
    busy = [int(((begins <= at) & (at < ends + 2 * PS_PER_S)).sum()) for at in begins]
    assert max(busy) == 5
    assert (np.sort(begins)[5:] == np.sort(ends)[:35] + 2 * PS_PER_S).all()


def test_a_time_limit_leaves_out_the_turns_that_never_came() -> None:
    load = built(num_sessions=60, time_limit_s=20)
    summary = simulate(deployment(), load).summary()
    assert summary["completed"] + summary["unfinished"] == summary["offered"] < len(load)


# -- what caches and routers make of them ---------------------------------------------------------------------------


def cached_by_arithmetic(load: Workload, block_size: int) -> np.ndarray:
    """Hits of each later turn in an endless cache: the full blocks of what had been computed, answer included."""
    later = load.follows >= 0
    before = load.follows[later]
    computed = load.prompt_tokens[before] + load.output_tokens[before] - 1  # the last token is never fed back
    return computed // block_size * block_size


@pytest.mark.parametrize("block_size", [1, 16, 64])
@pytest.mark.parametrize("async_scheduling", [True, False])
def test_the_hits_of_a_later_turn_are_the_full_blocks_of_the_turn_before(
    block_size: int, async_scheduling: bool
) -> None:
    load = built(num_sessions=30)
    plan = deployment(block_size=block_size, async_scheduling=async_scheduling)
    result = simulate(plan, load)
    cached = np.array(result.table.cached_tokens)
    later = load.follows >= 0
    assert cached[later].tolist() == cached_by_arithmetic(load, block_size).tolist()
    assert not cached[~later].any()
    assert (cached <= reusable_tokens(load)).all()


def test_without_prefix_caching_a_session_computes_everything_again() -> None:
    assert simulate(deployment(enable_prefix_caching=False), built()).summary()["prefix_hit_rate"] == 0


def test_session_affinity_hits_more_and_answers_sooner_than_round_robin() -> None:
    load = built(num_sessions=150, first_input=3000)

    def served(plan: Deployment) -> dict[str, Any]:
        return simulate(plan, load).summary()

    scattered, affine = (
        served(deployment(replicas=4, routing=policy(name))) for name in ("round-robin", "session-affinity")
    )
    assert affine["prefix_hit_rate"] > 1.3 * scattered["prefix_hit_rate"]
    assert affine["ttft_ms"]["mean"] < scattered["ttft_ms"]["mean"]


def test_a_session_stays_on_its_replica_and_others_are_told_apart_by_tenant() -> None:
    load = built(num_sessions=30, tenant="all the same")
    result = simulate(deployment(replicas=3, routing=policy("session-affinity")), load)
    replica = np.array(result.table.replica)
    assert (replica[load.follows >= 0] == replica[load.follows[load.follows >= 0]]).all()
    assert len(set(replica.tolist())) == 3
    table = RequestTable(load)
    assert RequestView(table, 0).session == int(load.session[0])
    load.session = np.full(len(load), -1, np.int64)
    assert RequestView(RequestTable(load), 0).session == "all the same"


def test_a_run_of_sessions_is_the_same_bytes_again(tmp_path: Any) -> None:
    for name in ("a", "b"):
        plan = deployment(replicas=2, routing=policy("weighted"))
        simulate(plan, built(seed=3), 3).requests_csv(tmp_path / f"{name}.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    header, row = (tmp_path / "a.csv").read_text().splitlines()[:2]
    assert row.split(",")[header.split(",").index("session")] == str(built(seed=3).session[0])


# -- what the planner makes of them ---------------------------------------------------------------------------------


def test_faster_sessions_begin_sooner_and_think_as_long() -> None:
    load = built()
    quick = faster(load, 2.0)
    later = load.follows >= 0
    assert (quick.arrival_ps[later] == load.arrival_ps[later]).all()
    assert np.abs(quick.arrival_ps[~later] * 2 - load.arrival_ps[~later]).max() <= 2
    assert offered_rate(quick) == pytest.approx(2 * offered_rate(load))
    starts = load.arrival_ps[~later]
    sessions_rps = (len(starts) - 1) / ((starts.max() - starts.min()) / PS_PER_S)
    assert offered_rate(load) == pytest.approx(sessions_rps * len(load) / len(starts))


def test_the_example_needs_half_the_gpus_where_sessions_stay_with_their_cache() -> None:
    space = load_space(ROOT / "search_spaces" / "qwen3_14b_sessions.yaml")
    evaluator = make_evaluator(space)

    def feasible(routing: str, replicas: int) -> bool:
        parameters = next(
            candidate
            for choice in space.choices()
            if (candidate := space.parameters(choice))["routing"] == routing
            and candidate["replicas"] == replicas
            and candidate["kv_cache_dtype"] == "fp8"
        )
        return judge(space.constraints, evaluator(parameters).metrics)[1] is None

    assert feasible("session-affinity", 2)
    assert not feasible("round-robin", 2)
    assert feasible("round-robin", 4)


def test_the_first_requests_of_sessions_can_be_served_alone() -> None:
    load = built()
    window = first_requests(load, 50)
    assert (len(window), window.follows.tolist()) == (50, load.follows[:50].tolist())
    assert simulate(deployment(), window).summary()["completed"] == 50


def test_what_is_said_of_sessions_counts_them() -> None:
    load = built(num_sessions=500)
    found = describe(load)
    assert (found.requests, found.sessions) == (len(load), 500)
    assert found.turns is not None
    assert found.turns.mean == pytest.approx(len(load) / 500)
    assert found.rates_of_sessions
    assert found.rate_rps == pytest.approx(3, rel=0.15)
    assert found.gap_cv == pytest.approx(1, abs=0.15)
    later = load.follows >= 0
    before = load.follows[later]
    reused = (load.prompt_tokens[before] + load.output_tokens[before]).sum()
    assert found.reusable_fraction == pytest.approx(reused / load.prompt_tokens.sum())
    words = workload_words(CHAT | {"num_sessions": 500})
    assert "sessions of" in words
    assert "3 sessions/s" in words
    assert "500 sessions" in words


@pytest.mark.parametrize(
    ("fields", "path", "problem"),
    [
        ({"num_requests": 5, "num_sessions": 5}, "workload.num_sessions", "contradicts num_requests"),
        ({"turns": 0}, "workload.turns", "must be at least 1"),
        ({"think_time_s": {"dist": "gama", "mean": 3}}, "workload.think_time_s.dist", "must be one of constant"),
        ({"think_time_s": {"dist": "uniform", "min": 3, "max": 1}}, "workload.think_time_s.max", "at least min"),
        ({"think_time_s": -1}, "workload.think_time_s.value", "must be at least 0"),
        ({"max_context": 1}, "workload.max_context", "must be at least 2"),
        ({"turns": 20_000_001}, "workload.turns", "makes 2,000,000,100 requests"),
        ({"think_time_s": 7e6}, "workload.think_time_s", "makes sessions of more than"),
    ],
)  # fmt: skip
def test_a_wrong_session_spec_is_refused(fields: dict[str, Any], path: str, problem: str) -> None:
    with pytest.raises(InputError) as refused:
        built(**fields)
    assert refused.value.field == path
    assert problem in refused.value.problem


def test_two_requests_cannot_follow_the_same_one() -> None:
    load = built(num_sessions=10)
    crossed = replace(load, follows=np.where(np.arange(len(load)) > 0, 0, -1))
    with pytest.raises(InputError, match="that no other one follows"):
        simulate(deployment(), crossed)
