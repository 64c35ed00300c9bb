"""Runs queued jobs, a few at a time, each in a process of its own; takes up again what a restart interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import shutil
import time
from dataclasses import dataclass, field
from typing import Any

from planner.service.channel import Channel
from planner.service.errors import ServiceError, not_found
from planner.service.job_store import (
    CANCELLED,
    DONE,
    ENDED,
    FAILED,
    QUEUED,
    RESUMABLE,
    RUNNING,
    Job,
    JobStore,
)
from planner.service.json_text import to_text
from planner.service.search_process import Ended, SearchProcess
from planner.service.settings import Settings
from planner.service.submission import Checked

MOST_ATTEMPTS = 5  # that a job is taken up again by itself, lest one that kills the service do so for ever
STOP_GRACE_S = 20.0  # for a search to draw up what it has

log = logging.getLogger("planner.service")


@dataclass(slots=True)
class _Running:
    """A job whose search is going on."""

    process: SearchProcess
    progress: dict[str, Any] | None = None
    stopped_as: str | None = None  # the state that whoever stopped it wants
    why: str | None = None
    task: asyncio.Task[None] | None = None
    problems: list[dict[str, Any]] = field(default_factory=list)
    recommended: str | None = None
    label: str | None = None  # of the recommended plan


class Jobs:
    """Everything that happens to jobs. All methods run in the event loop, the database in threads."""

    def __init__(self, settings: Settings, store: JobStore) -> None:
        self.settings = settings
        self.store = store
        self.changes = Channel()  # of every job's state
        self._running: dict[str, _Running] = {}
        self._channels: dict[str, Channel] = {}  # of queued and running jobs
        self._wake = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    # -- start and stop --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up what an earlier service left running, and begin."""
        await asyncio.to_thread(self._recover)
        self._task = asyncio.create_task(self._schedule())

    def _recover(self) -> None:
        for job in self.store.in_state(RUNNING):
            if job.attempts >= MOST_ATTEMPTS:
                why = f"the service ended {job.attempts} times while it ran; resume it to try again"
                self.store.change(job.id, (RUNNING,), state=FAILED, ended_at=time.time(), problem=why)
            else:
                self.store.change(job.id, (RUNNING,), state=QUEUED)  # at its old place in the queue: before the others

    async def stop(self) -> None:
        """Interrupt what runs: it stays `running` in the database, and is taken up at the next start."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        running = list(self._running.values())
        for each in running:
            each.process.stop(0.0)
        for channel in (self.changes, *self._channels.values()):
            channel.close()
        await asyncio.gather(*(each.task for each in running if each.task is not None), return_exceptions=True)

    async def _schedule(self) -> None:
        while True:
            self._wake.clear()
            try:
                while len(self._running) < self.settings.limits.running and await self._start_next():
                    pass
            except Exception:  # of the database: tried again
                log.exception("the queue cannot be read")
                await asyncio.sleep(1.0)
                continue
            await self._wake.wait()

    async def _start_next(self) -> bool:
        for job in await asyncio.to_thread(self.store.in_state, QUEUED):
            values = {"state": RUNNING, "started_at": time.time(), "ended_at": None, "attempts": job.attempts + 1}
            values |= {"problem": None, "problems": []}
            if await asyncio.to_thread(self.store.change, job.id, (QUEUED,), **values):
                running = _Running(SearchProcess(self.settings, job.id))
                self._running[job.id] = running
                running.task = asyncio.create_task(self._run(job.id, running))
                return True
        return False

    # -- one job's life --------------------------------------------------------------------------------------------

    async def _run(self, job: str, running: _Running) -> None:
        try:
            await self._announce(job)
            ended = await running.process.run(lambda kind, value: self._on_event(job, running, kind, value))
        except Exception as error:
            log.exception("job %s", job)
            ended = Ended(FAILED, f"the search could not be run: {error}")
        try:
            await self._finish(job, running, ended)
        except Exception:
            log.exception("the end of job %s could not be kept", job)
        finally:
            self._running.pop(job, None)
            self._wake.set()

    def _on_event(self, job: str, running: _Running, kind: str, value: dict[str, Any]) -> None:
        """What the search's process says."""
        if kind == "progress":
            running.progress = value
        elif kind == "problem":
            running.problems.append(value | {"line": None})
            return
        elif kind == "result":
            running.recommended, running.label = value["recommended"], value["label"]
            return
        key = f"warning {value}" if kind == "warning" else kind  # of warnings each is worth seeing
        self._channels.setdefault(job, Channel()).publish(kind, to_text(value), key)

    async def _finish(self, job: str, running: _Running, ended: Ended) -> None:
        state, why = ended.state, ended.problem
        if state != DONE and running.stopped_as is not None:
            state, why = running.stopped_as, running.why
        elif state != DONE and self._stopping:
            return  # kept as running: the next start takes it up
        if running.problems and state == FAILED:
            why = "; ".join(f"{p['field']}: {p['problem']}" if p["field"] else p["problem"] for p in running.problems)
        values = {"state": state, "ended_at": time.time(), "problem": why, "problems": running.problems}
        values |= {"recommended": running.recommended}
        if running.progress is not None:
            values["progress"] = running.progress

        def keep() -> None:
            found = self.store.get(job)
            if found is not None:
                facts = found.facts | {"recommended_label": running.label}
                self.store.change(job, (RUNNING,), **values, facts=facts)

        await asyncio.to_thread(keep)
        await self._announce(job)

    async def _announce(self, job: str) -> None:
        """Tell whoever watches the job, or all of them, of its new state."""
        found = await asyncio.to_thread(self.store.get, job)
        if found is None:
            return
        text = to_text(await asyncio.to_thread(self.described, found))
        self.changes.publish("job", text, key=job)
        channel = self._channels.get(job)
        if channel is None:
            return
        channel.publish("state", text)
        if found.state in ENDED:
            channel.publish("end", text)
            channel.close()
            del self._channels[job]

    # -- what clients ask for --------------------------------------------------------------------------------------

    async def submit(self, checked: Checked) -> Job:
        """Queue a search of a checked space. Raises ServiceError where the queue is full."""
        space = checked.space
        assert space is not None
        limit = self.settings.limits.queued
        if await asyncio.to_thread(self.store.count, QUEUED) >= limit:
            raise ServiceError(429, f"{limit} searches wait already; try again later", headers={"Retry-After": "30"})
        job = Job(secrets.token_hex(5), space.name, space.model, checked.text)
        job.facts = {
            "objectives": [{"metric": o.metric, "sense": o.sense} for o in space.objectives],
            "constraints": [{"metric": c.metric, "operator": c.operator, "limit": c.limit} for c in space.constraints],
            "combinations": space.size,
        }
        await asyncio.to_thread(self._write, job, checked)
        await asyncio.to_thread(self.store.add, job)
        await self._announce(job.id)
        self._wake.set()
        return job

    def _write(self, job: Job, checked: Checked) -> None:
        assert checked.space is not None
        folder = self.settings.job_dir(job.id)
        folder.mkdir(parents=True)
        (folder / "submitted.yaml").write_text(checked.text, encoding="utf-8", newline="\n")
        (folder / "space.json").write_text(to_text(checked.space.document), encoding="utf-8")

    async def cancel(self, job: str) -> Job:
        """Stop a job, or take it out of the queue. Raises ServiceError unless it is one of these."""
        values = {"state": CANCELLED, "ended_at": time.time()}
        if await asyncio.to_thread(lambda: self.store.change(job, (QUEUED,), **values)):
            await self._announce(job)
            return await self.get(job)
        running = self._running.get(job)
        if running is None:
            found = await self.get(job)
            raise ServiceError(409, f"the job is {found.state}, and so cannot be cancelled")
        if running.stopped_as is None:
            running.stopped_as, running.why = CANCELLED, None
            running.process.stop(STOP_GRACE_S)
        return await self.get(job)

    async def resume(self, job: str) -> Job:
        """Queue a job again that has ended before it was done; it goes on from what is kept."""
        values = {"state": QUEUED, "queued_at": time.time(), "ended_at": None, "attempts": 0, "problem": None}
        if not await asyncio.to_thread(lambda: self.store.change(job, RESUMABLE, **values)):
            found = await self.get(job)
            raise ServiceError(409, f"the job is {found.state}, and so cannot be resumed")
        await self._announce(job)
        self._wake.set()
        return await self.get(job)

    async def delete(self, job: str) -> None:
        """Forget a job that does not run, and what it found."""
        if not await asyncio.to_thread(self.store.delete, job, (QUEUED, *ENDED)):
            await self.get(job)
            raise ServiceError(409, "the job is running: cancel it first")
        await asyncio.to_thread(self._remove, job)
        channel = self._channels.pop(job, None)
        if channel is not None:
            channel.close()
        self.changes.publish("deleted", to_text({"id": job}), key=job)

    def _remove(self, job: str) -> None:
        for folder in (self.settings.run_dir(job), self.settings.job_dir(job)):
            shutil.rmtree(folder, ignore_errors=True)

    async def get(self, job: str) -> Job:
        """The job of that id. Raises ServiceError where there is none."""
        found = self.store.peek(job) or await asyncio.to_thread(self.store.get, job)
        if found is None:
            raise not_found("job", job)
        return found

    async def watch(self, job: str) -> tuple[Job, Channel | None]:
        """A job, and where its events will come; None where it has ended. Raises ServiceError where there is none."""
        found = await self.get(job)
        if found.state in ENDED:
            return found, None
        channel = self._channels.setdefault(job, Channel())
        found = await self.get(job)
        if found.state not in ENDED:
            return found, channel
        # It ended in between: if that has been announced already, nobody will close a channel made since.
        if job not in self._running:
            channel.close()
            self._channels.pop(job, None)
        return found, None

    def described(self, job: Job) -> dict[str, Any]:
        """A job as clients see it."""
        running = self._running.get(job.id)
        progress = job.progress if running is None or running.progress is None else running.progress
        can = {QUEUED: ["cancel", "delete"], RUNNING: ["cancel"], DONE: ["delete"]}.get(job.state, ["resume", "delete"])
        return {
            "id": job.id,
            "name": job.name,
            "model": job.model,
            "state": job.state,
            "created_at": job.created_at,
            "started_at": job.started_at,
            "ended_at": job.ended_at,
            "position": self.store.position(job) if job.state == QUEUED else None,
            "attempts": job.attempts,
            "problem": job.problem,
            "problems": job.problems,
            "progress": progress,
            "objectives": job.facts.get("objectives", []),
            "constraints": job.facts.get("constraints", []),
            "combinations": job.facts.get("combinations"),
            "recommended": job.recommended,
            "recommended_label": job.facts.get("recommended_label"),
            "can": can,
        }
