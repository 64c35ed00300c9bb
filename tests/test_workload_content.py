"""What prompts share: the cycling prompts of inference-perf, block traces, and content that is one request's alone."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.workload import Pieces, Workload, build_workload, parse_workload
from sim.workload.content import BlockTrie, intern_pieces, keep_shared

BLOCK = 4


def common_tokens(a: Pieces, b: Pieces) -> int:
    """Leading tokens that two prompts share, as `Pieces` defines it."""
    total = 0
    for (a_id, a_tokens), (b_id, b_tokens) in zip(a, b, strict=False):
        if a_id != b_id:
            break
        total += min(a_tokens, b_tokens)
        if a_tokens != b_tokens:
            break
    return total


def shared_prefix(num_requests: int, **change: Any) -> Workload:
    raw = {
        "kind": "shared_prefix", "num_groups": 3, "num_prompts_per_group": 4, "system_prompt_len": 100,
        "question_len": 40, "output_len": 7, "arrival": {"process": "constant", "rate_rps": 1},
        "num_requests": num_requests,
    }  # fmt: skip
    return build_workload(parse_workload(raw | change), 5)


def pieces_of(load: Workload) -> list[Pieces]:
    return [load.contents[c] for c in load.content.tolist()]


def test_shared_prefix_cycles_through_its_prompts_in_one_shuffled_order() -> None:
    """inference-perf: request i is prompt i modulo their number, in an order shuffled once."""
    pieces = pieces_of(shared_prefix(60))
    assert len(set(pieces[:12])) == 12
    assert all(pieces[i] == pieces[i % 12] for i in range(60))
    groups = [p[0][0] for p in pieces[:12]]
    assert Counter(groups).most_common() == [(g, 4) for g, _ in Counter(groups).most_common()]
    assert len(set(groups)) == 3
    assert groups != sorted(groups)


def test_prompts_of_a_group_share_the_system_prompt_and_others_nothing() -> None:
    pieces = pieces_of(shared_prefix(24))[:12]
    for a, b in combinations(pieces, 2):
        assert common_tokens(a, b) == (100 if a[0][0] == b[0][0] else 0)


def test_after_the_first_cycle_all_of_a_prompt_is_shareable() -> None:
    load = shared_prefix(24)
    assert all(sum(t for _, t in p) == 140 for p in pieces_of(load))
    assert set(load.prompt_tokens.tolist()) == {140}


def test_prompts_that_come_once_have_a_private_question() -> None:
    assert all(sum(t for _, t in p) == 100 for p in pieces_of(shared_prefix(12)))


def test_a_single_request_shares_nothing() -> None:
    load = shared_prefix(1)
    assert pieces_of(load) == [()]
    assert load.prompt_tokens.tolist() == [140]


def test_lengths_by_distribution_are_fixed_for_each_prompt_and_group() -> None:
    spread = {"dist": "uniform", "min": 5, "max": 500}
    load = shared_prefix(36, system_prompt_len=spread, question_len=spread, output_len=spread)
    for column in (load.prompt_tokens, load.output_tokens):
        assert np.array_equal(column[:12], column[12:24])
        assert len(set(column[:12].tolist())) > 6
    assert len({p[0] for p in pieces_of(load)}) == 3


block_requests = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=7), st.integers(0, BLOCK - 1)), min_size=1, max_size=14
)


@settings(max_examples=400, deadline=None)
@given(block_requests)
def test_compressed_blocks_keep_the_common_prefix_of_any_two_requests(requests: list[tuple[list[int], int]]) -> None:
    trie = BlockTrie(BLOCK)
    prompts = [(blocks, len(blocks) * BLOCK - missing) for blocks, missing in requests]
    for blocks, length in prompts:
        trie.add(blocks, length)
    contents, content = trie.contents()
    pieces = [contents[c] for c in content.tolist()]
    best = [0] * len(prompts)
    for i, j in combinations(range(len(prompts)), 2):
        (a, a_tokens), (b, b_tokens) = prompts[i], prompts[j]
        same = next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        naive = min(same * BLOCK, a_tokens, b_tokens)
        assert common_tokens(pieces[i], pieces[j]) == naive
        best[i], best[j] = max(best[i], naive), max(best[j], naive)
    # Nothing is left in the pieces that no second request has.
    assert [sum(t for _, t in p) for p in pieces] == best


@settings(max_examples=200, deadline=None)
@given(block_requests)
def test_pieces_end_only_where_requests_part(requests: list[tuple[list[int], int]]) -> None:
    trie = BlockTrie(BLOCK)
    for blocks, missing in requests:
        trie.add(blocks, len(blocks) * BLOCK - missing)
    contents, content = trie.contents()
    used = [contents[c] for c in sorted(set(content.tolist()))]
    followers: dict[tuple[int, ...], set[int]] = {}
    for pieces in used:
        for k in range(1, len(pieces)):
            followers.setdefault(tuple(p for p, _ in pieces[:k]), set()).add(pieces[k][0])
    assert all(len(ids) > 1 for ids in followers.values())


def test_blocks_that_always_come_together_are_one_piece() -> None:
    trie = BlockTrie(512)
    for tail in (100, 200, 300):
        trie.add([*range(20), *range(tail, tail + 5)], 25 * 512)
    contents, content = trie.contents()
    assert [contents[c] for c in content.tolist()] == [((1, 20 * 512),)] * 3


def test_the_last_block_counts_only_the_tokens_that_the_prompt_has() -> None:
    trie = BlockTrie(512)
    trie.add([7, 8], 600)
    trie.add([7, 8], 700)
    trie.add([7, 8, 9], 1500)
    contents, content = trie.contents()
    assert [sum(t for _, t in contents[c]) for c in content.tolist()] == [600, 700, 700]


chains = st.lists(st.lists(st.integers(1, 3), max_size=4), min_size=1, max_size=10)


@settings(max_examples=200, deadline=None)
@given(chains, st.integers(1, 9))
def test_dropping_private_content_changes_no_sharing_between_requests(ids: list[list[int]], last: int) -> None:
    def prompt(chain: list[int]) -> Pieces:
        # A piece that is shorter than its content can only be the last of its request.
        return tuple((i, 10 if k + 1 < len(chain) else last + i % 2) for k, i in enumerate(chain))

    before = [prompt(chain) for chain in ids]
    contents, column = keep_shared(*intern_pieces(before))
    after = [contents[c] for c in column.tolist()]
    assert contents[0] == ()
    assert len(set(contents)) == len(contents)
    for (a, new_a), (b, new_b) in combinations(zip(before, after, strict=True), 2):
        assert common_tokens(new_a, new_b) == common_tokens(a, b)
    for i, new in enumerate(after):
        others = [common_tokens(new, after[j]) for j in range(len(after)) if j != i]
        assert sum(t for _, t in new) == max(others, default=0)


def test_content_of_different_clients_is_different() -> None:
    client = {
        "kind": "shared_prefix", "num_groups": 1, "num_prompts_per_group": 1, "system_prompt_len": 100,
        "question_len": 40, "output_len": 7, "share": 1,
    }  # fmt: skip
    raw = {"clients": [client] * 3, "arrival": {"process": "constant", "rate_rps": 1}, "num_requests": 90}
    load = build_workload(parse_workload(raw), 0)
    kinds = set(pieces_of(load))
    assert len(kinds) == 3
    assert all(common_tokens(a, b) == 0 for a, b in pairwise(sorted(kinds)))
