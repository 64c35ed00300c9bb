"""Executors: the same outcomes whoever evaluates, and no outcome lost when a worker dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.evaluate import Outcome
from planner.executors import Executor, make_executor
from planner.executors.choose import AutoExecutor
from planner.executors.process_pool import ProcessExecutor
from planner.executors.serial import SerialExecutor
from planner.parameters import Parameters

ray = pytest.importorskip("ray")


class Squares:
    """Evaluates to the square of a candidate's number; slow or deadly where the candidate says so."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def __call__(self, parameters: Parameters) -> Outcome:
        if "sleep_s" in parameters:
            time.sleep(parameters["sleep_s"])
        if parameters.get("deadly"):
            mark = self.folder / "died-once" if self.folder is not None else None
            if mark is None or not mark.exists():
                if mark is not None:
                    mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return Outcome({"square": float(parameters["n"] ** 2), "process": float(os.getpid())})


def numbers(executor: Executor, candidates: list[Parameters]) -> list[float]:
    """The squares in the order of the candidates."""
    outcomes = dict(executor.run(candidates, len(candidates)))
    assert sorted(outcomes) == list(range(len(candidates)))
    return [outcomes[position].metrics.get("square", -1.0) for position in range(len(candidates))]


@pytest.fixture(scope="module", params=["processes", "ray"])
def pool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    executor = make_executor(request.param, Squares(tmp_path_factory.mktemp(request.param)), 2)
    yield executor
    executor.close()


CANDIDATES: list[Parameters] = [{"n": n} for n in range(150)]


def test_a_pool_evaluates_every_candidate_once_and_as_serial_does(pool: Executor) -> None:
    assert numbers(pool, CANDIDATES) == numbers(SerialExecutor(Squares()), CANDIDATES)


def test_a_pool_spreads_work_over_its_workers(pool: Executor) -> None:
    outcomes = pool.run([{"n": n, "sleep_s": 0.05} for n in range(16)], 16)
    processes = {outcome.metrics["process"] for _, outcome in outcomes}
    assert len(processes) == 2
    assert float(os.getpid()) not in processes


def test_a_killed_worker_costs_no_candidate(pool: Executor) -> None:
    candidates = [{"n": n, "deadly": n == 7} for n in range(60)]
    assert numbers(pool, candidates) == [float(n**2) for n in range(60)]


def test_a_worker_killed_from_outside_costs_no_candidate(pool: Executor) -> None:
    outcomes: dict[int, Outcome] = {}
    candidates = [{"n": n, "sleep_s": 0.03} for n in range(80)]
    for position, outcome in pool.run(candidates, len(candidates)):
        if not outcomes:
            os.kill(int(outcome.metrics["process"]), signal.SIGKILL)
        assert position not in outcomes
        outcomes[position] = outcome
    assert [outcomes[n].metrics["square"] for n in range(80)] == [float(n**2) for n in range(80)]


@pytest.mark.parametrize("kind", ["processes", "ray"])
def test_a_candidate_that_kills_every_worker_is_recorded_as_failed_and_costs_no_other(kind: str) -> None:
    executor = make_executor(kind, Squares(), 2)  # without a folder, the deadly one is deadly each time
    try:
        outcomes = dict(executor.run([{"n": n, "deadly": n == 5} for n in range(20)], 20))
    finally:
        executor.close()
    assert "died" in (outcomes[5].failed or "")
    assert [outcomes[n].metrics["square"] for n in range(20) if n != 5] == [float(n**2) for n in range(20) if n != 5]


def test_auto_stays_in_this_process_while_the_work_is_small() -> None:
    executor = AutoExecutor(Squares(), workers=2)
    assert numbers(executor, CANDIDATES) == [float(n["n"] ** 2) for n in CANDIDATES]
    assert executor.name == "serial"


def test_auto_starts_processes_when_the_work_left_is_worth_it_and_loses_nothing() -> None:
    executor = AutoExecutor(Squares(), workers=2)
    candidates = [{"n": n, "sleep_s": 0.3} for n in range(8)]
    outcomes = {}
    try:
        for position, outcome in executor.run(candidates, expected=1000):
            outcomes[position] = outcome
        assert executor.name == "processes"
        assert executor.workers == 2
    finally:
        executor.close()
    assert [outcomes[n].metrics["square"] for n in range(8)] == [float(n**2) for n in range(8)]


def test_auto_with_one_worker_never_starts_others() -> None:
    executor = AutoExecutor(Squares(), workers=1)
    list(executor.run([{"n": 1, "sleep_s": 1.1}, {"n": 2}], expected=10**6))
    assert executor.name == "serial"


def test_a_run_that_was_left_half_done_leaves_nothing_for_the_next(pool: Executor) -> None:
    for _ in pool.run([{"n": n, "sleep_s": 0.02} for n in range(40)], 40):
        break
    assert numbers(pool, [{"n": n} for n in range(100, 120)]) == [float(n**2) for n in range(100, 120)]


class Unloadable:
    """An evaluator that no worker can unpickle."""

    def __call__(self, candidate: Parameters) -> Outcome:
        return Outcome({})

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return (int, ("no number",))


def test_workers_that_cannot_start_are_not_started_for_ever() -> None:
    executor = make_executor("processes", Unloadable(), 1)
    try:
        with pytest.raises(RuntimeError, match="ended before they were ready"):
            list(executor.run([{"n": n} for n in range(100)], 100))
    finally:
        executor.close()


def test_what_an_evaluator_raises_is_raised() -> None:
    executor = make_executor("processes", Squares(), 1)
    try:
        with pytest.raises(KeyError):
            list(executor.run([{"no n": 1}], 1))
    finally:
        executor.close()


def test_a_ctrl_c_at_the_terminal_reaches_the_driver_and_no_worker() -> None:
    executor = ProcessExecutor(len, 1)  # type: ignore[arg-type]
    try:
        assert [os.getpgid(worker) for worker in executor.worker_processes()] != [os.getpgrp()]
    finally:
        executor.close()
