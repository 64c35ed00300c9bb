"""The stepper itself: timelines worked out on paper from docs/engine.md, and what must hold in every random case."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from sim.latency._base import StepTime
from tests.oracle import UNSET, OracleLink, OracleReplica, OracleRequest
from tests.random_cases import Case, random_case

FOREVER = 1 << 100


class PaperStepTime(StepTime):
    """100 ps a step, 10 a prefill token, 1 a token of context that a decode reads."""

    def decode(self, num_seqs: int) -> tuple[int, int, int]:
        return 100, 1, 0

    def mixed(
        self,
        num_decodes: int,
        decode_context: int,
        decode_window_context: int,
        num_prefills: int,
        prefill_tokens: int,
        prefill_pairs: int,
        prefill_window_pairs: int,
        prefill_context: int,
        num_sampled: int,
    ) -> int:
        return 100 + decode_context + 10 * prefill_tokens


def run(*requests: OracleRequest, step_time: StepTime | None = None, **settings: Any) -> OracleReplica:
    """The replica after all requests, numbered in the order given, have finished."""
    defaults: dict[str, Any] = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 1000,
        "max_model_len": 1000,
        "block_size": 4,
        "num_blocks": 100,
        "enable_prefix_caching": True,
        "async_scheduling": False,
        "long_prefill_token_threshold": 0,
        "scheduling": "fcfs",
        "preemption": "fcfs",
    }
    replica = OracleReplica(step_time or PaperStepTime(), **(defaults | settings))
    for index, request in enumerate(requests):
        replica.enqueue(index, request)
    replica.advance(FOREVER)
    return replica


def times(request: OracleRequest) -> tuple[int, int, int]:
    return request.scheduled_ps, request.first_token_ps, request.finish_ps


def test_a_lone_request_prefills_and_then_decodes_one_token_a_step() -> None:
    request = OracleRequest(queue_ps=50, prompt_tokens=3, output_tokens=3)
    replica = run(request)
    # prefill 100 + 3 x 10, then contexts of 4 and 5
    assert times(request) == (50, 50 + 130, 50 + 130 + 104 + 105)
    assert replica.inter_token_ps == Counter({104: 1, 105: 1})
    assert (replica.steps, replica.busy_ps) == (3, 339)


def test_with_synchronous_scheduling_a_request_joins_at_the_first_boundary() -> None:
    first, second = OracleRequest(50, 3, 3), OracleRequest(60, 2, 1)
    run(first, second)
    # boundary at 180: decode with context 4 and a prefill of 2 tokens, 100 + 4 + 20
    assert times(second) == (180, 304, 304)
    assert times(first) == (50, 180, 304 + 105)


def test_with_asynchronous_scheduling_a_request_runs_one_step_later() -> None:
    first, second = OracleRequest(50, 3, 3), OracleRequest(60, 2, 1)
    run(first, second, async_scheduling=True)
    # at 180 the decode composed at 50 starts and takes 104; the step after it has both, 100 + 5 + 20
    assert times(second) == (180, 284 + 125, 284 + 125)
    assert times(first) == (50, 180, 284 + 125)


@pytest.mark.parametrize(("queue_ps", "scheduled_ps"), [(179, 180), (180, 180), (181, 284)])
def test_a_request_queued_exactly_at_a_boundary_is_seen_by_it(queue_ps: int, scheduled_ps: int) -> None:
    request = OracleRequest(queue_ps, 2, 1)
    run(OracleRequest(50, 3, 3), request)
    assert request.scheduled_ps == scheduled_ps


def test_a_finishing_request_keeps_its_seat_until_its_last_step_ends() -> None:
    first, second = OracleRequest(0, 3, 2), OracleRequest(0, 2, 1)
    run(first, second, async_scheduling=True, max_num_seqs=1)
    # the composition ahead at 130 finds the seat taken: nothing is composed until 234
    assert times(first) == (0, 130, 234)
    assert times(second) == (234, 354, 354)


def test_a_prompt_above_the_budget_is_prefilled_in_chunks() -> None:
    first, second = OracleRequest(0, 6, 2), OracleRequest(0, 3, 1)
    run(first, second, max_num_batched_tokens=4)
    # chunks: 4 | 2 and 2 | decode with context 7 and 1
    assert times(first) == (0, 280, 280 + 117)
    assert times(second) == (140, 397, 397)


def test_the_long_prefill_threshold_lets_a_short_prompt_go_beside_a_long_one() -> None:
    first, second = OracleRequest(0, 6, 2), OracleRequest(0, 3, 1)
    run(first, second, max_num_batched_tokens=4, long_prefill_token_threshold=2)
    # chunks: 2 and 2 | 2 and 1 | 2 | decode with context 7
    assert times(second) == (0, 270, 270)
    assert times(first) == (0, 390, 497)


def test_the_last_to_come_is_preempted_recomputes_and_keeps_its_first_token() -> None:
    first, second = OracleRequest(0, 3, 4), OracleRequest(0, 3, 3)
    replica = run(first, second, block_size=2, num_blocks=4, enable_prefix_caching=False)
    # at 160 + 108 = 268 the first needs a third block; the second is back at 479 with 3 + 2 tokens to recompute
    assert times(first) == (0, 160, 268 + 105 + 106)
    assert times(second) == (0, 160, 479 + 150)
    assert (first.preemptions, second.preemptions) == (0, 1)
    assert replica.inter_token_ps == Counter({108: 2, 105: 1, 106: 1, 629 - 268: 1})
    assert (replica.hit_tokens, replica.looked_up_tokens) == (0, 3 + 3 + 5)


def test_a_preempted_request_finds_those_of_its_blocks_that_were_not_taken() -> None:
    first, second = OracleRequest(0, 3, 4), OracleRequest(0, 3, 3)
    replica = run(first, second, block_size=2, num_blocks=4)
    # its second block is the first to be reused, its first block is left: 3 of 5 tokens to recompute
    assert times(second) == (0, 160, 479 + 130)
    assert second.cached_tokens == 0
    assert (replica.hit_tokens, replica.looked_up_tokens) == (2, 3 + 3 + 5)


def test_the_least_urgent_gives_way_even_when_it_is_the_one_that_needs_the_block() -> None:
    first, second = OracleRequest(0, 3, 4, priority=1), OracleRequest(0, 3, 3, priority=0)
    run(first, second, block_size=2, num_blocks=4, enable_prefix_caching=False, preemption="priority")
    # at 268 the first is its own victim, and the composition is made again without it
    assert times(second) == (0, 160, 268 + 105)
    assert times(first) == (0, 160, 373 + 150 + 106)
    assert (first.preemptions, second.preemptions) == (1, 0)


def test_a_victim_already_scheduled_is_unscheduled_though_it_were_its_last_token() -> None:
    first, second = OracleRequest(0, 2, 3, priority=1), OracleRequest(0, 3, 3, priority=0)
    run(first, second, block_size=2, num_blocks=4, enable_prefix_caching=False, preemption="priority")
    # 150, then contexts 3 and 4; at 257 only the second runs; at 362 the first recomputes 2 + 2 tokens
    assert times(second) == (0, 150, 257 + 105)
    assert times(first) == (0, 150, 362 + 140)


def test_a_shared_prefix_is_computed_once() -> None:
    first = OracleRequest(0, 10, 1, pieces=((1, 8),))
    second = OracleRequest(200, 10, 1, pieces=((1, 8),))
    whole = OracleRequest(320, 8, 1, pieces=((1, 8),))
    shorter = OracleRequest(460, 10, 1, pieces=((1, 6),))
    run(first, second, whole, shorter)
    assert (first.cached_tokens, first.finish_ps) == (0, 200)
    assert (second.cached_tokens, second.finish_ps) == (8, 200 + 120)
    assert (whole.cached_tokens, whole.finish_ps) == (4, 320 + 140), "one token must be computed: the last block is"
    assert (shorter.cached_tokens, shorter.finish_ps) == (4, 460 + 160), "the second block ends in private tokens"


def test_requests_of_one_composition_share_a_prefix() -> None:
    first, second = OracleRequest(0, 10, 1, pieces=((1, 8),)), OracleRequest(0, 10, 1, pieces=((1, 8),))
    run(first, second)
    assert (first.cached_tokens, second.cached_tokens) == (0, 8)
    assert times(first) == times(second) == (0, 220, 220)


def test_pieces_behind_different_pieces_are_different_content() -> None:
    first = OracleRequest(0, 9, 1, pieces=((1, 4), (2, 4)))
    other = OracleRequest(1000, 9, 1, pieces=((3, 4), (2, 4)))
    same = OracleRequest(2000, 9, 1, pieces=((1, 4), (2, 4)))
    joined = OracleRequest(3000, 9, 1, pieces=((1, 8),))
    run(first, other, same, joined)
    assert [r.cached_tokens for r in (first, other, same, joined)] == [0, 0, 8, 4]


def test_a_duplicate_block_is_not_cached() -> None:
    first, twin = OracleRequest(0, 8, 1, pieces=((1, 8),)), OracleRequest(0, 8, 1, pieces=((1, 8),))
    stranger = OracleRequest(1000, 8, 1)
    late = OracleRequest(2000, 9, 1, pieces=((1, 8),))
    run(first, twin, stranger, late, num_blocks=4)
    # free after the twins: the unused block, the second block, the twin's second block, the first block. The
    # stranger takes two of them, and with the second block its content is gone.
    assert twin.cached_tokens == 4
    assert late.cached_tokens == 4


@pytest.mark.parametrize(("scheduling", "order"), [("fcfs", [0, 1, 2]), ("priority", [2, 0, 1]), ("sjf", [1, 0, 2])])
def test_waiting_requests_are_admitted_in_the_order_of_the_policy(scheduling: str, order: list[int]) -> None:
    requests = [OracleRequest(0, 5, 1, priority=1), OracleRequest(0, 2, 1, priority=1), OracleRequest(0, 5, 1)]
    run(*requests, scheduling=scheduling, max_num_seqs=1)
    assert sorted(range(3), key=lambda i: requests[i].finish_ps) == order


def test_what_can_never_run_is_rejected() -> None:
    too_long, too_big, fits = OracleRequest(0, 10, 7), OracleRequest(0, 10, 4), OracleRequest(0, 10, 3)
    replica = run(too_long, too_big, fits, max_model_len=16, num_blocks=3)
    assert [r.rejected for r in (too_long, too_big, fits)] == [True, True, False]
    assert fits.finish_ps != UNSET
    assert replica.next_boundary_ps() is None


def test_a_step_takes_at_least_a_picosecond() -> None:
    class Nothing(PaperStepTime):
        def decode(self, num_seqs: int) -> tuple[int, int, int]:
            return 0, 0, 0

        def mixed(self, *_: int, **__: int) -> int:  # type: ignore[override]
            return 0

    request = OracleRequest(7, 3, 3)
    run(request, step_time=Nothing())
    assert times(request) == (7, 8, 10)


def test_windowed_contexts_count_up_to_the_window() -> None:
    class Windowed(PaperStepTime):
        window = 3

        def decode(self, num_seqs: int) -> tuple[int, int, int]:
            return 100, 1, 1000

        def mixed(self, *_: int, prefill_pairs: int, prefill_window_pairs: int, **__: int) -> int:  # type: ignore[override]
            return prefill_pairs + 1000 * prefill_window_pairs

    request = OracleRequest(0, 5, 2)
    run(request, step_time=Windowed(), max_num_batched_tokens=4)
    # queries see 1 2 3 4 | 5 keys, in the window 1 2 3 3 | 3; the decode 6, in the window 3
    assert times(request) == (0, 9010 + 3005, 9010 + 3005 + 3106)


def remote(request: OracleRequest, tokens: int, link: OracleLink) -> OracleRequest:
    request.remote_tokens, request.link = tokens, link
    return request


def slow_link() -> OracleLink:
    """20 ps and 10 ps a token."""
    return OracleLink(bytes_per_s=10**12, bytes_per_token=10, latency_ps=20)


def test_a_request_whose_prompt_lies_elsewhere_loads_it_and_computes_its_last_token() -> None:
    request = remote(OracleRequest(0, 6, 2), 6, slow_link())
    run(request)
    # the load ends at 20 + 5 x 10; one token and then a decode with context 7
    assert times(request) == (70, 70 + 110, 70 + 110 + 107)


def test_loads_share_their_link_and_nobody_waits_for_those_who_load() -> None:
    link = slow_link()
    first, second = remote(OracleRequest(0, 6, 1), 6, link), remote(OracleRequest(0, 6, 1), 6, link)
    third = OracleRequest(0, 2, 3)
    run(first, second, third)
    assert link.transfers == [(0, 70), (70, 140)]
    # steps: third's prefill to 120 | its decode and first's last token, 100 + 3 + 10 | decode and second's
    assert times(third) == (0, 120, 233 + 114)
    assert times(first) == (120, 233, 233)
    assert times(second) == (233, 347, 347)


def test_a_prefix_that_another_loads_is_waited_for_and_not_loaded_again() -> None:
    link = slow_link()
    first, second = remote(OracleRequest(0, 9, 1, pieces=((1, 9),)), 9, link), OracleRequest(0, 9, 1, pieces=((1, 9),))
    replica = run(first, second)
    assert link.transfers == [(0, 100)]
    assert (second.scheduled_ps, second.cached_tokens, first.cached_tokens) == (100, 8, 0)
    assert (replica.hit_tokens, replica.loaded_tokens) == (8, 8)


def test_what_the_own_cache_holds_does_not_travel() -> None:
    link = slow_link()
    first, second = (
        OracleRequest(0, 9, 1, pieces=((1, 9),)),
        remote(OracleRequest(1000, 12, 1, pieces=((1, 9),)), 12, link),
    )
    run(first, second)
    assert link.transfers == [(1000, 1000 + 20 + 30)]


def in_host_memory(**settings: Any) -> tuple[OracleReplica, OracleRequest]:
    """The third request asks for the first's 12 tokens when the second has taken their blocks."""
    first, third = (OracleRequest(at, 13, 1, pieces=((1, 12),)) for at in (0, 2000))
    return run(first, OracleRequest(1000, 16, 1), third, num_blocks=4, **settings), third


