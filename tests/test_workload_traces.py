"""Trace readers: every format on a small file of it, what is wrong with a line, and the real traces where present."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.errors import InputError
from sim.workload import Workload, build_workload, parse_workload

PS_PER_MS = 10**9
TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"

MOONCAKE = "\n".join(
    json.dumps(row)
    for row in (
        {"timestamp": 5, "input_length": 1300, "output_length": 20, "hash_ids": [0, 1, 2]},
        {"timestamp": 5, "input_length": 1500, "output_length": 30, "hash_ids": [0, 1, 3]},
        {"timestamp": 3005, "input_length": 600, "output_length": 40, "hash_ids": [0, 9]},
        {"timestamp": 4005, "input_length": 400, "output_length": 1, "hash_ids": [10]},
    )
)
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 23:59:59.9000001,374,44
2023-11-17 00:00:00.1000000,396,109
2023-11-17 00:00:01,879,55
"""
OWN = """arrival_s,input_tokens,output_tokens,prefix_group,prefix_tokens,slo_class,note
0.5,100,10,a,60,critical,x
0.25,200,20,a,60,,x
1.75,300,30,b,80,batch,x
"""
TRACEV2_HEADER = "trace_version: 2\ntime_unit: us\nmode: real\nwarm_up_requests: 0\n"
TRACEV2 = """request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,\
input_tokens,output_tokens,server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,\
num_chunks,status,error_message
0,c,t1,critical,,0,g,64,true,36,5,0,1000,1500,0,0,5,ok,
1,c,t2,,,0,g,64,true,36,6,110,2000,2500,0,0,6,ok,
2,c,t1,batch,,0,,0,true,50,0,0,3000,3500,0,0,0,timeout,"too, late"
3,c,t1,batch,,0,,0,true,50,7,57,4000,0,0,0,7,ok,
"""
JSONL = '{"input_len": 12, "output_len": 3}\n[34, 5]\n\n{"input_len": 56, "output_len": 7}\n'

Writer = Callable[..., Workload]


@pytest.fixture
def replay(tmp_path: Path) -> Writer:
    """Builds the workload of a trace that holds the given text."""

    def build(text: str, name: str = "trace.txt", **fields: Any) -> Workload:
        (tmp_path / name).write_text(text)
        return build_workload(parse_workload({"trace": name, **fields}), 0, tmp_path)

    return build


def test_mooncake_lines_are_read_with_what_they_share(replay: Writer) -> None:
    load = replay(MOONCAKE)
    assert load.arrival_ps.tolist() == [0, 0, 3000 * PS_PER_MS, 4000 * PS_PER_MS]
    assert load.prompt_tokens.tolist() == [1300, 1500, 600, 400]
    assert load.output_tokens.tolist() == [20, 30, 40, 1]
    assert [sum(t for _, t in load.contents[c]) for c in load.content.tolist()] == [1024, 1024, 512, 0]


def test_azure_timestamps_are_exact_across_midnight(replay: Writer) -> None:
    load = replay(AZURE)
    assert load.arrival_ps.tolist() == [0, 199_999_900_000, 1_099_999_900_000]
    assert load.prompt_tokens.tolist() == [374, 396, 879]
    assert load.output_tokens.tolist() == [44, 109, 55]
    assert not load.content.any()


