"""Jobs of the service: submitted, watched, cancelled, resumed, deleted, by one client or two."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from planner.search.session import SearchOptions, search
from planner.service.settings import Limits
from planner.space import load_space
from tests.service_cases import (
    API,
    LONG,
    SMALL,
    events,
    service,
    state,
    submit,
    wait_for,
    wait_until_evaluated,
)

SAME = ("evaluations.jsonl", "front.json", "front.csv", "report.html", "pareto.png")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def client(data: Path) -> Iterator[TestClient]:
    with service(data) as client:
        yield client


@pytest.fixture(scope="module")
def done(client: TestClient) -> str:
    """A job that is done."""
    job = submit(client)
    wait_for(client, job, "done")
    return job


def test_a_job_finds_what_planner_search_finds(done: str, data: Path, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    search(load_space(file), SearchOptions(tmp_path / "run"))
    for name in SAME:
        assert (data / "runs" / done / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name


def test_who_comes_back_to_a_job_that_has_ended_is_told_what_it_found(client: TestClient, done: str) -> None:
    seen = events(client, f"/jobs/{done}/events", last=1)
    assert [kind for _, kind, _ in seen] == ["state", "front", "end"]


def test_two_users_each_watch_their_own_search_to_its_end(client: TestClient) -> None:
    found: dict[str, list[tuple[int, str, str]]] = {}

    def use(name: str) -> None:
        found[name] = events(client, f"/jobs/{submit(client, name=name)}/events")

    users = [threading.Thread(target=use, args=(name,)) for name in ("anna", "ben")]
    for user in users:
        user.start()
    for user in users:
        user.join()
    for name, seen in found.items():
        kinds = [kind for _, kind, _ in seen]
        assert (kinds[0], kinds[-1]) == ("state", "end")
        assert "progress" in kinds
        jobs = [json.loads(data) for _, kind, data in seen if kind in ("state", "end")]
        assert {job["name"] for job in jobs} == {name}
        states = [job["state"] for job in jobs]
        assert states == sorted(states, key=["queued", "running", "done"].index)
        assert states[-1] == "done"
        numbers = [number for number, _, _ in seen]
        assert numbers == sorted(numbers)
        front = json.loads([data for _, kind, data in seen if kind == "front"][-1])
        final = client.get(f"{API}/jobs/{jobs[-1]['id']}/front").json()
        assert [plan["id"] for plan in front["plans"]] == [plan["id"] for plan in final["plans"]]


def test_searches_wait_for_their_turn_and_can_be_cancelled_while_they_do(tmp_path: Path) -> None:
    with service(tmp_path, limits=Limits(running=1, queued=2)) as client:
        first = submit(client, LONG)
        wait_for(client, first, "running")
        second, third = submit(client, name="second"), submit(client, name="third")
        jobs = {job["id"]: job for job in client.get(f"{API}/jobs").json()["jobs"]}
        assert [jobs[job]["position"] for job in (first, second, third)] == [None, 0, 1]
        full = client.post(f"{API}/jobs", json={"yaml": SMALL})
        assert (full.status_code, full.headers["retry-after"]) == (429, "30")
        assert client.post(f"{API}/jobs/{second}/cancel", json={}).json()["state"] == "cancelled"
        assert events(client, f"/jobs/{second}/events")[-1][1] == "end"
        assert client.delete(f"{API}/jobs/{first}").status_code == 409
        wait_until_evaluated(client, first, 1)
        assert client.post(f"{API}/jobs/{first}/cancel", json={}).status_code == 202
        assert wait_for(client, first, "cancelled")["can"] == ["resume", "delete"]
        assert wait_for(client, third, "done")["recommended"] is not None


def test_a_cancelled_search_keeps_what_it_evaluated_and_goes_on_when_resumed(tmp_path: Path) -> None:
    file = tmp_path / "long.yaml"
    file.write_text(LONG)
    search(load_space(file), SearchOptions(tmp_path / "whole"))
    with service(tmp_path / "data") as client:
        job = submit(client, LONG)
        wait_until_evaluated(client, job, 2)
        client.post(f"{API}/jobs/{job}/cancel", json={})
        wait_for(client, job, "cancelled")
        kept = client.get(f"{API}/jobs/{job}/evaluations", params={"simulated": True}).json()["total"]
        assert 2 <= kept < 28
        assert client.post(f"{API}/jobs/{job}/resume", json={}).status_code == 202
        wait_for(client, job, "done")
        for name in SAME:
            mine = tmp_path / "data" / "runs" / job / name
            assert mine.read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_search_that_takes_too_long_is_interrupted_and_says_so(tmp_path: Path) -> None:
    with service(tmp_path, limits=Limits(job_s=1.5)) as client:
        job = wait_for(client, submit(client, LONG), "interrupted")
        assert "1.5 s" in job["problem"]
        assert "resume" in job["can"]


def test_what_only_the_search_finds_wrong_is_the_jobs_problem(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n0,10,many\n")
    workload = SMALL[SMALL.index("workload:") : SMALL.index("slo:")]
    space = SMALL.replace(workload, "workload: {trace: trace.csv, format: csv}\n")
    with service(tmp_path / "data", files=tmp_path / "files") as client:
        job = wait_for(client, submit(client, space), "failed")
        assert "line 2" in job["problem"]
        assert job["problems"][0]["field"] == "workload.trace"
        assert client.get(f"{API}/health").status_code == 200


@pytest.mark.parametrize("action", ["cancel", "resume"])
def test_what_a_finished_job_cannot_do_is_a_conflict(client: TestClient, done: str, action: str) -> None:
    answer = client.post(f"{API}/jobs/{done}/{action}", json={})
    assert answer.status_code == 409
    assert "done" in answer.json()["detail"]
    assert state(client, done) == "done"


def test_jobs_are_found_by_words_page_by_page_until_they_are_deleted(client: TestClient, done: str, data: Path) -> None:
    other = submit(client, name="needle_in_the_list")
    wait_for(client, other, "done")
    assert client.get(f"{API}/jobs", params={"q": "needle%"}).json()["total"] == 0
    total = client.get(f"{API}/jobs").json()["total"]
    pages = [client.get(f"{API}/jobs", params={"limit": 1, "offset": n}).json()["jobs"] for n in range(total + 1)]
    assert [len(page) for page in pages] == [1] * total + [0]
    assert len({page[0]["id"] for page in pages[:-1]}) == total
    assert client.get(f"{API}/jobs", params={"state": "running,nonsense"}).status_code == 422
    found = client.get(f"{API}/jobs", params={"q": "NEEDLE_IN", "state": "queued,done"}).json()
    assert [job["id"] for job in found["jobs"]] == [other]
    assert client.delete(f"{API}/jobs/{other}").status_code == 204
    assert client.get(f"{API}/jobs/{other}").status_code == 404
    assert client.get(f"{API}/jobs/{done}").status_code == 200
    assert not (data / "runs" / other).exists()
    assert not (data / "jobs" / other).exists()
