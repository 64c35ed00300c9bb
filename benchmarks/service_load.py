"""Reads of the service by many clients at once while a search runs: latencies by endpoint, over loopback.

    python benchmarks/service_load.py [--clients 50] [--seconds 20] [--think-ms 100]

Each client asks, waits for the answer, thinks, and asks the next of the reads that the page makes. A search runs all
the while; of the runs that are read one is done and one is the running one's own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

API = "/api/v1"
SPACE = Path(__file__).parents[1] / "search_spaces" / "quickstart.yaml"
# What makes the quickstart a search that runs all the while, and adds to its evaluations many times a second.
LONG = {
    "num_requests: 1500": "num_requests: 200",
    "max_num_seqs: [32, 128]": "max_num_seqs: {min: 1, max: 2000}",
    "method: auto": "method: exhaustive",
}


@dataclass(slots=True)
class Tally:
    """What the clients saw: how long each read took, in ms, and what failed."""

    ms: dict[str, list[float]]
    failed: list[str] = field(default_factory=list)
    ran_s: float = 0.0  # of the service, on a processor
    waited_s: float = 0.0  # for one: more than a little means that the machine is busy with something else


def main() -> int:
    """Start a service, load it, and print a line an endpoint. 1 where the p99 of all reads is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--think-ms", type=float, default=100.0, help="mean pause of a client between two reads")
    parser.add_argument("--limit-ms", type=float, default=200.0)
    args = parser.parse_args()
    if not 1 <= args.clients <= 500 or not 1 <= args.seconds <= 300:
        parser.error("1 to 500 clients, 1 to 300 seconds")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PLANNER_STORE": "none"}
        command = [sys.executable, "-m", "planner.cli", "serve", "--port", "0", "--data", folder]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[1]
            return asyncio.run(_load(url, server.pid, args))
        finally:
            server.terminate()
            server.wait(30)


async def _load(url: str, process: int, args: argparse.Namespace) -> int:
    text = SPACE.read_text(encoding="utf-8")
    long = text
    for old, new in LONG.items():
        long = long.replace(old, new)
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        done = await _finished(client, text)
        answer = await client.post(f"{API}/jobs", json={"yaml": long})
        running = answer.json()["id"]
        while (await client.get(f"{API}/jobs/{running}/view")).status_code != 200:
            await asyncio.sleep(0.2)
        plan = (await client.get(f"{API}/jobs/{done}")).json()["recommended"]
        await client.get(f"{API}/jobs/{done}/plans/{plan}/replay")  # computed once; from then on it is read
        reads = [
            "/health",
            "/version",
            "/examples",
            "/jobs",
            f"/jobs/{done}",
            f"/jobs/{running}",
            f"/jobs/{done}/front",
            f"/jobs/{running}/front",
            f"/jobs/{running}/view",
            f"/jobs/{done}/result",
            f"/jobs/{done}/points",
            f"/jobs/{done}/evaluations?limit=50&sort=ttft_p90_ms",
            f"/jobs/{done}/plans/{plan}",
            f"/jobs/{done}/plans/{plan}/replay",
            f"/jobs/{done}/artefacts/report.html",
        ]
        tally = Tally({read: [] for read in reads})
        end = time.perf_counter() + args.seconds
        before = _times(process)
        await asyncio.gather(*(_client(url, n, tally, end, args.think_ms / 1e3) for n in range(args.clients)))
        tally.ran_s, tally.waited_s = (b - a for a, b in zip(before, _times(process), strict=True))
        state = (await client.get(f"{API}/jobs/{running}")).json()
    names = {done: "DONE", running: "RUNNING", plan: "PLAN"}
    return _report(tally, state, names, args)


def _times(process: int) -> tuple[float, float]:
    """(seconds on a processor, seconds waiting for one) of a process, threads together; zeros where Linux is not."""
    ran = waited = 0
    for file in Path(f"/proc/{process}/task").glob("*/schedstat"):
        words = file.read_text().split()
        ran, waited = ran + int(words[0]), waited + int(words[1])
    return ran / 1e9, waited / 1e9


async def _finished(client: httpx.AsyncClient, text: str) -> str:
    job = str((await client.post(f"{API}/jobs", json={"yaml": text})).json()["id"])
    while (await client.get(f"{API}/jobs/{job}")).json()["state"] in ("queued", "running"):
        await asyncio.sleep(0.3)
    return job


class Connection:
    """A connection that is kept open, as a browser's: hardly any work, so that it is the service that is measured."""

    def __init__(self, url: str) -> None:
        self._host, port = url.removeprefix("http://").split(":")
        self._port = int(port)

    async def __aenter__(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def status_of(self, path: str) -> int:
        """GET a path, read all of the answer, and return its status."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        await self._reader.readexactly(int(lengths[0].split(b":")[1]))
        return int(head.split()[1])


async def _client(url: str, number: int, tally: Tally, end: float, think_s: float) -> None:
    draws = random.Random(number)
    async with Connection(url) as connection:
        while time.perf_counter() < end:
            await asyncio.sleep(draws.expovariate(1 / think_s) if think_s else 0)
            read = draws.choice(list(tally.ms))
            start = time.perf_counter()
            status = await connection.status_of(f"{API}{read}")
            tally.ms[read].append(1e3 * (time.perf_counter() - start))
            if status != 200:
                tally.failed.append(f"{status} {read}")


def _report(tally: Tally, job: dict[str, object], names: dict[str, str], args: argparse.Namespace) -> int:
    every = np.concatenate([np.array(values) for values in tally.ms.values()])
    print(f"{'read':55s} {'n':>6s} {'p50':>8s} {'p99':>8s} {'max':>8s}  ms")
    for read, values in [*tally.ms.items(), ("all", list(every))]:
        name = read
        for given, word in names.items():
            name = name.replace(given, word)
        if values:
            p50, p99 = np.percentile(values, [50, 99])
            print(f"{name:55s} {len(values):6d} {p50:8.1f} {p99:8.1f} {max(values):8.1f}")
    p99 = float(np.percentile(every, 99))
    rate = len(every) / args.seconds
    print(f"{args.clients} clients, {rate:.0f} reads/s, {len(tally.failed)} failed {tally.failed[:3]}")
    print(f"the service ran {tally.ran_s:.1f} s and waited {tally.waited_s:.1f} s for a processor")
    print(f"the search meanwhile: {job['state']}, {json.dumps(job['progress'])}")
    print(f"p99 of all reads {p99:.0f} ms, at most {args.limit_ms:g} wanted")
    return 0 if p99 <= args.limit_ms and not tally.failed else 1


if __name__ == "__main__":
    sys.exit(main())
