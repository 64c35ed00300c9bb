"""A pool of worker processes on this machine: started in well under a second, the workload sent once."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import IO, Any

from planner.evaluate import Outcome, Trial
from planner.executors._base import Evaluate
from planner.executors.batches import GRACE_S, Batch, Batches
from planner.parameters import Parameters

IN_FLIGHT = 2  # batches a worker has at hand, so that it never waits for the driver
MOST_STILLBORN = 8
READY = "ready"  # the first answer of a worker


class _Worker:
    """One worker process, and the thread that brings its answers; an answer of None says that it has died."""

    def __init__(self, slot: int, greeting: bytes, answers: queue.SimpleQueue[tuple[_Worker, Any]]) -> None:
        self.slot = slot
        self.batches: deque[Batch] = deque()  # sent and not answered, in order
        self.since = math.inf  # when it came to the first of them; never before it has started
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from planner.executors.process_pool import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # a Ctrl-C at the terminal is for the driver alone
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)},
        )
        self._answers = answers
        self._send(greeting)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def process_id(self) -> int:
        """Of the process."""
        return self._process.pid

    def _send(self, message: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has died: whoever listens to it will notice
            self._process.stdin.write(message)
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        while True:
            try:
                answer = pickle.load(self._process.stdout)
            except (EOFError, OSError, pickle.UnpicklingError):
                self._answers.put((self, None))
                return
            self._answers.put((self, answer))

    def run(self, batch: Batch, candidates: list[Parameters | Trial]) -> None:
        """Send it a batch."""
        if not self.batches and self.since < math.inf:
            self.since = time.monotonic()
        self.batches.append(batch)
        self._send(pickle.dumps(candidates))

    def started(self) -> None:
        """It has what it needs, and comes to its first batch."""
        self.since = time.monotonic()

    def answered(self) -> Batch:
        """The batch that its answer is to."""
        self.since = time.monotonic()
        return self.batches.popleft()

    def end(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was buffered for a worker that has died
                    pipe.close()


class ProcessExecutor:
    """Evaluates on `workers` processes of this machine, each with its own copy of the evaluator.

    A batch whose worker dies is tried again on a new one, its candidates one by one, so that one that kills every
    worker it meets is recorded as failed and costs no other. So is a batch that takes `timeout_s` longer than it may.
    """

    name = "processes"

    def __init__(self, evaluate: Evaluate, workers: int, timeout_s: float | None = None) -> None:
        self.workers = workers
        self._timeout_s = timeout_s
        self._greeting = pickle.dumps(evaluate, protocol=pickle.HIGHEST_PROTOCOL)
        self._answers: queue.SimpleQueue[tuple[_Worker, Any]] = queue.SimpleQueue()
        self._batches = Batches(workers)
        self._pool = [_Worker(slot, self._greeting, self._answers) for slot in range(workers)]

    def worker_processes(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process_id for worker in self._pool]

    def run(self, candidates: Sequence[Parameters | Trial], expected: int) -> Iterator[tuple[int, Outcome]]:
        """Yield (position, outcome) of each candidate as its batch ends."""
        batches = self._batches
        batches.start(len(candidates))
        stillborn = 0  # workers in a row that could not start
        for worker in self._pool:  # an earlier run may have been left half done
            if worker.batches:
                self._replace(worker)
        while batches.left or any(worker.batches for worker in self._pool):
            self._feed(candidates)
            try:
                worker, answer = self._answers.get(timeout=self._patience_s())
            except queue.Empty:
                yield from self._end_overdue()
                continue
            if worker is not self._pool[worker.slot]:
                continue  # the last words of one that was replaced
            if answer == READY:
                worker.started()
                stillborn = 0
                continue
            if answer is None:
                stillborn += worker.since == math.inf
                if stillborn > MOST_STILLBORN:
                    raise RuntimeError(f"{stillborn} worker processes in a row ended before they were ready")
                sent = worker.batches
                self._replace(worker)
                yield from batches.died(sent)
                continue
            if isinstance(answer, BaseException):
                raise answer
            outcomes, seconds = answer
            batch = worker.answered()
            batches.took(seconds / len(outcomes))
            yield from zip(batch.positions, outcomes, strict=True)

    def _feed(self, candidates: Sequence[Parameters | Trial]) -> None:
        while self._batches.left:
            worker = min(self._pool, key=lambda w: len(w.batches))
            if len(worker.batches) >= IN_FLIGHT:
                return
            batch = self._batches.next()
            worker.run(batch, [candidates[position] for position in batch.positions])

    def _patience_s(self) -> float | None:
        """How long to wait for an answer, before some worker is overdue; None: for ever."""
        if self._timeout_s is None:
            return None
        since = min(worker.since for worker in self._pool if worker.batches)
        return None if since == math.inf else max(0.0, since + self._timeout_s + GRACE_S - time.monotonic())

    def _end_overdue(self) -> Iterator[tuple[int, Outcome]]:
        """Replace the workers that do not come back."""
        assert self._timeout_s is not None
        for worker in list(self._pool):
            if worker.batches and time.monotonic() - worker.since >= self._timeout_s + GRACE_S:
                self._replace(worker)
                yield from self._batches.died(worker.batches, self._timeout_s)

    def _replace(self, worker: _Worker) -> None:
        worker.end()
        self._pool[worker.slot] = _Worker(worker.slot, self._greeting, self._answers)

    def close(self) -> None:
        """End the workers."""
        for worker in self._pool:
            worker.end()


def serve() -> None:
    """What a worker process does: read the evaluator, then batches, until there are no more; answer each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C on the terminal is the driver's to handle
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a user's policy prints must not end up among the answers
    evaluate = pickle.load(source)
    pickle.dump(READY, target)
    target.flush()
    while (candidates := _next(source)) is not None:
        start = time.perf_counter()
        answer: Any
        try:
            answer = ([evaluate(candidate) for candidate in candidates], time.perf_counter() - start)
        except Exception as error:  # our mistake: an evaluator reports what a candidate does wrong
            answer = error
        try:
            pickle.dump(answer, target)
            target.flush()
        except OSError:
            break  # the driver has gone
    os._exit(0)


def _next(source: IO[bytes]) -> list[Parameters | Trial] | None:
    try:
        return list(pickle.load(source))
    except (EOFError, OSError):
        return None
