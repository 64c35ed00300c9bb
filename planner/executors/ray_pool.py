"""A pool of Ray actors, on this machine or a cluster: the workload sent once, candidates in batches."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import planner
import sim
from planner.evaluate import Outcome, Trial
from planner.executors._base import Evaluate
from planner.executors.batches import GRACE_S, Batch, Batches
from planner.parameters import Parameters
from sim.errors import InputError

IN_FLIGHT = 2  # batches an actor has at hand, so that it never waits for the driver

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

    def run(self, candidates: list[Parameters | Trial]) -> tuple[list[Outcome], float]:
        """The outcomes, and the seconds they took."""
        start = time.perf_counter()
        return [self._evaluate(candidate) for candidate in candidates], time.perf_counter() - start

    def process_id(self) -> int:
        """Of the process that the actor runs in."""
        return os.getpid()


class RayExecutor:
    """Evaluates on `workers` actors of the Ray at `address`, or of one started here now; `close` ends what was started.

    `workers` None is one for each processor of the cluster.

    A batch whose actor dies is tried again on a new one, its candidates one by one, so that one that kills every
    worker it meets is recorded as failed and costs no other.
    """

    name = "ray"

    def __init__(
        self, evaluate: Evaluate, workers: int | None, address: str | None = None, timeout_s: float | None = None
    ) -> None:
        self._timeout_s = timeout_s
        self._started = _start(workers, address)
        import ray

        self.workers = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._batches = Batches(self.workers)
        self._ray = ray
        self._evaluate = ray.put(evaluate)
        # On this machine no CPU is asked of Ray: how many workers there are is decided here, and must not wait for a
        # free slot. On a cluster an actor takes one, so that they spread over the nodes.
        cpus = 0 if address is None else 1
        self._actor_class = ray.remote(num_cpus=cpus, max_restarts=0, scheduling_strategy="SPREAD")(Worker)
        self._actors = [self._new_actor() for _ in range(self.workers)]
        self._ready = [actor.process_id.remote() for actor in self._actors]  # there once it has started

    def _new_actor(self, **options: Any) -> Any:
        return self._actor_class.options(**options).remote(self._evaluate, list(sys.path))

    def worker_processes(self) -> list[int]:
        """Process ids of the actors."""
        return list(self._ray.get([actor.process_id.remote() for actor in self._actors]))

    def run(self, candidates: Sequence[Parameters | Trial], expected: int) -> Iterator[tuple[int, Outcome]]:
        """Yield (position, outcome) of each candidate as its batch ends."""
        batches = self._batches
        batches.start(len(candidates))
        busy: dict[Any, tuple[int, Batch]] = {}
        load = [0] * self.workers
        since = [0.0] * self.workers  # when each came to the first of its batches
        while batches.left or busy:
            while batches.left and min(load) < IN_FLIGHT:
                slot = load.index(min(load))
                batch = batches.next()
                work = [candidates[position] for position in batch.positions]
                busy[self._actors[slot].run.remote(work)] = (slot, batch)
                load[slot] += 1
                if load[slot] == 1:
                    since[slot] = time.monotonic()
            done, _ = self._ray.wait(list(busy), num_returns=1, timeout=self._patience_s(since, load))
            if not done:
                for slot in self._overdue(since, load):
                    self._ray.kill(self._actors[slot])
                    yield from self._replace(slot, busy, self._timeout_s)
                    load[slot] = 0
                continue
            slot, batch = busy[done[0]]
            outcomes = self._result(done[0])
            if outcomes is None:
                yield from self._replace(slot, busy)
                load[slot] = 0
                continue
            del busy[done[0]]
            load[slot] -= 1
            since[slot] = time.monotonic()
            yield from zip(batch.positions, outcomes, strict=True)

    def _result(self, reference: Any) -> list[Outcome] | None:
        """The outcomes of a batch; None if its actor died. What the evaluator raises is raised: it is our mistake."""
        try:
            outcomes, seconds = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError:
            raise
        except self._ray.exceptions.RayError:
            return None
        self._batches.took(seconds / len(outcomes))
        return list(outcomes)

    def _patience_s(self, since: Sequence[float], load: Sequence[int]) -> float | None:
        """How long to wait for an answer, before some actor is overdue; None: for ever."""
        if self._timeout_s is None:
            return None
        first = min(start for start, batches in zip(since, load, strict=True) if batches)
        return max(0.0, first + self._timeout_s + GRACE_S - time.monotonic())

    def _overdue(self, since: list[float], load: Sequence[int]) -> list[int]:
        """Slots of the actors that do not come back. One that has not started yet is given its time from now on."""
        limit = time.monotonic() - GRACE_S - (self._timeout_s or 0.0)
        found = []
        for slot, start in enumerate(since):
            if load[slot] and start <= limit:
                if self._ray.wait([self._ready[slot]], timeout=0)[0]:
                    found.append(slot)
                else:
                    since[slot] = time.monotonic()
        return found

    def _replace(
        self, slot: int, busy: dict[Any, tuple[int, Batch]], too_long_s: float | None = None
    ) -> Iterator[tuple[int, Outcome]]:
        """Put a new actor in the place of a dead one and deal out again what it did not finish."""
        unfinished = []  # in the order in which they were sent
        for reference in [reference for reference, (other, _) in busy.items() if other == slot]:
            batch = busy.pop(reference)[1]
            outcomes = self._result(reference)
            if outcomes is None:
                unfinished.append(batch)
            else:
                yield from zip(batch.positions, outcomes, strict=True)
        # It takes no processor from Ray: that of a node that is gone will not come back.
        self._actors[slot] = self._new_actor(num_cpus=0)
        self._ready[slot] = self._actors[slot].process_id.remote()
        yield from self._batches.died(unfinished, too_long_s)

    def close(self) -> None:
        """End the actors, and Ray if this executor started it."""
        if self._started:
            self._ray.shutdown()
        else:
            for actor in self._actors:
                self._ray.kill(actor)


def _start(workers: int | None, address: str | None) -> bool:
    """Join the cluster at `address`, or start a local Ray unless this process has one: quiet, without dashboard or
    reports, our signal handlers left alone. Raises InputError where there is no cluster at the address."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    import ray

    if ray.is_initialized():
        return False
    common: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": True}
    if address is not None:
        # Nodes need the planner installed; a checkout that is only here is sent along.
        package = str(Path(planner.__file__).parent)
        simulator = str(Path(sim.__file__).parent)
        environment = {"py_modules": [package, simulator]} if address.startswith("ray://") else {}
        try:
            ray.init(address=address, runtime_env=environment, **common)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InputError("--ray-address", f"no Ray cluster at {address}: {' '.join(str(error).split())}") from None
    else:
        ray.init(
            address="local",
            num_cpus=workers,
            include_dashboard=False,
            object_store_memory=256 * 1024 * 1024,
            **common,
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
