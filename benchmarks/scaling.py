"""Workers: measured efficiency of one against two, what they cost, and a model of many.

    python benchmarks/scaling.py [--seconds S] [--executors processes ray]

Measured: the rate at which one and two workers evaluate, the time to start them, what a candidate and a batch cost
beside the simulation, and the driver's own time for each result (judging it, keeping it, asking for more). Modelled:
with W workers a search of N candidates takes start + max(N x simulation / W, N x driver + batches x per batch): the
driver is the serial part (Amdahl 1967). A model, not a measurement: it knows no network, no slow node, no full disk.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.evaluate import Evaluator, Outcome, Trial, make_evaluator
from planner.executors import Executor, cpu_count, make_executor
from planner.executors.batches import BATCH_S, MAX_BATCH
from planner.parameters import Parameters
from planner.search.driver import Search
from planner.space import parse_space
from planner.store import RunStore

MODELLED = (1, 2, 16, 256, 1000)
INSTANT = 10_000  # candidates that take no time, to see what sending them costs
CANDIDATES = 100_000  # of the search that is modelled
SPACE: dict[str, Any] = {
    "name": "scaling",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "workload": {"preset": "chatbot", "arrival": {"process": "poisson", "rate_rps": 20}, "num_requests": 2000},
    "objectives": [{"minimize": "ttft_p90_ms"}, {"minimize": "gpus"}],
    "space": {"gpu": "H100", "replicas": {"min": 1, "max": 8}, "max_num_seqs": {"min": 8, "max": 256, "step": 8}},
    "search": {"method": "exhaustive"},
}


@dataclass(frozen=True, slots=True)
class Bench:
    """What is evaluated: one candidate again and again, its outcome, and the seconds that its simulation takes."""

    evaluator: Evaluator
    candidate: Parameters
    outcome: Outcome
    each_s: float


def make_bench() -> Bench:
    """Simulates for a second."""
    space = parse_space(SPACE, Path())
    evaluator = make_evaluator(space)
    candidate = space.parameters([len(options) // 2 for options in (v.options for v in space.variables)])
    outcome = evaluator(candidate)
    assert outcome.failed is None
    assert outcome.refused is None
    begin, runs = time.perf_counter(), 0
    while time.perf_counter() - begin < 1.0:
        evaluator(candidate)
        runs += 1
    return Bench(evaluator, candidate, outcome, (time.perf_counter() - begin) / runs)


class Instant:
    """An evaluator that takes no time: what is left is what workers and driver cost."""

    def __init__(self, bench: Bench) -> None:
        self.static_metrics = bench.evaluator.static_metrics
        self.workload = bench.evaluator.workload
        self.request_slo = bench.evaluator.request_slo
        self._outcome = bench.outcome

    def __call__(self, candidate: Parameters | Trial) -> Outcome:
        return self._outcome


@contextmanager
def started(kind: str, evaluate: Any, candidate: Parameters, workers: int) -> Iterator[tuple[Executor, float]]:
    """An executor that has answered once, and the seconds until it had."""
    begin = time.perf_counter()
    executor = make_executor(kind, evaluate, workers)
    try:
        list(executor.run([candidate] * workers, workers))
        yield executor, time.perf_counter() - begin
    finally:
        executor.close()


def rate(executor: Executor, candidate: Parameters, count: int) -> float:
    """Candidates a second, over `count`."""
    begin = time.perf_counter()
    outcomes = list(executor.run([candidate] * count, count))
    assert len(outcomes) == count
    return count / (time.perf_counter() - begin)


def driver_s(bench: Bench) -> float:
    """The driver's time for one result, the log of evaluations included, in a search whose simulations take none."""
    space = parse_space(SPACE, Path())
    evaluator: Any = Instant(bench)
    executor = make_executor("serial", evaluator, 1)
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(Path(folder) / "run")
        store.start({"name": "scaling"}, keep_evaluations=False)
        begin = time.perf_counter()
        found = Search(space, evaluator, executor, store).run()
        took = time.perf_counter() - begin
        store.close()
    return took / len(found.evaluations)


def measure(kind: str, bench: Bench, seconds: float) -> dict[str, float]:
    """What one executor costs, and how one and two of its workers compare."""
    with started(kind, Instant(bench), bench.candidate, 1) as (executor, start_s):
        instant_s = 1 / rate(executor, bench.candidate, INSTANT)
    rates = {}
    for workers in (1, 2):
        count = max(8, round(workers * seconds / bench.each_s))
        with started(kind, bench.evaluator, bench.candidate, workers) as (executor, _):
            rates[workers] = max(rate(executor, bench.candidate, count) for _ in range(2))
    return {
        "start_s": round(start_s, 3),
        "per_candidate_us": round(instant_s * 1e6, 1),
        "rate_1": round(rates[1], 2),
        "rate_2": round(rates[2], 2),
        "efficiency_2": round(rates[2] / (2 * rates[1]), 4),
        "worker_overhead": round(max(0.0, 1 / rates[1] / bench.each_s - 1), 4),
    }


def modelled(start_s: float, each_s: float, driver_each_s: float, sent_each_s: float) -> list[dict[str, float]]:
    """The time of a search of `CANDIDATES` candidates, by workers."""
    serial_s = CANDIDATES * (driver_each_s + sent_each_s)
    rows: list[dict[str, float]] = []
    alone = 0.0  # the time of one worker
    for workers in MODELLED:
        batch = max(1, min(MAX_BATCH, int(BATCH_S / each_s), math.ceil(CANDIDATES / (2 * workers))))
        tail_s = batch * each_s  # the last batches end one after the other
        took = start_s + max(CANDIDATES * each_s / workers, serial_s) + tail_s
        alone = alone or took
        rows.append(
            {
                "workers": workers,
                "hours": round(took / 3600, 4),
                "speed_up": round(alone / took, 1),
                "efficiency": round(alone / took / workers, 3),
                "driver_busy": round(min(1.0, serial_s / (took - start_s)), 3),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="of simulation a measurement, on each worker")
    parser.add_argument("--executors", nargs="+", default=["processes", "ray"], choices=["processes", "ray"])
    arguments = parser.parse_args()
    bench = make_bench()
    driver_each_s = min(driver_s(bench) for _ in range(3))
    print(json.dumps({"processors": cpu_count(), "simulation_ms": round(bench.each_s * 1e3, 2)}), flush=True)
    print(json.dumps({"driver_us_a_result": round(driver_each_s * 1e6, 1)}), flush=True)
    for kind in arguments.executors:
        found = measure(kind, bench, arguments.seconds)
        print(json.dumps({"executor": kind} | found), flush=True)
        for row in modelled(found["start_s"], bench.each_s, driver_each_s, found["per_candidate_us"] * 1e-6):
            print(json.dumps({"executor": kind, "model": f"{CANDIDATES:,} candidates"} | row), flush=True)


if __name__ == "__main__":
    import scaling  # not as __main__: workers must find what they are sent

    scaling.main()
