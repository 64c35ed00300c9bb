"""A pool of Ray actors on this machine: the workload sent once, candidates in batches."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from planner.evaluate import Outcome
from planner.executors._base import Evaluate
from planner.parameters import Parameters

BATCH_S = 0.5  # a batch this long makes the 1 ms of a Ray task negligible and still reports often
MAX_BATCH = 64
FIRST_BATCH = 4  # before anything is known of how long a candidate takes
IN_FLIGHT = 2  # batches an actor has at hand, so that it never waits for the driver
MAX_TRIES = 3

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "GLOG_minloglevel": "3",
}


class Worker:
    """What runs in an actor: the evaluator, and the import path by which users' policies are found."""

    def __init__(self, evaluate: Evaluate, import_path: list[str]) -> None:
        sys.path[:] = import_path + [entry for entry in sys.path if entry not in import_path]
        self._evaluate = evaluate

    def run(self, candidates: list[Parameters]) -> tuple[list[Outcome], float]:
        """The outcomes, and the seconds they took."""
        start = time.perf_counter()
        return [self._evaluate(candidate) for candidate in candidates], time.perf_counter() - start

    def process_id(self) -> int:
        """Of the process that the actor runs in."""
        return os.getpid()


@dataclass(slots=True)
class _Batch:
    positions: list[int]
    tries: int = 0


class RayExecutor:
    """Evaluates on `workers` actors of the Ray that this process has, or of one started now and ended by `close`.

    A batch whose actor dies is tried again on a new one, its candidates one by one, so that one that kills every
    worker it meets is recorded as failed and costs no other.
    """

    name = "ray"

    def __init__(self, evaluate: Evaluate, workers: int) -> None:
        self.workers = workers
        self._seconds_each = 0.0
        self._started = _start(workers)
        import ray

        self._ray = ray
        self._evaluate = ray.put(evaluate)
        # No CPU is asked of Ray: how many workers there are is decided here, and must not wait for a free slot.
        self._actor_class = ray.remote(num_cpus=0, max_restarts=0)(Worker)
        self._actors = [self._new_actor() for _ in range(workers)]

    def _new_actor(self) -> Any:
        return self._actor_class.remote(self._evaluate, list(sys.path))

    def worker_processes(self) -> list[int]:
        """Process ids of the actors."""
        return list(self._ray.get([actor.process_id.remote() for actor in self._actors]))

    def run(self, candidates: Sequence[Parameters], expected: int) -> Iterator[tuple[int, Outcome]]:
        """Yield (position, outcome) of each candidate as its batch ends."""
        todo: deque[int] = deque(range(len(candidates)))
        again: deque[_Batch] = deque()
        busy: dict[Any, tuple[int, _Batch]] = {}
        load = [0] * self.workers
        while todo or again or busy:
            while (todo or again) and min(load) < IN_FLIGHT:
                slot = load.index(min(load))
                batch = again.popleft() if again else self._next_batch(todo)
                work = [candidates[position] for position in batch.positions]
                busy[self._actors[slot].run.remote(work)] = (slot, batch)
                load[slot] += 1
            done, _ = self._ray.wait(list(busy), num_returns=1)
            slot, batch = busy[done[0]]
            outcomes = self._result(done[0])
            if outcomes is None:
                yield from self._replace(slot, busy, again)
                load[slot] = 0
                continue
            del busy[done[0]]
            load[slot] -= 1
            yield from zip(batch.positions, outcomes, strict=True)

    def _result(self, reference: Any) -> list[Outcome] | None:
        """The outcomes of a batch; None if its actor died. What the evaluator raises is raised: it is our mistake."""
        try:
            outcomes, seconds = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError:
            raise
        except self._ray.exceptions.RayError:
            return None
        self._seconds_each = seconds / len(outcomes)
        return list(outcomes)

    def _next_batch(self, todo: deque[int]) -> _Batch:
        size = FIRST_BATCH if not self._seconds_each else int(BATCH_S / self._seconds_each)
        fair = -(-len(todo) // (2 * self.workers))  # lest the last batches leave workers idle
        size = max(1, min(size, MAX_BATCH, fair))
        return _Batch([todo.popleft() for _ in range(size)])

    def _replace(
        self, slot: int, busy: dict[Any, tuple[int, _Batch]], again: deque[_Batch]
    ) -> Iterator[tuple[int, Outcome]]:
        """Put a new actor in the place of a dead one and queue again what it did not finish.

        It died of the first batch that it did not finish: those come in the order in which they were sent.
        """
        blamed = False
        for reference in [reference for reference, (other, _) in busy.items() if other == slot]:
            batch = busy.pop(reference)[1]
            outcomes = self._result(reference)
            if outcomes is not None:
                yield from zip(batch.positions, outcomes, strict=True)
            elif blamed:
                again.append(batch)
            else:
                blamed = True
                yield from self._blame(batch, again)
        self._actors[slot] = self._new_actor()

    def _blame(self, batch: _Batch, again: deque[_Batch]) -> Iterator[tuple[int, Outcome]]:
        """Queue the candidates of a batch that an actor died of one by one; give up on one tried often enough."""
        for position in batch.positions:
            if batch.tries + 1 >= MAX_TRIES:
                yield position, Outcome({}, failed=f"its worker died {MAX_TRIES} times")
            else:
                again.append(_Batch([position], batch.tries + 1))

    def close(self) -> None:
        """End the actors, and Ray if this executor started it."""
        if self._started:
            self._ray.shutdown()
        else:
            for actor in self._actors:
                self._ray.kill(actor)


def _start(workers: int) -> bool:
    """Start a local Ray unless one runs: quiet, without dashboard or usage reports, our signal handlers left alone."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    import ray

    if ray.is_initialized():
        return False
    ray.init(
        address="local",
        num_cpus=workers,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
        configure_logging=True,
        object_store_memory=256 * 1024 * 1024,
    )
    for number, handler in handlers.items():
        if handler is not None:
            _restore(number, handler)
    return True


def _restore(number: int, handler: Any) -> None:
    try:
        signal.signal(number, handler)
    except ValueError:  # not in the main thread, where Ray could not have changed it either
        return
