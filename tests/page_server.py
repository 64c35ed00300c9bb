"""`planner serve` as a process of its own on loopback, and a real Chromium that looks at its page."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser import CHROMIUM

ROOT = Path(__file__).parents[1]
WAIT_S = 30

# Eight candidates of some hundred requests: done in a second or two.
SMALL = """\
name: NAME
model: meta-llama/Llama-3.1-8B-Instruct   # of the catalog
workload:
  kind: shared_prefix
  num_groups: 6
  num_prompts_per_group: 10
  system_prompt_len: 800
  question_len: 200
  output_len: 60
  arrival: {process: poisson, rate_rps: 40}
  num_requests: 120
slo: [ttft_p90_ms <= 2000, gpus <= 4]
objectives:
  - minimize: cost_per_hour
  - minimize: ttft_p90_ms
space:
  gpu: [L40S, H100-SXM-80GB]
  tensor_parallel_size: 1
  replicas: {min: 1, max: 4}   # a range
  routing: round-robin
search: {method: exhaustive, seed: 0}
"""
# As many more candidates as it takes to be caught in the act.
LONG = SMALL.replace("max: 4}", "max: 4}\n  max_num_seqs: {min: 8, max: 80, step: 1}")
LONG = LONG.replace("num_requests: 120", "num_requests: 300")


class Server:
    """A service over `data`; started anew, it listens at the same address."""

    def __init__(self, data: Path, token: str | None = None) -> None:
        self.data = data
        self.url = ""
        self._token = token
        self._port = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> Server:
        command = [sys.executable, "-m", "planner.cli", "serve", "--port", str(self._port), "--data", str(self.data)]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        environment.pop("PLANNER_TOKEN", None)
        if self._token is not None:
            environment["PLANNER_TOKEN"] = self._token
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT, start_new_session=True
        )
        assert self._process.stdout is not None
        found = re.search(r"http://[\d.]+:(\d+)", self._process.stdout.readline())
        assert found is not None
        self.url, self._port = found[0], int(found[1])
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self.get("/health")
                return self
            except OSError:
                assert time.monotonic() < deadline, "the service does not answer"
                time.sleep(0.05)

    def kill(self) -> None:
        """End it and its children at once, as a crash or the kernel would."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(timeout=WAIT_S)

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1{path}", timeout=WAIT_S) as answer:
            return json.load(answer)

    def post(self, path: str, body: Any) -> Any:
        data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api/v1{path}", data, headers)
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return json.load(answer)

    def finished(self, name: str, yaml: str = SMALL, within_s: float = WAIT_S) -> str:
        """The id of a job of that name that has come to its end."""
        job: str = self.post("/jobs", {"yaml": yaml.replace("NAME", name)})["id"]
        deadline = time.monotonic() + within_s
        while (state := self.get(f"/jobs/{job}")["state"]) in ("queued", "running"):
            assert time.monotonic() < deadline, state
            time.sleep(0.05)
        return job


@contextmanager
def serving(data: Path, token: str | None = None) -> Iterator[Server]:
    """A service that ends with the block."""
    server = Server(data, token)
    try:
        yield server.start()
    finally:
        server.stop()


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visit(browser: Browser, server: Server, address: str = "#/runs", *, clean: bool = True) -> Iterator[Page]:
    """A reader of their own at a page of the service; one that is to be `clean` leaves nothing on the console."""
    context: BrowserContext = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    said: list[str] = []
    page = context.new_page()
    page.set_default_timeout(1000 * WAIT_S)
    expect.set_options(timeout=1000 * WAIT_S)
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    try:
        page.goto(f"{server.url}/{address}")
        yield page
        assert not clean or said == []
    finally:
        context.close()
