"""The process in which a job's search runs, seen from the service: started, listened to, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from planner.service.job_store import CANCELLED, DONE, FAILED, INTERRUPTED
from planner.service.settings import Settings

LONGEST_LINE = 32 * 1024 * 1024
MOST_LOG = 64 * 1024
SHOWN = 300  # characters of an error that are told
Hear = Callable[[str, dict[str, Any]], None]

BY_CODE = {0: (DONE, None), 130: (INTERRUPTED, "the search was interrupted; what it evaluated is kept")}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a search ended: the job's state, and why where it is not done."""

    state: str
    problem: str | None = None


class SearchProcess:
    """One search, in a process group of its own. Nothing that becomes of it reaches the service."""

    def __init__(self, settings: Settings, job: str) -> None:
        self._settings = settings
        self._job = job
        self._process: asyncio.subprocess.Process | None = None
        self._stopped = False
        self._grace_s = 0.0
        self._killer: asyncio.Task[None] | None = None

    async def run(self, hear: Hear) -> Ended:
        """Search until the end, the time limit, or `stop`; `hear` gets what the search says as it goes."""
        if self._stopped:
            return Ended(CANCELLED)
        folder = self._settings.job_dir(self._job)
        folder.mkdir(parents=True, exist_ok=True)
        limit_s = self._settings.limits.job_s
        with (folder / "log.txt").open("wb") as errors:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "planner.service.child",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=LONGEST_LINE,
                cwd=self._settings.folder if self._settings.files is not None else self._settings.data,
                env=child_environment(self._settings),
                process_group=0,  # not a session of its own: Linux weighs niceness within one
            )
        assert process.stdin is not None
        timed_out = False
        try:
            process.stdin.write(self._request().encode())
            with contextlib.suppress(ConnectionError):  # it has died already
                await process.stdin.drain()
            if self._stopped:
                self._end()
            try:
                async with asyncio.timeout(limit_s):
                    await self._listen(hear)
            except TimeoutError:
                timed_out = True
                self.stop(20.0)
                await self._listen(hear)
            code = await process.wait()
        finally:
            if self._killer is not None:
                self._killer.cancel()
            self._kill()
            process.stdin.close()
        if timed_out and code != 0:
            return Ended(
                INTERRUPTED, f"stopped after {limit_s:g} s, the limit of this service; what it evaluated is kept"
            )
        return self._ended(code)

    def _request(self) -> str:
        settings = self._settings
        folder = settings.job_dir(self._job)
        request = {
            "space": str(folder / "space.json"),
            "out": str(settings.run_dir(self._job)),
            "lock": str(folder),
            "folder": str(settings.folder),
            "policies": settings.allow_policies,
            "workers": settings.workers,
            "requests": settings.limits.requests,
            "memory_bytes": settings.limits.job_bytes,
        }
        return json.dumps(request) + "\n"

    async def _listen(self, hear: Hear) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError:  # longer than any that it writes
                continue
            if not line:
                return
            try:
                event = json.loads(line)
                hear(event["kind"], event["value"])
            except (ValueError, KeyError, TypeError):
                continue  # something else that a user's policy printed

    def _ended(self, code: int) -> Ended:
        if code in BY_CODE:
            return Ended(*BY_CODE[code])
        if code == -signal.SIGTERM:
            return Ended(*BY_CODE[130])
        if code < 0:
            name = signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
            return Ended(FAILED, f"the search's process was killed ({name}): out of memory, most likely")
        return Ended(FAILED, self._last_words() or f"the search's process ended with code {code}")

    def _last_words(self) -> str:
        path = self._settings.job_dir(self._job) / "log.txt"
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MOST_LOG))
            lines = file.read().decode("utf-8", errors="replace").strip().splitlines()
            return lines[-1][:SHOWN] if lines else ""
        return ""

    def stop(self, grace_s: float) -> None:
        """Let it draw up what it has, and end; after `grace_s` it is killed. What it evaluated is kept either way."""
        self._stopped, self._grace_s = True, grace_s
        if self._process is not None:
            self._end()

    def _end(self) -> None:
        assert self._process is not None
        if self._killer is not None:
            return
        if not self._grace_s:
            self._kill()
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        self._killer = asyncio.create_task(self._kill_later())

    async def _kill_later(self) -> None:
        await asyncio.sleep(self._grace_s)
        self._kill()

    def _kill(self) -> None:
        """End it at once; its workers end when their input does."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


def child_environment(settings: Settings) -> dict[str, str]:
    """What a process of the service may know: not its token, nor its database."""
    hidden = ("PLANNER_TOKEN", "PLANNER_DATABASE")
    kept = {name: value for name, value in os.environ.items() if name not in hidden and not name.startswith("PG")}
    # One set of evaluations for all jobs of the service, rather than that of the user who started it.
    kept.setdefault("PLANNER_STORE", str(settings.data / "evaluations.sqlite"))
    kept["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    kept["OMP_NUM_THREADS"] = kept["OPENBLAS_NUM_THREADS"] = "1"
    return kept
