"""The sums of the `weighted` policy are what their docstrings say, and one look at all caches is a look at each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster.policies import ReplicaView, ReplicaViews, RequestView
from sim.cluster.routing.arithmetic import add_scores, busy_scores, greatest, shares, token_scores
from sim.engine.blocks import BlockPool, ContentPaths
from sim.engine.requests import RequestTable
from sim.workload import build_workload, parse_workload

SCORES = st.lists(st.floats(-2, 3), min_size=1, max_size=20)
COUNTS = st.lists(st.integers(0, 10**7), min_size=1, max_size=20)


@given(SCORES, st.floats(0, 10))
def test_scores_are_clamped_weighted_and_added(scores: list[float], weight: float) -> None:
    sums = [float(position) for position in range(len(scores))]
    expected = [total + weight * min(1.0, max(0.0, score)) for total, score in zip(sums, scores, strict=True)]
    assert add_scores(sums, weight, scores) == expected
    assert sums == [float(position) for position in range(len(scores))]


def test_a_scorer_that_forgets_a_candidate_is_told_so() -> None:
    with pytest.raises(ValueError, match="2 scores for 3 candidates"):
        add_scores([0.0, 0.0, 0.0], 1.0, [1.0, 1.0])


@given(SCORES)
def test_the_greatest_are_all_that_equal_the_maximum(scores: list[float]) -> None:
    assert greatest(scores) == [i for i, score in enumerate(scores) if score == max(scores)]


@given(COUNTS, st.integers(1, 10**7), st.integers(0, 10**7))
def test_token_scores_fall_with_the_tokens_to_do(counts: list[int], limit: int, prompt: int) -> None:
    cached = [min(prompt, count) for count in reversed(counts)]
    expected = [1 - min(x + prompt - c, limit) / limit for x, c in zip(counts, cached, strict=True)]
    assert token_scores(counts, cached, prompt, float(limit)) == expected
    assert shares(cached, prompt + 1) == [c / (prompt + 1) for c in cached]


@given(COUNTS, st.integers(0, 100))
def test_busy_scores_are_one_up_to_the_idle_threshold(counts: list[int], idle: int) -> None:
    most = max(counts)
    scale = 0.5 / max(1, most)
    expected = [1.0 if count <= idle else (most - count) * scale for count in counts]
    assert busy_scores(counts, idle, most, scale) == expected


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=12), st.integers(0, 30))
def test_a_pool_spares_its_cache_as_long_as_the_free_queue_begins_with_plain_blocks(
    releases: list[tuple[bool, int]], count: int
) -> None:
    """Taking spared blocks evicts nothing; taking one more than is spared evicts something."""
    pool, paths = BlockPool(40), ContentPaths(1)
    pool.take(40)
    for content, (cached, blocks) in enumerate(releases):
        registered = blocks if cached and content else 0
        path = paths.path(((content, blocks),))
        node = pool.register(pool.root, 0, path, registered)[0] if registered else pool.root
        pool.release(node, registered, blocks if content else 0)
    count = min(count, pool.free)
    cached_before = sum(child.num_blocks for child in pool.root.children.values())
    spared = pool.spares(count)
    pool.take(count)
    assert spared == (sum(child.num_blocks for child in pool.root.children.values()) == cached_before)


def test_one_look_at_all_caches_is_a_look_at_each() -> None:
    raw = {"kind": "lengths", "input": 9, "output": 9, "num_requests": 3}
    load = build_workload(parse_workload(raw | {"arrival": {"process": "constant", "rate_rps": 1}}), 0)
    request = RequestView(RequestTable(load), 2)

    def holding(tokens: int) -> Callable[[int], int]:
        return lambda index: tokens * index

    views = ReplicaViews([ReplicaView(look_up=holding(tokens)) for tokens in (16, 0, 48)])
    assert views.cached_tokens(request) == [view.cached_tokens(request) for view in views] == [32, 0, 96]
