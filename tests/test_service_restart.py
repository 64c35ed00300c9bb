"""The service as a process: killed and started again in the middle of a search, or told to end."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from planner.search.session import SearchOptions, search
from planner.space import load_space
from tests.service_cases import API, LONG, SMALL, Server, state, submit, wait_for, wait_until_evaluated

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals")

SAME = ("evaluations.jsonl", "front.json", "front.csv", "report.html", "pareto.png")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a search that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "long.yaml").write_text(LONG)
    search(load_space(folder / "long.yaml"), SearchOptions(folder / "run"))
    return folder / "run"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_search_that_a_restart_interrupts_goes_on_by_itself_to_the_same_bytes(
    number: signal.Signals, whole: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    server = Server(data, "--workers", "1")
    job, waiting = submit(server.client, LONG), submit(server.client, SMALL)
    wait_until_evaluated(server.client, job, 2)
    code = server.end(number)
    assert code == (0 if number == signal.SIGTERM else -number)
    kept = (data / "runs" / job / "evaluations.jsonl").read_bytes().count(b"\n")
    assert kept >= 2
    server = Server(data, "--workers", "1")
    try:
        found = wait_for(server.client, job, "done")
        assert found["attempts"] == 2
        assert wait_for(server.client, waiting, "done")["attempts"] == 1
    finally:
        server.end()
    for name in SAME:
        assert (data / "runs" / job / name).read_bytes() == (whole / name).read_bytes(), name


def test_a_search_whose_process_is_killed_fails_alone(tmp_path: Path) -> None:
    server = Server(tmp_path, "--workers", "1")
    try:
        job = submit(server.client, LONG)
        wait_until_evaluated(server.client, job, 1)
        (child,) = _children(server.process.pid)
        os.kill(child, signal.SIGKILL)
        assert "SIGKILL" in wait_for(server.client, job, "failed")["problem"]
        assert server.client.get(f"{API}/health").status_code == 200
        assert state(server.client, job) == "failed"
        # Its run is kept, and it can be taken up again.
        assert server.client.post(f"{API}/jobs/{job}/resume", json={}).status_code == 202
        wait_for(server.client, job, "done")
    finally:
        server.end()


def _children(process: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=True)
    return [int(line) for line in listed.stdout.split()]


def test_a_second_service_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        with pytest.raises(ChildProcessError) as refused:
            Server(tmp_path, quiet=True)
        code, words = refused.value.args
        assert code == 2
        assert words.startswith("planner: --data:")
        assert words.count("\n") == 1
    finally:
        assert server.end() == 0
