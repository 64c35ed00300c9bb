"""Simulating single plans on demand: in processes of their own, a few at a time, and each question once."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from planner.service.errors import FieldProblem, ServiceError
from planner.service.search_process import child_environment
from planner.service.settings import Settings

KEPT = 100  # answers a job
LONGEST_ERROR = 4096


class Analyses:
    """Answers questions about plans, and keeps the answers as files beside the job that they are about."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.limits.analyses)
        self._going: dict[Path, asyncio.Task[None]] = {}

    async def answer(self, job: str, question: dict[str, Any], suffix: str = ".json") -> Path:
        """The file with the answer to `question`, a `kind` and what it needs. Raises ServiceError."""
        asked = json.dumps([self._settings.code, question], sort_keys=True)
        name = f"{question['kind']}-{hashlib.sha256(asked.encode()).hexdigest()[:32]}{suffix}"
        path = self._settings.job_dir(job) / "analyses" / name
        if await asyncio.to_thread(path.is_file):
            return path
        task = self._going.get(path)
        if task is None:
            limit = self._settings.limits.analyses_waiting + self._settings.limits.analyses
            if len(self._going) >= limit:
                raise ServiceError(503, "too many plans are being simulated; try again", headers={"Retry-After": "5"})
            task = self._going[path] = asyncio.create_task(self._compute(path, question))
            task.add_done_callback(lambda _: self._going.pop(path, None))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # heard, if nobody waits
        await asyncio.shield(task)  # a client that goes away leaves the answer for the next
        return path

    async def stop(self) -> None:
        """End what is going on."""
        tasks = list(self._going.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _compute(self, path: Path, question: dict[str, Any]) -> None:
        async with self._slots:
            await asyncio.to_thread(self._make_room, path.parent)
            limits = self._settings.limits
            request = question | {
                "out": str(path),
                "runs": str(self._settings.runs),
                "files": None if self._settings.files is None else str(self._settings.files),
                "policies": self._settings.allow_policies,
                "most_requests": limits.analysis_requests,
                "memory_bytes": limits.job_bytes,
            }
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "planner.service.analysis_process",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=self._settings.data,
                env=child_environment(self._settings),
                process_group=0,  # not a session of its own: Linux weighs niceness within one
            )
            try:
                async with asyncio.timeout(limits.analysis_s):
                    output, errors = await process.communicate((json.dumps(request) + "\n").encode())
            except TimeoutError:
                raise ServiceError(504, f"simulating this takes more than {limits.analysis_s:g} s") from None
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
        if process.returncode == 2:
            problem = json.loads(output)
            found = FieldProblem(**problem)
            raise ServiceError(422, f"{found.field}: {found.problem}" if found.field else found.problem, [found])
        if process.returncode != 0 or not path.is_file():
            words = errors.decode("utf-8", errors="replace").strip().splitlines()
            raise ServiceError(500, f"the simulation failed: {words[-1][:LONGEST_ERROR] if words else 'it was killed'}")

    def _make_room(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)
        for file in files[: max(0, len(files) - KEPT + 1)]:
            with contextlib.suppress(OSError):
                os.unlink(file)