def test_what_was_evicted_is_loaded_from_the_tier_that_it_went_to() -> None:
    replica, request = in_host_memory(tiers=((10, (10**12, 2, 20)),))
    # 20 + 12 x 2 for the load, 100 + 10 for the last token; 100 + 130 without
    assert times(request) == (2044, 2154, 2154)
    assert (request.cached_tokens, request.tier_tokens, replica.tier_tokens) == (0, [12], [12])


def test_what_is_as_fast_computed_is_not_loaded() -> None:
    _, request = in_host_memory(tiers=((10, (10**12, 10, 0)),))
    assert times(request) == (2000, 2230, 2230)
    assert request.tier_tokens == [0]


def test_what_a_tier_has_no_room_for_goes_down_and_what_was_used_last_stays() -> None:
    # The second's blocks take the first's from its end: its last block came first, and goes on to the second tier.
    replica, request = in_host_memory(tiers=((2, (10**12, 1, 0)), (10, (10**12, 1, 20))))
    assert request.tier_tokens == [8, 4]
    # both links at once: 20 + 4 x 1
    assert times(request) == (2024, 2134, 2134)
    assert not any(content in tier.blocks for tier in replica.tiers for content in replica.cached)


def test_a_prefix_is_loaded_as_far_as_that_pays() -> None:
    _, request = in_host_memory(tiers=((2, (10**12, 1, 0)), (10, (10**12, 1, 500))))
    assert request.tier_tokens == [8, 0]
    assert times(request) == (2008, 2158, 2158)


