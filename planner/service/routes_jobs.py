"""Routes about jobs: submit, list, watch, cancel, resume, delete."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from planner.service.child import MOST_POINTS
from planner.service.context import Here, Service, checked_job
from planner.service.errors import ServiceError
from planner.service.job_store import QUEUED
from planner.service.job_store import Job as KeptJob
from planner.service.json_text import to_text
from planner.service.schemas import Job, JobDetail, JobList, Nothing, State, Submission
from planner.service.streams import ended, last_seen, live
from planner.service.submission import check
from planner.service.views import front_points

MOST_JOBS = 200
EVENT = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
    "description": "data is JSON",
}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "server-sent events", "content": {"text/event-stream": {"schema": EVENT}}},
    503: {"description": "too many streams are open"},
}

router = APIRouter()


async def _described(service: Service, job: KeptJob) -> dict[str, Any]:
    if job.state != QUEUED:  # whose place in the queue the database knows
        return service.jobs.described(job)
    return await asyncio.to_thread(service.jobs.described, job)


@router.post("/jobs", status_code=201, responses={429: {"description": "the queue is full"}})
async def submit(body: Submission, response: Response, service: Here) -> Job:
    """Queue a search."""
    checked = await asyncio.to_thread(check, body.given, service.settings, body.name)
    if checked.space is None:
        first = checked.problems[0]
        detail = f"{first.field}: {first.problem}" if first.field else first.problem
        raise ServiceError(422, detail, checked.problems)
    job = await service.jobs.submit(checked)
    response.headers["Location"] = f"/api/v1/jobs/{job.id}"
    return Job.model_validate(await _described(service, job))


@router.get("/jobs")
async def list_jobs(
    service: Here,
    state: Annotated[str, Query(max_length=100, description="states, with commas between them; empty: all")] = "",
    q: Annotated[str, Query(max_length=100, description="in the name or the model")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_JOBS)] = 50,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> JobList:
    """Jobs, newest first."""
    states = [each for each in state.split(",") if each]
    unknown = set(states) - set(get_args(State))
    if unknown:
        raise ServiceError(422, f"state: must be among {', '.join(get_args(State))}, got {min(unknown)!r}")
    text = q.replace("\0", "").encode(errors="ignore").decode()

    def read() -> dict[str, Any]:
        jobs, total = service.jobs.store.page(states, text, limit, offset)
        described = [service.jobs.described(job) for job in jobs]
        return {"jobs": described, "total": total, "limit": limit, "offset": offset}

    return JobList.model_validate(await asyncio.to_thread(read))


@router.get("/jobs/{job}")
async def get_job(job: str, service: Here) -> JobDetail:
    """A job, with the text that was submitted."""
    found = await service.jobs.get(checked_job(job))
    return JobDetail.model_validate(await _described(service, found) | {"yaml": found.yaml})


@router.delete("/jobs/{job}", status_code=204, responses={409: {"description": "it is running"}})
async def delete_job(job: str, service: Here) -> None:
    """Forget a job and what it found."""
    await service.jobs.delete(checked_job(job))
    service.runs.forget(job)


@router.post("/jobs/{job}/cancel", status_code=202, responses={409: {"description": "it has ended"}})
async def cancel(job: str, body: Nothing, service: Here) -> Job:
    """Stop a job; what it has evaluated is kept."""
    return Job.model_validate(await _described(service, await service.jobs.cancel(checked_job(job))))


@router.post("/jobs/{job}/resume", status_code=202, responses={409: {"description": "it runs, or is done"}})
async def resume(job: str, body: Nothing, service: Here) -> Job:
    """Queue a job again that was cancelled, interrupted or failed; it goes on from what is kept."""
    return Job.model_validate(await _described(service, await service.jobs.resume(checked_job(job))))


@router.get("/jobs/{job}/events", responses=STREAM, response_class=Response)
async def job_events(job: str, request: Request, service: Here) -> Response:
    """What happens to a job, as server-sent events: `state`, `progress`, `front`, `warning`, `end`.

    The data of each is a whole value. `Last-Event-ID` leaves out what has been seen.
    """
    found, channel = await service.jobs.watch(checked_job(job))
    state = to_text(await _described(service, found))
    if channel is not None:
        return service.streams.respond(live(channel, state, last_seen(request)))
    front = await asyncio.to_thread(_front, service, job)
    return service.streams.respond(ended(state, front, found.ended_at or 0.0))


def _front(service: Service, job: str) -> str | None:
    try:
        loaded = service.runs.get(job)
    except ServiceError:
        return None
    return loaded.body("front event", lambda run: front_points(run, MOST_POINTS)).decode()


@router.get("/events", responses=STREAM, response_class=Response)
async def all_events(request: Request, service: Here) -> Response:
    """Changes of every job's state, as server-sent events: `job` and `deleted`, from now on or from `Last-Event-ID`."""
    changes = service.jobs.changes
    seen = last_seen(request)
    return service.streams.respond(changes.after(changes.last if seen is None else seen))
