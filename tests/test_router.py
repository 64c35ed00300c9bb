"""The router's formulas, one by one, with their quirks; nothing here simulates more than it must."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cluster import ReplicaView, ReplicaViews, make_policy
from sim.cluster.flow_control.queue import NEVER, GatewayQueue
from sim.cluster.policies import RequestView
from sim.cluster.prefix_index import ApproximateIndex, BelievedCaches
from sim.cluster.routing.candidates import Candidates
from sim.cluster.routing.pickers import PICKERS
from sim.cluster.routing.prefix_affinity import PrefixCacheAffinityFilter
from sim.cluster.routing.scorers import SCORERS
from sim.cluster.saturation import make_detector
from sim.deployment import PolicySpec
from sim.engine.requests import RequestTable
from sim.errors import InputError
from sim.workload import Workload

MS = 1_000_000_000


def request(
    prompt: int = 640, *, priority: int = 0, tenant: str = "", pieces: tuple = (), index: int = 0
) -> RequestView:
    """A request of a workload of its own."""
    n = index + 1
    tenants = sorted({tenant, "other"})
    table = RequestTable(
        Workload(
            "one",
            np.arange(n, dtype=np.int64),
            np.full(n, prompt, dtype=np.int64),
            np.ones(n, dtype=np.int64),
            np.zeros(n, dtype=np.int64),
            contents=[pieces],
            priority=np.full(n, priority, dtype=np.int64),
            tenant=np.full(n, tenants.index(tenant), dtype=np.int64),
            tenants=tenants,
        )
    )
    return RequestView(table, index)


def views(**columns: list) -> ReplicaViews:
    count = len(next(iter(columns.values())))
    made = ReplicaViews([ReplicaView(num_blocks=1000) for _ in range(count)])
    for name, values in columns.items():
        for view, value in zip(made, values, strict=True):
            setattr(view, name, value)
    made.scrapes = 1
    return made


def scores(
    name: str, parameters: dict | None = None, *, prefix: list[int] | None = None, total: int = 640, **columns: list
) -> list[float]:
    replicas = views(**columns)
    given_prefix = prefix or [0] * len(replicas)
    scorer = SCORERS[name](**(parameters or {}))
    return scorer.scores(Candidates(request(), replicas, range(len(replicas)), given_prefix, total))


def policy(kind: str, name: str, **parameters: object) -> object:
    made = make_policy(kind, PolicySpec(name, parameters), kind)
    made.random = Random(1)
    return made


# -- scorers


def test_queue_scorer_is_relative_to_the_longest_and_shortest_queue() -> None:
    assert scores("queue-scorer", waiting=[0, 5, 10]) == [1.0, 0.5, 0.0]
    assert scores("queue-scorer", waiting=[1000, 1001]) == [1.0, 0.0]  # a difference of one is all the difference


@pytest.mark.parametrize(("name", "column"), [("queue-scorer", "waiting"), ("running-requests-size-scorer", "running")])
def test_equal_replicas_all_score_one(name: str, column: str) -> None:
    assert scores(name, **{column: [7, 7, 7]}) == [1.0, 1.0, 1.0]


def test_running_requests_scorer_looks_at_the_running() -> None:
    assert scores("running-requests-size-scorer", running=[10, 0], waiting=[0, 99]) == [0.0, 1.0]


def test_kv_scorer_is_what_is_free() -> None:
    assert scores("kv-cache-utilization-scorer", kv_usage=[0.0, 0.25, 1.0]) == [1.0, 0.75, 0.0]


def test_load_aware_scorer_gives_at_most_half_a_point() -> None:
    assert scores("load-aware-scorer", waiting=[0, 64, 128, 500]) == [0.5, 0.25, 0.0, 0.0]
    assert scores("load-aware-scorer", {"threshold": 10}, waiting=[5]) == [0.25]


def test_active_request_scorer_has_an_idle_plateau_and_a_busy_scale() -> None:
    assert scores("active-request-scorer", in_flight=[0, 5, 10]) == [1.0, 0.5, 0.0]
    busy = {"idle_threshold": 2, "max_busy_score": 0.5}
    assert scores("active-request-scorer", busy, in_flight=[2, 5, 10]) == [1.0, 0.25, 0.0]
    assert scores("active-request-scorer", busy, in_flight=[1, 2]) == [1.0, 1.0]


def test_token_load_scorer_counts_what_is_in_flight_and_what_is_not_cached() -> None:
    found = scores(
        "token-load-scorer", {"queue_threshold_tokens": 1000}, prefix=[0, 640, 0], in_flight_tokens=[0, 0, 5000]
    )
    assert found == pytest.approx([0.36, 1.0, 0.0])
    assert scores("token-load-scorer", in_flight_tokens=[0])[0] == pytest.approx(1 - 640 / 4194304)


def test_prefix_scorer_is_the_matched_share_unless_length_counts() -> None:
    assert scores("prefix-cache-scorer", prefix=[0, 320, 640], waiting=[0] * 3) == [0.0, 0.5, 1.0]
    long = {"match_length_weight": 0.5, "match_length_scale_tokens": 640}
    assert scores("prefix-cache-scorer", long, prefix=[320], waiting=[0]) == pytest.approx([0.5 * 0.25 + 0.5 * 0.5])
    assert scores("prefix-cache-scorer", prefix=[0], total=0, waiting=[0]) == [0.0]  # a prompt below one block


def test_no_hit_lru_scorer_takes_the_never_used_first_and_then_the_least_recent() -> None:
    scorer = SCORERS["no-hit-lru-scorer"]()
    cold = Candidates(request(), views(waiting=[0] * 4), range(4), [0] * 4, 640)
    assert scorer.scores(cold) == pytest.approx([1, 2 / 3, 1 / 3, 0])
    scorer.routed(cold, 1)
    scorer.routed(cold, 0)
    assert scorer.scores(cold) == pytest.approx([0, 1 / 3, 1, 2 / 3])  # 2 and 3 never used; then 1, then 0
    warm = Candidates(request(), views(waiting=[0] * 4), range(4), [64, 0, 0, 0], 640)
    assert scorer.scores(warm) == [0.5] * 4
    scorer.routed(warm, 2)  # a hit says nothing about cold prompts
    assert scorer.scores(cold)[2] == 1


def test_session_affinity_scorer_knows_where_the_session_was() -> None:
    scorer = SCORERS["session-affinity-scorer"]()
    mine = Candidates(request(tenant="mine"), views(waiting=[0, 0]), range(2), [0, 0], 640)
    assert scorer.scores(mine) == [0.0, 0.0]
    scorer.routed(mine, 1)
    assert scorer.scores(mine) == [0.0, 1.0]
    assert scorer.scores(Candidates(request(tenant="yours"), mine.replicas, range(2), [0, 0], 640)) == [0.0, 0.0]


# -- pickers, the filter, the profile


def test_max_score_picker_draws_uniformly_among_ties() -> None:
    random = Random(0)
    drawn = Counter(PICKERS["max-score-picker"]([1.0, 3.0, 2.0, 3.0], random) for _ in range(2000))
    assert set(drawn) == {1, 3}
    assert abs(drawn[1] - 1000) < 150


def test_random_picker_ignores_scores() -> None:
    random = Random(0)
    drawn = Counter(PICKERS["random-picker"]([0.0, 9.0], random) for _ in range(2000))
    assert abs(drawn[0] - 1000) < 150


def test_weighted_random_picker_draws_in_proportion() -> None:
    random = Random(0)
    drawn = Counter(PICKERS["weighted-random-picker"]([1.0, 3.0, 0.0], random) for _ in range(8000))
    assert drawn[2] == 0
    assert drawn[1] / drawn[0] == pytest.approx(3, rel=0.1)  # the greatest of U^(1/w) is drawn in proportion to w
    assert len({PICKERS["weighted-random-picker"]([0.0, 0.0], random) for _ in range(50)}) == 2


def test_affinity_filter_sticks_to_the_prefix_until_the_queue_there_is_18_s_longer() -> None:
    sticky = PrefixCacheAffinityFilter()
    limit = 18 * 15928

    def kept(prefix: list[int], tokens: list[int]) -> list[int]:
        return list(sticky.keep(Candidates(request(1000), views(in_flight_tokens=tokens), range(2), prefix, 1000)))

    assert kept([800, 0], [0, 0]) == [0]
    assert kept([799, 0], [0, 0]) == [0, 1]
    assert kept([1000, 0], [limit, 0]) == [0]
    assert kept([1000, 0], [limit + 20, 0]) == [0, 1]
    assert kept([1000, 900], [10 * limit, 0]) == [0, 1]


def test_the_profile_is_a_weighted_sum_of_clamped_scores_after_the_filter() -> None:
    weighted = policy("routing", "weighted", queue=1, kv=0, prefix=0, scorers={"active-request-scorer": 1.5})
    assert weighted.route(request(), views(waiting=[0, 4], in_flight=[10, 0]), 0.0) == 1  # 1 + 0 < 0 + 1.5
    weighted = policy("routing", "weighted", queue=2, kv=0, prefix=0, scorers={"active-request-scorer": 1.5})
    assert weighted.route(request(), views(waiting=[0, 4], in_flight=[10, 0]), 0.0) == 0
    weighted = policy("routing", "weighted", scorers={"tests.test_router:Boastful": 1, "active-request-scorer": 2})
    assert weighted.route(request(), views(in_flight=[9, 0]), 0.0) == 1  # 100 counts as 1


class Boastful(SCORERS["queue-scorer"]):
    """Claims more than a scorer may."""

    def scores(self, candidates: Candidates) -> list[float]:
        return [100.0, -100.0]


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"scorers": {"queue-scorr": 1}}, "scorers.queue-scorr"),
        ({"scorers": {"load-aware-scorer": {"treshold": 1}}}, "scorers.load-aware-scorer.treshold"),
        ({"scorers": {"load-aware-scorer": -1}}, "scorers.load-aware-scorer"),
        ({"scorers": 3}, "scorers"),
        ({"picker": "best"}, "picker"),
        ({"filter": "none-such"}, "filter"),
        ({"prefix_index": {"name": "approximate", "block_size_tokens": 0}}, "prefix_index.block_size_tokens"),
    ],
)
def test_a_wrong_profile_is_refused_with_its_path(parameters: dict, field: str) -> None:
    with pytest.raises(InputError) as refused:
        make_policy("routing", PolicySpec("weighted", parameters), "routing")
    assert refused.value.field == f"routing.{field}"


# -- the approximate prefix index


def test_blocks_are_of_64_tokens_at_least() -> None:
    assert ApproximateIndex(block_size_tokens=16).block_size_tokens == 64
    index = ApproximateIndex()
    short, replicas = request(127, pieces=((1, 127),)), views(waiting=[0, 0])
    index.matches(short, replicas)
    index.routed(short, 0)
    assert index.matches(short, replicas) == ([64, 0], 64)


def test_the_router_believes_in_a_cache_four_times_the_real_one() -> None:
    index = ApproximateIndex()  # auto_tune: as many entries as the engine has 16-token blocks
    replicas = views(waiting=[0, 0])
    whole = 1000 * 64
    real = replicas[0].num_blocks * replicas[0].block_size
    prompts = [request(real, pieces=((number, real),)) for number in range(5)]
    for prompt in prompts:
        index.matches(prompt, replicas)
        index.routed(prompt, 0)
    believed = sum(index.matches(prompt, replicas)[0][0] for prompt in prompts)
    assert whole - 64 * 2 <= believed <= whole == 4 * real


def test_a_match_goes_on_over_blocks_that_another_replica_holds() -> None:
    caches = BelievedCaches([4, 100], 1)
    caches.touch(((1, 4),), 4, 0)
    caches.touch(((1, 1),), 1, 1)
    caches.touch(((2, 1),), 1, 0)  # replica 0 is full: it forgets the first block of content 1
    assert caches.matches(((1, 4),), 4) == ({0: 3, 1: 1}, 4)  # which replica 1 holds, so that 0's others count
    caches.touch(((2, 2),), 2, 0)
    assert caches.matches(((1, 4),), 4) == ({1: 1}, 4)  # now nobody holds the second


class NaiveIndex:
    """Block by block: a set of LRUs and nothing shared."""

    def __init__(self, capacities: list[int]) -> None:
        self.capacities = capacities
        self.lru = [OrderedDict() for _ in capacities]

    @staticmethod
    def blocks(pieces: tuple, prompt: int, private: object) -> list[tuple]:
        names = [(piece, at) for piece, tokens in pieces for at in range(tokens)]
        names += [(private, at) for at in range(prompt - len(names))]
        return [tuple(names[: end + 1]) for end in range(prompt)]

    def touch(self, blocks: list[tuple], replica: int) -> None:
        for block in blocks:
            self.lru[replica][block] = None
            self.lru[replica].move_to_end(block)
            if len(self.lru[replica]) > self.capacities[replica]:
                self.lru[replica].popitem(last=False)

    def matches(self, blocks: list[tuple]) -> dict[int, int]:
        found: Counter = Counter()
        for block in blocks:
            holders = [replica for replica, lru in enumerate(self.lru) if block in lru]
            if not holders:
                break
            found.update(holders)
        return dict(found)


contents = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), max_size=4).map(tuple)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(contents, st.integers(0, 6), st.integers(0, 2)), max_size=25),
    st.lists(st.integers(1, 30), min_size=3, max_size=3),
)
def test_the_index_by_runs_is_the_index_by_blocks(prompts: list, capacities: list[int]) -> None:
    naive, index = NaiveIndex(capacities), BelievedCaches(capacities, 1)
    for number, (pieces, private, replica) in enumerate(prompts):
        prompt = sum(tokens for _, tokens in pieces) + private
        blocks = naive.blocks(pieces, prompt, ("private", number))
        assert index.matches(pieces, prompt) == (naive.matches(blocks), prompt)
        naive.touch(blocks, replica)
        index.touch(pieces, prompt, replica)
        assert index.entries == [len(lru) for lru in naive.lru]


# -- other routing policies


def test_power_of_two_takes_the_emptier_of_two_and_never_the_fullest() -> None:
    chooses = policy("routing", "power-of-two")
    drawn = Counter(chooses.route(request(), views(in_flight=[9, 0, 5]), 0.0) for _ in range(3000))
    assert 0 not in drawn
    assert drawn[1] == pytest.approx(2000, rel=0.1)  # it is in two of the three pairs


def test_least_outstanding_tokens_counts_tokens_and_not_requests() -> None:
    chooses = policy("routing", "least-outstanding-tokens")
    assert chooses.route(request(), views(in_flight=[1, 9], in_flight_tokens=[900, 90]), 0.0) == 1


def test_a_session_stays_where_it_began() -> None:
    chooses = policy("routing", "session-affinity")
    assert chooses.route(request(tenant="a"), views(in_flight=[3, 0]), 0.0) == 1
    assert chooses.route(request(tenant="a"), views(in_flight=[0, 9]), 0.0) == 1
    assert chooses.route(request(tenant="b"), views(in_flight=[0, 9]), 0.0) == 0


def test_vllm_counts_a_waiting_request_like_four_running_ones_and_forgets_its_own_at_the_scrape() -> None:
    chooses = policy("routing", "vllm-dp")
    replicas = views(waiting=[1, 0], running=[0, 3])
    assert chooses.route(request(), replicas, 0.0) == 1  # 4 against 3
    assert chooses.route(request(), replicas, 0.0) == 0  # 4 against 3 + 4
    replicas.scrapes += 1
    assert chooses.route(request(), replicas, 0.0) == 1


def test_cache_aware_goes_by_prefix_only_while_loads_are_balanced() -> None:
    chooses = policy("routing", "cache-aware")
    prompt = request(100, pieces=((1, 100),))
    first = chooses.route(prompt, views(in_flight=[0, 0]), 0.0)
    loads = [0, 0]
    loads[first] = 64
    assert chooses.route(prompt, views(in_flight=loads), 0.0) == first  # a difference of 64 is balanced
    loads[first] = 65
    assert chooses.route(prompt, views(in_flight=loads), 0.0) != first
    assert chooses.route(request(100, pieces=((2, 100),)), views(in_flight=[200, 201]), 0.0) in (0, 1)


# -- admission


def test_the_admitter_sheds_all_from_a_saturation_of_0_3196_on() -> None:
    admitter = policy("admission", "probabilistic")
    certain = 300 ** (-1 / 5)
    assert 0.3195 < certain < 0.3196
    assert admitter.shed_probability(0.3196) == 1.0
    assert 0.99 < admitter.shed_probability(0.3195) < 1.0
    assert admitter.shed_probability(0.2) == pytest.approx(300 * 0.2**5)
    draws = sum(
        not admitter.admit(request(priority=2), views(waiting=[1, 1], kv_usage=[0.1, 0.1]), 0.0) for _ in range(4000)
    )
    assert draws / 4000 == pytest.approx(
        300 * 0.2**5, abs=0.02
    )  # saturation 1 / 5 of the queue, 0.1 / 0.8 of the cache
    assert all(admitter.admit(request(priority=0), views(waiting=[99]), 0.0) for _ in range(50))


def test_saturation_is_a_mean_of_maxima_and_so_one_idle_replica_hides_a_full_one() -> None:
    detector = make_detector("utilization-detector", "d")
    assert detector.saturation(views(waiting=[5, 0], kv_usage=[0.0, 0.8])) == pytest.approx(1.0)
    detector = make_detector("utilization-detector", "d")
    assert detector.saturation(views(waiting=[10, 0])) == pytest.approx(1.0)


def test_a_metric_older_than_200_ms_counts_as_saturated() -> None:
    detector = make_detector("utilization-detector", "d")
    replicas = views(waiting=[0])
    replicas.now_ps = 200 * MS
    assert detector.saturation(replicas) == 0.0
    replicas.now_ps += 1
    assert detector.saturation(replicas) == 1.0


@pytest.mark.parametrize(("mode", "expected"), [("requests", 0.5), ("tokens", 0.55), ("hybrid", 0.75)])
def test_concurrency_detector_has_three_modes(mode: str, expected: float) -> None:
    detector = make_detector({"name": "concurrency-detector", "concurrency_mode": mode}, "d")
    assert detector.saturation(views(in_flight=[50, 50], in_flight_tokens=[1_000_000, 100_000])) == pytest.approx(
        expected
    )


def test_reject_negative_refuses_only_the_sheddable_and_only_when_full() -> None:
    rule = policy("admission", "reject-negative")
    full, free = views(waiting=[5]), views(waiting=[4])
    assert rule.admit(request(priority=-4), full, 0.0)
    assert not rule.admit(request(priority=2), full, 0.0)
    free.scrapes = 2
    assert rule.admit(request(priority=2), free, 0.0)


def test_tier_shed_counts_a_scraped_request_twice() -> None:
    rule = policy("admission", "tier-shed", overload_threshold=10, min_priority=3)
    busy = views(waiting=[0, 1], running=[0, 5], in_flight=[0, 6])
    assert rule.admit(request(priority=-3), busy, 0.0)
    assert not rule.admit(request(priority=1), busy, 0.0)  # 1 + 5 + 6 > 10
    assert rule.admit(request(priority=1), views(waiting=[0], running=[5], in_flight=[5]), 0.0)


def test_latency_slo_sheds_what_would_be_late_on_every_replica() -> None:
    rule = policy("admission", "latency-slo", ttft_ms=1000)
    assert rule.admit(request(928, priority=2), views(in_flight_tokens=[15000, 99999]), 0.0)
    assert not rule.admit(request(929, priority=2), views(in_flight_tokens=[15000, 99999]), 0.0)
    assert rule.admit(request(929, priority=-3), views(in_flight_tokens=[99999]), 0.0)


def test_a_bucket_counts_prompt_tokens_or_requests() -> None:
    bucket = policy("admission", "token-bucket", capacity_tokens=1000, refill_tokens_per_s=100)
    assert [bucket.admit(request(600), views(waiting=[0]), now) for now in (0.0, 1.0, 2.0)] == [True, False, True]
    bucket = policy("admission", "token-bucket", capacity_tokens=1, refill_tokens_per_s=1, cost="requests")
    assert [bucket.admit(request(600), views(waiting=[0]), now) for now in (0.0, 0.5, 1.0)] == [True, False, True]


# -- flow control


def test_static_limit_is_open_below_one() -> None:
    rule = policy("flow_control", "static")
    assert [rule.opens_every(0, 3, s) for s in (0.0, 0.99, 1.0)] == [1, 1, 0]


def test_holdback_ceilings_fall_evenly() -> None:
    rule = policy("flow_control", "priority-holdback", min_ceiling=0.4)
    assert [rule.ceiling(i, 4) for i in range(4)] == pytest.approx([1.0, 0.8, 0.6, 0.4])
    assert rule.ceiling(0, 1) == 1.0
    with pytest.raises(InputError, match="min_ceiling"):
        policy("flow_control", "priority-holdback")


def test_soft_ceiling_holds_nothing_back_below_saturation_0_6() -> None:
    rule = policy("flow_control", "soft-reflective")
    for saturation in np.linspace(0, 0.5999, 100):
        assert [rule.opens_every(i, 4, saturation) for i in range(4)] == [1, 1, 1, 1]
    assert rule.opens_every(3, 4, 0.61) == 2
    assert rule.opens_every(3, 4, 0.9) == 9
    assert rule.opens_every(0, 4, 0.99) == 1
    assert [rule.opens_every(i, 4, 1.0) for i in range(4)] == [0, 0, 0, 0]  # the most urgent, too


def queue_of(
    rule: str, priorities: list[int], tenants: list[str] | None = None, **parameters: object
) -> tuple[GatewayQueue, RequestTable]:
    n = len(priorities)
    names = sorted(set(tenants or [""]))
    load = Workload(
        "held",
        np.arange(n, dtype=np.int64) * MS,
        np.full(n, 10, dtype=np.int64),
        np.ones(n, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        priority=np.array(priorities, dtype=np.int64),
        tenant=np.array([names.index(t) for t in tenants or [""] * n], dtype=np.int64),
        tenants=names,
    )
    table = RequestTable(load)
    return GatewayQueue(policy("flow_control", rule, **parameters), table), table


def test_a_cycle_sends_at_most_one_and_the_most_urgent_first() -> None:
    queue, table = queue_of("static", [2, -4, 2])
    free = views(waiting=[0])
    for index in range(3):
        queue.push(RequestView(table, index), 0)
    assert [queue.cycle(free) for _ in range(4)] == [1, 0, 2, -1]


def test_an_empty_closed_band_stops_the_cycle() -> None:
    queue, table = queue_of("priority-holdback", [-4, -3, 2], min_ceiling=0.0, max_ceiling=0.5)
    queue.push(RequestView(table, 2), 0)  # nothing more urgent waits
    assert queue.cycle(views(waiting=[3])) == -1  # saturation 0.6 is over the first band's ceiling
    assert queue.next_cycle_ps(views(waiting=[3]), live=False) == 201 * MS  # nothing changes before the scrape is stale


def test_the_most_urgent_band_is_blocked_at_saturation_one() -> None:
    for rule in ("static", "soft-reflective"):
        queue, table = queue_of(rule, [-4, 2])
        queue.push(RequestView(table, 0), 0)
        assert queue.cycle(views(waiting=[5])) == -1
        assert queue.cycle(views(waiting=[4])) == -1  # the detector keeps what the last scrape said
        fresh = views(waiting=[4])
        fresh.scrapes = 2
        assert queue.cycle(fresh) == 0


def test_cycles_that_can_send_nothing_are_skipped() -> None:
    queue, table = queue_of("soft-reflective", [-4, 2])
    queue.push(RequestView(table, 1), 0)
    replicas = views(waiting=[0], kv_usage=[0.9 * 0.8])
    planned = queue.next_cycle_ps(replicas, live=False)
    assert planned == 8 * MS  # every 9th cycle; one was when it was queued
    for clock in range(1, 8):
        replicas.now_ps = clock * MS
        assert queue.cycle(replicas) == -1
    replicas.now_ps = planned
    assert queue.cycle(replicas) == 1


def test_requests_expire_and_full_bands_refuse() -> None:
    queue, table = queue_of("static", [0, 0, 0], ttl_s=0.01, max_requests=2)
    assert [queue.push(RequestView(table, i), i * MS) for i in range(3)] == [True, True, False]
    assert queue.next_expiry_ps() == 10 * MS
    assert queue.expire(10 * MS) == [0]
    assert queue.cycle(views(waiting=[0])) == 1
    assert queue.next_expiry_ps() == NEVER


def test_fairness_round_robin_serves_tenants_in_turn() -> None:
    tenants = ["a", "a", "a", "b", "b"]
    for fairness, expected in (("round-robin", [0, 3, 1, 4, 2]), ("global-strict", [0, 1, 2, 3, 4])):
        queue, table = queue_of("static", [0] * 5, tenants, fairness=fairness)
        for index in range(5):
            queue.push(RequestView(table, index), 0)
        assert [queue.cycle(views(waiting=[0])) for _ in range(5)] == expected


def test_orderings_by_deadline() -> None:
    by = {"a": 100, "b": 1}
    for ordering, expected in (
        ("fcfs", [0, 1, 2]),
        ("edf", [0, 1, 2]),
        ({"name": "slo-deadline", "by": by}, [1, 2, 0]),
    ):
        queue, table = queue_of("static", [0] * 3, ["a", "b", "b"], ordering=ordering)
        for index in range(3):
            queue.push(RequestView(table, index), 0)
        assert [queue.cycle(views(waiting=[0])) for _ in range(3)] == expected


def test_power_k_saturation_is_the_paper_s_curve() -> None:
    curve = policy("admission", "probabilistic", power=2, k=4)
    assert curve.shed_probability(0.25) == 0.25
    assert math.isclose(curve.shed_probability(0.5), 1.0)


def test_without_flow_control_its_parameters_have_no_meaning() -> None:
    with pytest.raises(InputError, match=r"ttl_s: has no meaning"):
        policy("flow_control", "none", ttl_s=3.0)