@pytest.mark.parametrize("first_seed", range(0, 300, 100))
def test_a_link_carries_one_transfer_at_a_time_and_tiers_hold_what_they_can(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 100):
        replica, requests = as_they_come(random_case(seed, loads=True))
        replica.advance(FOREVER)
        links = {id(r.link): r.link for r in requests if r.link} | {id(t.link): t.link for t in replica.tiers}
        for link in links.values():
            for (_, end_ps), (start_ps, _) in pairwise(link.transfers):
                assert start_ps >= end_ps
        found = [*replica.cached, *(content for tier in replica.tiers for content in tier.blocks)]
        assert len(found) == len(set(found))
        assert all(len(tier.blocks) <= tier.num_blocks for tier in replica.tiers)


def test_two_who_load_never_wait_for_each_others_blocks() -> None:
    link = slow_link()
    requests = [remote(OracleRequest(0, 12, 4), 5, link) for _ in range(3)]
    run(*requests, num_blocks=4, max_num_batched_tokens=4)
    assert all(request.finish_ps > 0 for request in requests)


def without_last_block(key: tuple, block_size: int) -> tuple:
    """The content before a block's own tokens, from the content up to its end."""
    left = list(key)
    while block_size:
        content_id, tokens = left.pop()
        if tokens > block_size:
            left.append((content_id, tokens - block_size))
        block_size -= min(tokens, block_size)
    return tuple(left)


