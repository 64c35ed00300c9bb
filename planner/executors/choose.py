"""Choosing an executor: by name, or by how long the work turns out to take."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from planner.evaluate import Outcome, Trial
from planner.executors._base import Evaluate, Executor
from planner.executors.process_pool import ProcessExecutor
from planner.executors.serial import SerialExecutor
from planner.parameters import Parameters

POOL_START_S = 0.8  # interpreter, imports and the workload's copy; Ray's start takes four seconds
MIN_SAMPLE_S = 0.25  # of simulation before its speed is believed
WORTH = 0.8  # the pool must be expected to end in this share of the serial time


def cpu_count() -> int:
    """Processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


def make_executor(
    kind: str,
    evaluate: Evaluate,
    workers: int | None,
    ray_address: str | None = None,
    timeout_s: float | None = None,
) -> Executor:
    """The executor called `kind` (auto, serial, processes, ray) with `workers` workers, or one per processor.

    A worker that has not given up a candidate some seconds after `timeout_s` is ended.
    With a `ray_address` it is the cluster there, by default one worker for each of its processors. `auto` never starts
    Ray: on one machine it has nothing over plain processes but a longer start.
    """
    if ray_address is not None:
        from planner.executors.ray_pool import RayExecutor

        return RayExecutor(evaluate, workers, ray_address, timeout_s)
    count = workers or cpu_count()
    if kind == "serial":
        return SerialExecutor(evaluate)
    if kind == "processes":
        return ProcessExecutor(evaluate, count, timeout_s)
    if kind == "ray":
        from planner.executors.ray_pool import RayExecutor

        return RayExecutor(evaluate, count, timeout_s=timeout_s)
    return AutoExecutor(evaluate, count, timeout_s)


class AutoExecutor:
    """Serial while the work that is left is not worth the start of worker processes, these from then on."""

    def __init__(self, evaluate: Evaluate, workers: int, timeout_s: float | None = None) -> None:
        self._evaluate = evaluate
        self._timeout_s = timeout_s
        self._most_workers = workers
        self._inner: Executor = SerialExecutor(evaluate)
        self._spent_s = 0.0
        self._evaluated = 0

    @property
    def name(self) -> str:
        """Of the executor in use."""
        return self._inner.name

    @property
    def workers(self) -> int:
        """Of the executor in use."""
        return self._inner.workers

    def run(self, candidates: Sequence[Parameters | Trial], expected: int) -> Iterator[tuple[int, Outcome]]:
        """Yield (position, outcome) of each candidate as it ends."""
        done = 0
        while done < len(candidates) and self._inner.name == "serial":
            if self._pool_pays(expected - done):
                self._inner = ProcessExecutor(self._evaluate, self._most_workers, self._timeout_s)
                break
            start = time.perf_counter()
            outcome = self._evaluate(candidates[done])
            self._spent_s += time.perf_counter() - start
            self._evaluated += 1
            yield done, outcome
            done += 1
        for position, outcome in self._inner.run(candidates[done:], expected - done):
            yield done + position, outcome

    def _pool_pays(self, left: int) -> bool:
        if self._most_workers < 2 or self._spent_s < MIN_SAMPLE_S:
            return False
        serial_s = left * self._spent_s / self._evaluated
        return POOL_START_S + serial_s / self._most_workers < WORTH * serial_s

    def close(self) -> None:
        """End the workers, if any."""
        self._inner.close()
