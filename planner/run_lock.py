"""Keeps two searches from writing one run directory at the same time."""

from __future__ import annotations

import os
from pathlib import Path

from sim.errors import InputError


class RunLock:
    """Held by the one search that writes a directory, and let go when its process ends, however it ends.

    The lock is on the directory itself and leaves no file. Where there are no such locks (Windows, some network file
    systems) it holds nobody back.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock of the existing directory. Raises InputError where another search has it."""
        try:
            import fcntl
        except ImportError:
            return
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            problem = f"{self._path} is being written by another search; wait for its end, or give another --out"
            raise InputError("--out", problem) from None
        except OSError:
            os.close(descriptor)
            return
        self._descriptor = descriptor

    def release(self) -> None:
        """Let the lock go, if it is held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