def check_blocks(replica: OracleReplica) -> None:
    """Blocks are conserved, each request holds what its tokens need, and a cached block's predecessor is cached."""
    held = Counter(block for request in (*replica.running, *replica.aside) for block in request.blocks)
    assert len(held) + len(replica.free) == replica.num_blocks
    assert not any(block in replica.free for block in held)
    assert all(block.holders == count for block, count in held.items())
    for key, block in replica.cached.items():
        assert block.key == key
        before = without_last_block(key, replica.block_size)
        assert before == () or before in replica.cached
    for request in replica.running:
        needed = replica.blocks_for(request.computed)
        assert len(request.blocks) == max(needed, replica.blocks_for(request.target) if request.load_end_ps else 0)
    for request in replica.aside:
        assert len(request.blocks) == replica.blocks_for(request.target)
    assert replica.used_blocks == len(held)
    assert len(replica.running) <= replica.max_num_seqs


def as_they_come(case: Case) -> tuple[OracleReplica, list[OracleRequest]]:
    replica, requests = OracleReplica(case.step_time, **case.settings), case.oracle_requests()
    for index, request in enumerate(requests):
        replica.advance(request.queue_ps)
        replica.enqueue(index, request)
    return replica, requests


@pytest.mark.parametrize("first_seed", range(0, 300, 100))
def test_blocks_are_conserved_at_every_boundary_and_free_at_the_end(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 100):
        replica, _ = as_they_come(random_case(seed, loads=seed % 2 > 0))
        while (boundary_ps := replica.next_boundary_ps()) is not None:
            replica.advance(boundary_ps + 1)
            check_blocks(replica)
        assert replica.used_blocks == replica.num_running == replica.num_waiting == 0