def test_azure_timestamps_may_carry_a_zone(replay: Writer) -> None:
    rows = ["2024-05-10 00:00:00.009930+00:00,10,1", "2024-05-10T02:00:01.009930+02:00,11,2"]
    load = replay("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows))
    assert load.arrival_ps.tolist() == [0, 1000 * PS_PER_MS]


def test_our_csv_is_put_in_order_of_arrival_with_prefixes_and_classes(replay: Writer) -> None:
    load = replay(OWN)
    assert load.arrival_ps.tolist() == [0, 250 * PS_PER_MS, 1500 * PS_PER_MS]
    assert load.prompt_tokens.tolist() == [200, 100, 300]
    assert [sum(t for _, t in load.contents[c]) for c in load.content.tolist()] == [60, 60, 0]
    assert load.slo_class is not None
    assert load.priority is not None
    assert [load.slo_classes[c] for c in load.slo_class.tolist()] == ["standard", "critical", "batch"]
    assert load.priority.tolist() == [-3, -4, 1]


def test_tracev2_is_read_as_blis_replays_it(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(TRACEV2_HEADER)
    (tmp_path / "run.csv").write_text(TRACEV2)
    for name in ("run.csv", "run.yaml"):
        load = build_workload(parse_workload({"trace": name}), 0, tmp_path)
        assert load.arrival_ps.tolist() == [0, PS_PER_MS, 5 * PS_PER_MS // 2]
        assert load.prompt_tokens.tolist() == [100, 110, 57]
        assert load.output_tokens.tolist() == [5, 6, 7]
        assert [sum(t for _, t in load.contents[c]) for c in load.content.tolist()] == [64, 64, 0]
        assert load.tenant is not None
        assert [load.tenants[t] for t in load.tenant.tolist()] == ["t1", "t2", "t1"]


def test_a_tracev2_in_another_unit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("trace_version: 2\ntime_unit: ms\n")
    (tmp_path / "run.csv").write_text(TRACEV2)
    with pytest.raises(InputError, match=r"run\.yaml: time_unit must be us"):
        build_workload(parse_workload({"trace": "run.csv"}), 0, tmp_path)


def test_json_lines_of_lengths_take_their_arrivals_from_a_process(replay: Writer) -> None:
    load = replay(JSONL, arrival={"process": "constant", "rate_rps": 2})
    assert load.prompt_tokens.tolist() == [12, 34, 56]
    assert load.output_tokens.tolist() == [3, 5, 7]
    assert load.arrival_ps.tolist() == [0, 500 * PS_PER_MS, 1000 * PS_PER_MS]


def test_json_lines_with_timestamps_are_replayed(replay: Writer) -> None:
    rows = (
        {"timestamp": 100, "input_length": 5, "output_length": 2},
        {"timestamp": 90.5, "input_length": 6, "output_length": 3},
    )
    load = replay("\n".join(map(json.dumps, rows)))
    assert load.arrival_ps.tolist() == [0, 9_500_000_000]
    assert load.prompt_tokens.tolist() == [6, 5]


def test_lengths_without_times_need_an_arrival(replay: Writer) -> None:
    with pytest.raises(InputError) as caught:
        replay(JSONL)
    assert caught.value.field == "workload.arrival"


def test_arrival_scale_multiplies_the_times(replay: Writer) -> None:
    assert replay(MOONCAKE, arrival_scale=0.5).arrival_ps.tolist() == [0, 0, 1500 * PS_PER_MS, 2000 * PS_PER_MS]
    assert replay(MOONCAKE, arrival_scale=2).arrival_ps[-1] == 8000 * PS_PER_MS


def test_a_trace_is_cut_by_count_or_by_scaled_time(replay: Writer) -> None:
    assert len(replay(MOONCAKE, num_requests=3)) == 3
    assert len(replay(MOONCAKE, max_requests=3)) == 3
    assert len(replay(MOONCAKE, max_requests=300)) == 4
    assert len(replay(MOONCAKE, duration_s=3)) == 2
    assert len(replay(MOONCAKE, duration_s=3, arrival_scale=0.9)) == 3


def test_a_start_leaves_out_what_comes_before_and_starts_the_clock_there(replay: Writer) -> None:
    load = replay(MOONCAKE, start_s=2.5)
    assert load.arrival_ps.tolist() == [500 * PS_PER_MS, 1500 * PS_PER_MS]
    assert not load.content.any()
    with pytest.raises(InputError, match="past the trace's last request") as caught:
        replay(MOONCAKE, start_s=5)
    assert caught.value.field == "workload.start_s"


def test_what_a_cut_leaves_to_one_request_is_private(replay: Writer) -> None:
    assert not replay(MOONCAKE, num_requests=1).content.any()


def test_a_trace_can_be_driven_by_users_in_a_closed_loop(replay: Writer) -> None:
    load = replay(MOONCAKE, arrival={"process": "closed", "users": 2})
    assert (load.users, len(load), load.arrival_ps.any()) == (2, 4, False)


def test_a_spec_class_replaces_those_of_the_trace(replay: Writer) -> None:
    load = replay(OWN, slo_class="sheddable")
    assert load.slo_classes == ["sheddable"]
    assert load.priority is not None
    assert load.priority.tolist() == [2, 2, 2]


HEADER = "arrival_s,input_tokens,output_tokens\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEADER + "0,5,5\n1,x,5\n", "trace.csv: line 3: input_tokens must be a whole number, got 'x'"),
        (HEADER + "0,5,0\n", "trace.csv: line 2: output_tokens must be at least 1, got 0"),
        (HEADER + "0,-5,1\n", "trace.csv: line 2: input_tokens must be at least 1, got -5"),
        (HEADER + f"0,{10**30},1\n", "trace.csv: line 2: input_tokens must be at most 100,000,000"),
        (HEADER + "0,,1\n", "trace.csv: line 2: input_tokens is missing"),
        (HEADER + "0,5,5\n\n1,5\n", "trace.csv: line 4: has 2 fields, the header has 3"),
        (HEADER + "nan,5,5\n", "trace.csv: line 2: arrival_s must be a time >= 0, got 'nan'"),
        (HEADER + "-1,5,5\n", "trace.csv: line 2: arrival_s must be a time >= 0, got '-1'"),
        (HEADER, "trace.csv: has no requests"),
        ("", "trace.csv: has no requests"),
        ("arrival_s,input_tokens\n", "trace.csv: line 1: the header lacks output_tokens"),
        ("a,b\n1,2\n", "trace.csv: line 1: is the start of no known format"),
        (OWN.replace("critical", "critcal"), "line 2: slo_class must be one of .*did you mean 'critical'"),
        (OWN.replace("a,60,,", "a,600,,"), "line 3: prefix_tokens must be at most input_tokens"),
        (AZURE.replace("11-17 00:00:01", "11-17 25:00:01"), "line 4: TIMESTAMP"),
        (AZURE.replace("2023-11-17 00:00:01", "noon"), "line 4: TIMESTAMP must be like"),
        (AZURE.replace("2023-11-17 00:00:01", "9999-12-31 23:59:59"), "line 4: TIMESTAMP must be of the years"),
        (AZURE.replace("2023-11-17 00:00:01", "0001-01-01 00:00:00+14:00"), "line 4: TIMESTAMP"),
        ("arrival_s,input_tokens,output_tokens,input_tokens\n0,5,5,6\n", "line 1: the header has input_tokens twice"),
        (JSONL + "[" * 100_000, "line 5: is no line of a trace"),
        (JSONL + "9" * 5_000, "line 5: is no line of a trace"),
        (MOONCAKE.replace("3005", "1" + "0" * 400), "line 3: timestamp must be a time"),
        (MOONCAKE + "\n{", "line 5: is not JSON"),
        (MOONCAKE.replace("[0, 9]", '"09"'), "line 3: hash_ids must be a list"),
        (
            MOONCAKE.replace('"input_length": 600', '"input_length": 0'),
            "line 3: input_length must be at least 1, got 0",
        ),
        (MOONCAKE.replace('"timestamp": 3005', '"timestamp": true'), "line 3: timestamp must be a time"),
        (JSONL + "3\n", "line 5: must be an object with input_len and output_len"),
        (JSONL + '{"timestamp": 3, "input_len": 1, "output_len": 1}', "line 5: timestamp must be on every line"),
    ],
)
def test_a_broken_trace_is_refused_with_its_line(replay: Writer, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        replay(text, name="trace.csv")
    assert caught.value.field == "workload.trace"
    assert "\n" not in str(caught.value)


def test_a_missing_file_a_folder_and_a_binary_file_are_refused(replay: Writer, tmp_path: Path) -> None:
    for name in ("none.csv", "."):
        with pytest.raises(InputError) as caught:
            build_workload(parse_workload({"trace": name}), 0, tmp_path)
        assert caught.value.field == "workload.trace"
    os.mkfifo(tmp_path / "pipe")
    for name, problem in (("pipe", "must be a regular file"), ("x" * 300, "no file")):
        with pytest.raises(InputError, match=problem):
            build_workload(parse_workload({"trace": name}), 0, tmp_path)
    (tmp_path / "binary").write_bytes(bytes(range(128, 256)))
    with pytest.raises(InputError, match="not a text file"):
        build_workload(parse_workload({"trace": "binary"}), 0, tmp_path)


def test_more_requests_than_the_trace_has_are_refused(replay: Writer) -> None:
    with pytest.raises(InputError, match="has 4 requests, 5 are asked for"):
        replay(MOONCAKE, num_requests=5)


def real(name: str) -> Workload:
    if not (TRACES / name).exists():
        pytest.skip(f"needs the real trace {name}")
    return build_workload(parse_workload({"trace": name}), 0, TRACES)


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("mooncake_conversation.jsonl", 12_031),
        ("mooncake_synthetic.jsonl", 3_993),
        ("azure_2023_conv.csv", 19_366),
        ("azure_2023_code.csv", 8_819),
    ],
)
def test_real_traces_are_read_whole(name: str, requests: int) -> None:
    load = real(name)
    assert len(load) == requests
    assert load.arrival_ps[0] == 0
    assert (np.diff(load.arrival_ps) >= 0).all()
    assert load.prompt_tokens.min() >= 1
    assert load.output_tokens.min() >= 1


@pytest.mark.parametrize("name", ["mooncake_conversation.jsonl", "mooncake_synthetic.jsonl"])
def test_a_real_mooncake_trace_keeps_its_sharing_in_a_few_pieces(name: str) -> None:
    load = real(name)
    pieces = [load.contents[c] for c in load.content.tolist()]
    assert sum(map(len, pieces)) / len(pieces) < 4
    with (TRACES / name).open() as lines:
        rows = [json.loads(line) for line in lines]
    neighbours = list(islice(zip(pairwise(rows), pairwise(pieces), strict=True), 4000))
    for (a, b), (a_pieces, b_pieces) in neighbours:
        same = 0
        for x, y in zip(a["hash_ids"], b["hash_ids"], strict=False):
            if x != y:
                break
            same += 512
        naive = min(same, a["input_length"], b["input_length"])
        shared = 0
        for (x, x_tokens), (y, y_tokens) in zip(a_pieces, b_pieces, strict=False):
            if x != y:
                break
            shared += min(x_tokens, y_tokens)
            if x_tokens != y_tokens:
                break
        assert shared == naive
