"""Sessions that traces name: as recorded, with growing prompts, and with turns that wait for the answer before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.errors import InputError
from sim.simulate import simulate
from sim.workload import PS_PER_MS, Workload, build_workload, parse_workload
from tests.serving_cases import deployment

CSV = """arrival_s,input_tokens,output_tokens,prefix_group,prefix_tokens,session_id
0,100,20,a,60,x
1,90,10,a,60,y
2,150,30,,0,x
3,40,10,,0,y
4,200,5,,0,x
5,55,5,,0,y
6,300,5,,0,
"""
HEADER = "session_id,input_tokens,output_tokens,arrival_time_us,last_chunk_time_us,status\n"
TRACEV2 = HEADER + "s,100,20,0,400,ok\nt,50,5,300,700,ok\ns,130,30,1000,1800,ok\ns,10,10,1500,2500,ok\n"

Writer = Callable[..., Workload]


@pytest.fixture
def replay(tmp_path: Path) -> Writer:
    """Builds the workload of a trace that holds the given text."""

    def build(text: str, **fields: Any) -> Workload:
        (tmp_path / "trace.csv").write_text(text)
        return build_workload(parse_workload({"trace": "trace.csv", **fields}), 0, tmp_path)

    return build


def shared_tokens(load: Workload) -> list[int]:
    """Tokens of each prompt that are shareable."""
    tokens = [sum(t for _, t in load.contents[c]) for c in load.content.tolist()]
    return np.minimum(tokens, load.prompt_tokens).tolist()


def test_sessions_are_read_and_change_nothing_else(replay: Writer) -> None:
    load = replay(CSV)
    assert load.session is not None
    assert load.session.tolist() == [0, 1, 0, 1, 0, 1, -1]
    assert load.follows is None
    assert shared_tokens(load) == [60, 60, 0, 0, 0, 0, 0]
    assert replay('{"input_len": 3, "output_len": 4, "session_id": "a"}\n[1, 2]\n', format="jsonl",
                  arrival={"process": "constant", "rate_rps": 1}).session.tolist() == [0, -1]  # fmt: skip


def test_a_growing_prompt_begins_with_prompt_and_answer_of_the_turn_before(replay: Writer) -> None:
    load = replay(CSV, sessions="growing")
    # x: 100 + 20 <= 150, 150 + 30 <= 200. y begins anew at 40, and 40 + 10 <= 55.
    assert shared_tokens(load) == [100, 60, 150, 40, 180, 50, 0]
    contents = [load.contents[c] for c in load.content.tolist()]
    assert contents[0] == contents[2] == contents[4]
    assert contents[3] == contents[5] != contents[1]
    assert load.follows is None
    cached = np.array(simulate(deployment(block_size=1), load).table.cached_tokens)
    assert cached.tolist() == [0, 60, 119, 0, 179, 49, 0]


def test_a_closed_turn_waits_for_the_answer_and_thinks_as_long_as_then(replay: Writer) -> None:
    load = replay(TRACEV2, sessions="closed")
    # In ms: s at 0, t at 0.3, then s's second 1.0 - 0.4 after its answer; its third had come before the answer at 1.8.
    assert load.follows.tolist() == [-1, -1, 0, 2]
    assert load.arrival_ps.tolist() == [0, 3 * PS_PER_MS // 10, 6 * PS_PER_MS // 10, 0]


def test_closed_turns_are_in_order_of_their_earliest_arrival(replay: Writer) -> None:
    load = replay(TRACEV2, sessions="closed")
    assert (np.diff(load.earliest_ps()) >= 0).all()
    result = simulate(deployment(), load)
    arrived, finish = np.array(result.table.arrival_ps), np.array(result.table.finish_ps)
    later = load.follows >= 0
    thought = np.maximum(1, result.overhead.last_token_ps + load.arrival_ps[later])
    assert (arrived[later] == finish[load.follows[later]] + thought).all()


@pytest.mark.parametrize(
    ("text", "fields", "path", "problem"),
    [
        ("arrival_s,input_tokens,output_tokens\n0,1,1\n", {"sessions": "growing"}, "sessions", "names sessions"),
        (CSV, {"sessions": "closed"}, "sessions", "says when requests were answered"),
        (TRACEV2, {"sessions": "close"}, "sessions", "did you mean 'closed'"),
        (TRACEV2, {"sessions": "closed", "arrival": {"process": "poisson", "rate_rps": 1}}, "sessions", "own times"),
    ],
)
def test_sessions_that_a_trace_cannot_have_are_refused(
    replay: Writer, text: str, fields: dict[str, Any], path: str, problem: str
) -> None:
    with pytest.raises(InputError) as refused:
        replay(text, **fields)
    assert refused.value.field == f"workload.{path}"
    assert problem in refused.value.problem