def test_every_request_is_finished_once_or_rejected_and_time_goes_forward() -> None:
    for seed in range(300):
        replica, requests = as_they_come(random_case(seed, loads=seed % 2 > 0))
        replica.advance(FOREVER)
        served = [request for request in requests if not request.rejected]
        for request in served:
            assert request.queue_ps <= request.scheduled_ps < request.first_token_ps <= request.finish_ps
            assert request.emitted == request.output_tokens
        assert all(request.finish_ps == UNSET for request in requests if request.rejected)
        assert replica.inter_token_ps.total() == sum(request.output_tokens - 1 for request in served)
        assert replica.hit_tokens <= replica.looked_up_tokens


def test_what_happens_does_not_depend_on_when_one_looks() -> None:
    for seed in range(100):
        case = random_case(seed, loads=seed % 2 > 0)
        coming, requests = as_they_come(case)
        coming.advance(FOREVER)
        known, the_same = OracleReplica(case.step_time, **case.settings), case.oracle_requests()
        for index, request in enumerate(the_same):
            known.enqueue(index, request)
        known.advance(FOREVER)
        assert [times(r) for r in requests] == [times(r) for r in the_same]
        assert (coming.steps, coming.busy_ps, coming.inter_token_ps) == (
            known.steps,
            known.busy_ps,
            known.inter_token_ps,
        )
