"""The description of a workload: known processes give their known figures, and reuse agrees with the definition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.workload import Workload, build_workload, parse_workload
from sim.workload.describe import describe, reusable_tokens

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"


def built(**fields: Any) -> Workload:
    raw = {"kind": "lengths", "input": 100, "output": 10, "num_requests": 20_000} | fields
    return build_workload(parse_workload(raw), 0)


def test_poisson_load_has_cv_and_dispersion_1() -> None:
    found = describe(built(arrival={"process": "poisson", "rate_rps": 20}))
    assert found.rate_rps == pytest.approx(20, rel=0.03)
    assert found.gap_cv == pytest.approx(1, abs=0.03)
    assert found.dispersion == pytest.approx(1, abs=0.5)


def test_even_load_has_no_burstiness_and_bursty_load_much() -> None:
    even = describe(built(arrival={"process": "constant", "rate_rps": 20}))
    assert even.gap_cv == pytest.approx(0, abs=1e-9)
    assert even.dispersion is not None
    assert even.dispersion < 0.1
    bursty = describe(built(arrival={"process": "gamma", "cv": 4, "rate_rps": 20}))
    assert bursty.gap_cv == pytest.approx(4, rel=0.1)
    assert bursty.dispersion == pytest.approx(16, rel=0.6)  # of a renewal process over long windows: cv^2


def test_the_peak_is_the_rate_of_the_busiest_stage() -> None:
    stages = [{"rate_rps": 2, "duration_s": 500}, {"rate_rps": 30, "duration_s": 500}]
    raw = {"preset": "codegen", "arrival": {"process": "constant", "stages": stages}}
    found = describe(build_workload(parse_workload(raw), 0))
    assert found.peak_rate_rps == pytest.approx(30, rel=0.02)
    assert found.rate_rps == pytest.approx(16, rel=0.01)


def test_a_closed_loop_has_no_rate_of_its_own() -> None:
    found = describe(built(arrival={"process": "closed", "users": 4}, num_requests=50))
    assert (found.rate_rps, found.gap_cv, found.requests) == (None, None, 50)


@pytest.mark.filterwarnings("error")
def test_one_request_has_no_burstiness() -> None:
    one = built(arrival={"process": "poisson", "rate_rps": 5}, num_requests=1)
    assert describe(one).gap_cv is None


def test_length_quantiles_are_those_of_the_distribution() -> None:
    uniform = {"dist": "uniform", "min": 1, "max": 1000}
    lengths = describe(built(input=uniform, arrival={"process": "constant", "rate_rps": 1})).prompt_tokens
    assert lengths.quantiles == pytest.approx({"p50": 500, "p90": 900, "p95": 950, "p99": 990}, rel=0.03)
    assert lengths.mean == pytest.approx(500, rel=0.02)


def test_cycling_prompts_are_new_once_each() -> None:
    """100 prompts of 10 groups: first the 10 system prompts and 100 questions are new, afterwards nothing is."""
    raw = {"preset": "codegen", "arrival": {"process": "constant", "rate_rps": 5}, "num_requests": 1000}
    load = build_workload(parse_workload(raw), 0)
    new = 10 * 100 + 100 * 466
    assert int(load.prompt_tokens.sum() - reusable_tokens(load).sum()) == new
    assert describe(load).shared_fraction == 1
    assert not (load.prompt_tokens - reusable_tokens(load))[100:].any()


chains = st.lists(st.lists(st.integers(1, 3), max_size=4), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(chains, st.integers(1, 9))
def test_reuse_is_the_longest_prefix_in_common_with_any_earlier_request(ids: list[list[int]], last: int) -> None:
    prompts = [tuple((i, 10 if k + 1 < len(c) else last + i % 2) for k, i in enumerate(c)) for c in ids]
    n = len(prompts)
    load = Workload("t", np.arange(n), np.full(n, 99), np.ones(n, np.int64), np.arange(n), list(prompts))
    expanded = [[(i, t) for i, tokens in p for t in range(tokens)] for p in prompts]

    def common(a: list[Any], b: list[Any]) -> int:
        return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))

    expected = [max((common(expanded[i], expanded[j]) for j in range(i)), default=0) for i in range(n)]
    assert reusable_tokens(load).tolist() == expected


def test_reuse_on_a_real_trace_is_what_its_block_ids_say() -> None:
    name = "mooncake_conversation.jsonl"
    if not (TRACES / name).exists():
        pytest.skip(f"needs the real trace {name}")
    with (TRACES / name).open() as lines:
        rows = sorted((json.loads(line) for line in lines), key=lambda row: row["timestamp"])
    seen: set[int] = set()
    reused = total = 0
    for row in rows:
        blocks = next((k for k, block in enumerate(row["hash_ids"]) if block not in seen), len(row["hash_ids"]))
        reused += min(512 * blocks, row["input_length"])
        total += row["input_length"]
        seen.update(row["hash_ids"])
    found = describe(build_workload(parse_workload({"trace": name}), 0, TRACES))
    # A last block that is only in part there may be seen before and longer now.
    assert found.reusable_fraction == pytest.approx(reused / total, abs=1e-3)
    assert found.reusable_fraction < found.shared_fraction < 1
