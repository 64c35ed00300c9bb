"""A service for tests: small spaces, and an application in this process or one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi.testclient import TestClient

from planner.service.app import create_app
from planner.service.settings import Settings
from planner.versions import engine_mode

API = "/api/v1"
SOON_S = 60.0  # no wait of a test is meant to last this long

SMALL = """\
name: small
model: meta-llama/Llama-3.1-8B-Instruct
workload:
  kind: lengths
  prefix: {groups: 4, tokens: 400}
  input: {dist: constant, value: 100}
  output: {dist: constant, value: 40}
  arrival: {process: poisson, rate_rps: 20}
  num_requests: 120
slo: [gpus <= 4]
objectives:
  - minimize: cost_per_hour
  - minimize: ttft_p90_ms
space:
  gpu: [L4, H100-SXM-80GB]
  replicas: [1, 2]
  max_num_seqs: [8, 64]
search: {executor: serial}
"""
# 28 candidates of a twentieth of a second or more each, however the engine runs: time enough to be interrupted in.
REQUESTS = 600 if engine_mode() == "interpreted" else 5000
LONG = (
    SMALL.replace("name: small", "name: long")
    .replace("num_requests: 120", f"num_requests: {REQUESTS}")
    .replace("max_num_seqs: [8, 64]", "max_num_seqs: [8, 16, 24, 32, 48, 64, 96]")
    .replace("search: {", "search: {method: exhaustive, ")
)


@contextmanager
def service(data: Path, **settings: Any) -> Iterator[TestClient]:
    """A service in this process, as its own machine's browser sees it."""
    app = create_app(Settings(data=data, workers=1, **settings))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def submit(client: httpx.Client, yaml: str = SMALL, **more: Any) -> str:
    """Submit a search; its id."""
    answer = client.post(f"{API}/jobs", json={"yaml": yaml, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def state(client: httpx.Client, job: str) -> str:
    """The state of a job."""
    return str(client.get(f"{API}/jobs/{job}").json()["state"])


def wait_for(client: httpx.Client, job: str, *states: str) -> dict[str, Any]:
    """The job, once it is in one of the states."""
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        found: dict[str, Any] = client.get(f"{API}/jobs/{job}").json()
        if found["state"] in states:
            return found
        assert found["state"] in ("queued", "running"), found
        time.sleep(0.05)
    raise AssertionError(f"{job} did not become {states}: {found}")


def wait_until_evaluated(client: httpx.Client, job: str, count: int) -> None:
    """Until a search has evaluated some candidates and has more to go."""
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        found = client.get(f"{API}/jobs/{job}").json()
        assert found["state"] in ("queued", "running"), found
        if found["progress"] is not None and found["progress"]["done"] >= count:
            return
        time.sleep(0.02)
    raise AssertionError("nothing was evaluated")


def events(client: httpx.Client, path: str, last: int | None = None) -> list[tuple[int, str, str]]:
    """(id, event, data) of a stream that ends."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    found = []
    with client.stream("GET", f"{API}{path}", headers=headers) as answer:
        assert answer.status_code == 200
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            key, _, value = line.partition(": ")
            fields[key] = value
            if not line:
                if "event" in fields:
                    found.append((int(fields["id"]), fields["event"], fields["data"]))
                fields = {}
    return found


class Server:
    """A service in a process of its own."""

    def __init__(self, data: Path, *options: str, token: str | None = None, quiet: bool = False) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment.pop("PLANNER_TOKEN", None)
        if token is not None:
            environment["PLANNER_TOKEN"] = token
        command = [sys.executable, "-m", "planner.cli", "serve", "--port", "0", "--data", str(data), *options]
        errors = subprocess.PIPE if quiet else None
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("Serving http://"):
            raise ChildProcessError(self.process.wait(SOON_S), self.process.communicate()[1])
        self.url = line.split()[1]
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.client = httpx.Client(base_url=self.url, headers=headers, timeout=SOON_S)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end; the exit code."""
        self.client.close()
        self.process.send_signal(number)
        code = self.process.wait(SOON_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code
