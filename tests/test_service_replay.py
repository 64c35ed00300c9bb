"""What the page shows of one plan: the replay of its requests, its latencies and its replicas over time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from planner.plan import Plan, parse_plan, simulate_plan
from planner.service.json_text import to_text
from planner.service.replay import OUTCOMES, SOURCES, prefix_sources, replay
from planner.service.timeline import SPANS, distributions, timeline
from sim.result import Result
from tests.service_cases import API, SMALL, service, submit, wait_for

BLOCK = 16


def plan(**deployment: Any) -> Plan:
    """Four replicas under requests of thirty prompts in ten groups."""
    workload = {
        "kind": "shared_prefix",
        "num_groups": 10,
        "num_prompts_per_group": 3,
        "system_prompt_len": 200,
        "question_len": 50,
        "output_len": 20,
        "arrival": {"process": "poisson", "rate_rps": 40},
        "num_requests": deployment.pop("num_requests", 400),
    }
    fields = {"gpu": "H100-SXM-80GB", "replicas": 4, "max_num_seqs": 16, "routing": "random"} | deployment
    document = {"model": "meta-llama/Llama-3.1-8B-Instruct", "workload": workload, "deployment": fields}
    return parse_plan(document, Path())


@pytest.fixture(scope="module")
def served() -> tuple[Plan, Result]:
    served = plan(num_gpu_blocks_override=120)  # so few that prefixes are evicted
    return served, simulate_plan(served)


def columns(document: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.array(values) for name, values in document["requests"].items()}


def test_times_of_a_request_come_in_their_order(served: tuple[Plan, Result]) -> None:
    found = columns(replay(*served))
    assert (found["queued"] >= 0).all()
    assert (found["queued"] <= found["scheduled"]).all()
    assert (found["scheduled"] < found["first_token"]).all()
    assert (found["first_token"] < found["finish"]).all()


def test_a_replay_says_of_each_request_what_the_simulation_does(served: tuple[Plan, Result]) -> None:
    document = replay(*served)
    found, records = columns(document), served[1].records
    np.testing.assert_allclose(found["first_token"] * document["tick_ms"], records.ttft_ms, atol=0.051)
    np.testing.assert_allclose(found["finish"] * document["tick_ms"], records.e2e_ms, atol=0.051)
    waited = (found["scheduled"] - found["queued"]) * document["tick_ms"]
    np.testing.assert_allclose(waited, records.queue_ms, atol=0.11)
    assert (found["replica"] == records.replica).all()
    completed = sum(OUTCOMES[outcome] == "completed" for outcome in found["outcome"])
    assert completed == served[1].summary()["completed"]


def test_no_replica_runs_more_requests_than_it_has_seats(served: tuple[Plan, Result]) -> None:
    document = replay(*served)
    found = columns(document)
    start, end = found["arrival"] + found["scheduled"], found["arrival"] + found["finish"]
    for replica in range(document["replicas"]):
        mine = found["replica"] == replica
        # By the client's clock an answer ends a little after its seat is free.
        late = (end[mine] - 50)[None, :]
        running = ((start[mine][None, :] <= start[mine][:, None]) & (late > start[mine][:, None])).sum(axis=1)
        assert running.max() <= document["max_num_seqs"]


def oracle(result: Result) -> list[str]:
    """Sources by looking at every earlier request, one by one."""
    table = result.table
    scheduled = list(table.scheduled_ps)
    order = sorted(range(len(table)), key=lambda index: (scheduled[index], index))
    heads = [table.contents[content][:1] for content in table.content]
    found = [""] * len(table)
    for position, index in enumerate(order):
        earlier = [other for other in order[:position] if heads[other] == heads[index] and heads[index]]
        here = [other for other in earlier if table.replica[other] == table.replica[index]]
        if table.cached_tokens[index]:
            found[index] = "cache"
        else:
            found[index] = "lost" if here else "elsewhere" if earlier else "new"
    return found


def test_where_prefixes_came_from_is_what_the_requests_before_say(served: tuple[Plan, Result]) -> None:
    sources, requests = prefix_sources(served[1].table, BLOCK)
    assert [SOURCES[source] for source in sources] == oracle(served[1])
    assert set(sources.tolist()) == {0, 1, 2, 3}  # with few blocks and random routing there is all of it
    table = served[1].table
    for index, (source, request) in enumerate(zip(sources.tolist(), requests.tolist(), strict=True)):
        if SOURCES[source] == "new":
            assert request == -1
            continue
        assert table.scheduled_ps[request] <= table.scheduled_ps[index]
        assert table.contents[table.content[request]][0] == table.contents[table.content[index]][0]
        assert (table.replica[request] == table.replica[index]) == (SOURCES[source] != "elsewhere")


def test_a_router_that_looks_for_prefixes_leaves_fewer_elsewhere() -> None:
    counts = {}
    for routing in ("random", {"name": "weighted", "prefix": 10}):
        aware = plan(routing=routing)
        found = columns(replay(aware, simulate_plan(aware)))
        counts[str(routing)] = int((found["source"] == SOURCES.index("elsewhere")).sum())
        arrivals = found["arrival"]
    blind, seeing = counts.values()
    assert seeing < blind / 2
    assert (np.diff(arrivals) >= 0).all()


def test_twenty_thousand_requests_fit_in_two_megabytes() -> None:
    many = plan(num_requests=20_000, max_num_seqs=64)
    assert len(to_text(replay(many, simulate_plan(many)))) < 2_000_000


def test_a_distribution_is_a_step_function_from_the_least_to_the_most(served: tuple[Plan, Result]) -> None:
    for name, curve in distributions(served[1]).items():
        values = np.sort(getattr(served[1].records, name))
        x, p = np.array(curve["x"]), np.array(curve["p"])
        assert len(x) <= 200
        np.testing.assert_allclose([x[0], x[-1]], [values[0], values[-1]], rtol=1e-5)
        assert p[-1] == 1
        share = np.searchsorted(values, x * (1 + 1e-5), side="right") / len(values)
        assert (p <= share + 1e-5).all()
        assert (np.diff(p) > 0).all()


def test_over_time_seats_and_blocks_are_never_more_than_there_are(served: tuple[Plan, Result]) -> None:
    result = simulate_plan(served[0], sampled=True)
    found = timeline(result)
    assert len(found["edges_s"]) == SPANS + 1
    assert len(found["replicas"]) == 4
    for replica in found["replicas"]:
        assert max(replica["running"]) <= found["max_num_seqs"]
        assert 0 < max(replica["kv_usage"]) <= 1
        assert all(rate is None or 0 <= rate <= 1 for rate in replica["hit_rate"])


# -- over HTTP ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with service(tmp_path_factory.mktemp("service")) as client:
        yield client


@pytest.fixture(scope="module")
def path(client: TestClient) -> str:
    """Of a plan with two replicas, of a job that is done."""
    job = submit(client, SMALL)
    wait_for(client, job, "done")
    plans = client.get(f"{API}/jobs/{job}/evaluations", params={"simulated": True}).json()["evaluations"]
    return f"/jobs/{job}/plans/" + next(p["id"] for p in plans if p["parameters"]["replicas"] == 2)


def test_a_simulation_on_demand_is_that_of_the_plan(client: TestClient, path: str) -> None:
    detail = client.get(f"{API}{path}").json()
    found = client.get(f"{API}{path}/simulation").json()
    for metric in ("completed", "output_tokens_per_s", "prefix_hit_rate"):
        assert found["summary"][metric] == detail["metrics"][metric]
    assert sum(found["time_parts"].values()) == pytest.approx(1.0)


def test_two_policies_are_replayed_on_the_same_requests(client: TestClient, path: str) -> None:
    both = [
        client.get(f"{API}{path}/replay", params=query).json()
        for query in ({}, {"routing": json.dumps({"name": "weighted", "prefix": 5})})
    ]
    assert [each["routing"] for each in both] == ["round-robin", {"name": "weighted", "prefix": 5}]
    for column in ("arrival", "prompt_tokens", "output_tokens", "group"):
        assert both[0]["requests"][column] == both[1]["requests"][column]
    assert both[0]["requests"]["replica"] != both[1]["requests"]["replica"]


@pytest.mark.parametrize(
    ("routing", "status"),
    [("nonsense", 422), ("{", 422), ("own:Router", 403), ('{"name": "weighted", "nope": 1}', 422)],
)
def test_a_policy_that_is_none_is_refused(client: TestClient, path: str, routing: str, status: int) -> None:
    answer = client.get(f"{API}{path}/replay", params={"routing": routing})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_unknown_plan_is_not_found(client: TestClient, path: str) -> None:
    unknown = path[:-10] + "aaaaaaaaaa"
    for rest in ("", "/simulation", "/explain", "/replay"):
        assert client.get(f"{API}{unknown}{rest}").status_code == 404
