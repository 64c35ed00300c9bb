"""Runs as they were last read: read again when their files have changed, and no more often than that."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.evaluation_log import EVALUATIONS
from planner.service.errors import ServiceError
from planner.service.evaluations import EvaluationsFile
from planner.service.json_text import to_text
from planner.store import FRONT, MANIFEST, Run, load_run
from sim.errors import InputError

KEPT = 16  # runs in memory
READ_EVERY_S = 1.0  # of a run that is being written, and more seldom the more there is to read:
SHARE = 0.05  # of the time, at most, goes into following one run
NOTHING = "nothing is evaluated yet"
KEPT_BODIES = 32  # answers a run

Stamp = tuple[tuple[int, int, int], ...]


@dataclass(slots=True)
class Loaded:
    """A run, and the answers made from it."""

    run: Run
    stamp: Stamp
    complete: bool
    spent_s: float = 0.0  # on reading it and making answers from it
    bodies: OrderedDict[str, bytes] = field(default_factory=OrderedDict)

    @property
    def etag(self) -> str:
        """Changes with the files of the run."""
        return f"{hash(self.stamp) & 0xFFFFFFFFFFFF:x}"

    def made(self, key: str) -> bytes | None:
        """The JSON that `body` has made for `key`, if it has."""
        return self.bodies.get(key)

    def body(self, key: str, make: Callable[[Run], Any]) -> bytes:
        """The JSON of ``make(run)``, made once."""
        found = self.bodies.get(key)
        if found is None:
            start = time.perf_counter()
            found = to_text(make(self.run)).encode()
            self.spent_s += time.perf_counter() - start
            self.bodies[key] = found
            while len(self.bodies) > KEPT_BODIES:
                self.bodies.popitem(last=False)
        return found


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock
    file: EvaluationsFile
    loaded: Loaded | None = None
    read_at: float = 0.0

    def holds(self, path: Path) -> bool:
        """Whether what was read of a run that is being written need not be read again yet."""
        if self.loaded is None or self.loaded.complete or (path / FRONT).exists():
            return False
        return time.monotonic() - self.read_at < max(READ_EVERY_S, self.loaded.spent_s / SHARE)


class RunCache:
    """The runs below a folder. May be used from any thread; each run is read by one of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def peek(self, job: str) -> Loaded | None:
        """The run of a job if what was read of it still holds: no waiting for a disk."""
        entry = self._entries.get(job)
        loaded = None if entry is None else entry.loaded
        if entry is None or loaded is None:
            return None
        if entry.holds(self._folder / job):
            return loaded
        return loaded if loaded.stamp == stamp_of(self._folder / job) else None

    def get(self, job: str) -> Loaded:
        """The run of a job as it is now. Raises ServiceError where nothing is evaluated yet."""
        path = self._folder / job
        with self._lock:
            entry = self._entries.get(job)
            if entry is None:
                entry = self._entries[job] = _Entry(threading.Lock(), EvaluationsFile(path))
            self._entries.move_to_end(job)
            while len(self._entries) > KEPT:
                self._entries.popitem(last=False)
        with entry.lock:
            if entry.loaded is not None and entry.holds(path):
                return entry.loaded
            stamp = stamp_of(path)
            if entry.loaded is None or entry.loaded.stamp != stamp:
                entry.loaded = self._read(path, entry.file, stamp)
                entry.read_at = time.monotonic()
            return entry.loaded

    def _read(self, path: Path, file: EvaluationsFile, stamp: Stamp) -> Loaded:
        start = time.perf_counter()
        try:
            run = load_run(path, file.all())
        except InputError:
            raise ServiceError(409, NOTHING) from None
        complete = (path / FRONT).exists()
        if not run.evaluations and not complete:
            raise ServiceError(409, NOTHING)
        return Loaded(run, stamp, complete, time.perf_counter() - start)

    def forget(self, job: str) -> None:
        """A job is gone, and its run with it."""
        with self._lock:
            self._entries.pop(job, None)


def stamp_of(path: Path) -> Stamp:
    """What changes when a file of the run does."""
    found = []
    for name in (MANIFEST, EVALUATIONS, FRONT):
        try:
            status = (path / name).stat()
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        except OSError:
            found.append((0, 0, 0))
    return tuple(found)
