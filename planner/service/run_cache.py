"""Runs as they were last read: read again when their files have changed, and no more often than that."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.service.errors import ServiceError
from planner.service.evaluations import EvaluationsFile
from planner.service.json_text import to_text
from planner.store import EVALUATIONS, FRONT, MANIFEST, Run, load_run
from sim.errors import InputError

KEPT = 16  # runs in memory
READ_EVERY_S = 1.0  # of a run that is being written
KEPT_BODIES = 32  # answers a run

Stamp = tuple[tuple[int, int, int], ...]


@dataclass(slots=True)
class Loaded:
    """A run, and the answers made from it."""

    run: Run
    stamp: Stamp
    complete: bool
    bodies: OrderedDict[str, bytes] = field(default_factory=OrderedDict)

    @property
    def etag(self) -> str:
        """Changes with the files of the run."""
        return f"{hash(self.stamp) & 0xFFFFFFFFFFFF:x}"

    def body(self, key: str, make: Callable[[Run], Any]) -> bytes:
        """The JSON of ``make(run)``, made once."""
        found = self.bodies.get(key)
        if found is None:
            found = to_text(make(self.run)).encode()
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


class RunCache:
    """The runs below a folder. May be used from any thread; each run is read by one of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

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
            recently = time.monotonic() - entry.read_at < READ_EVERY_S
            if entry.loaded is not None and (recently and not entry.loaded.complete):
                return entry.loaded
            stamp = stamp_of(path)
            if entry.loaded is None or entry.loaded.stamp != stamp:
                entry.loaded = self._read(path, entry.file, stamp)
                entry.read_at = time.monotonic()
            return entry.loaded

    def _read(self, path: Path, file: EvaluationsFile, stamp: Stamp) -> Loaded:
        try:
            run = load_run(path, file.all())
        except InputError:
            raise ServiceError(409, "nothing is evaluated yet") from None
        return Loaded(run, stamp, complete=(path / FRONT).exists())

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
