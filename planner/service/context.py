"""What the routes of one service share."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.responses import Response

from planner.service.analyses import Analyses
from planner.service.errors import not_found
from planner.service.jobs import Jobs
from planner.service.run_cache import Loaded, RunCache
from planner.service.settings import Settings
from planner.service.streams import Streams
from planner.store import Run

JOB_ID = re.compile(r"[0-9a-f]{10}")
PLAN_ID = re.compile(r"[a-z2-7]{10}")


@dataclass(slots=True)
class Service:
    """The parts of a service."""

    settings: Settings
    jobs: Jobs
    runs: RunCache
    streams: Streams
    analyses: Analyses

    async def loaded(self, job: str) -> Loaded:
        """The run of a job. Raises ServiceError where there is no such job, or nothing is evaluated yet."""
        await self.jobs.get(checked_job(job))
        found = self.runs.peek(job)
        return found if found is not None else await asyncio.to_thread(self.runs.get, job)

    async def of_run(self, request: Request, job: str, key: str, make: Callable[[Run], Any]) -> Response:
        """What ``make(run)`` says of a job's run, as JSON; nothing where the client has it already."""
        loaded = await self.loaded(job)
        etag = f'"{loaded.etag}"'
        headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        body = loaded.made(key) or await asyncio.to_thread(loaded.body, key, make)
        return Response(body, headers=headers, media_type="application/json")


def checked_job(job: str) -> str:
    """`job`, if it may be the id of one. Raises ServiceError."""
    if not JOB_ID.fullmatch(job):
        raise not_found("job", job)
    return job


def checked_plan(plan: str) -> str:
    """`plan`, if it may be the id of one. Raises ServiceError."""
    if not PLAN_ID.fullmatch(plan):
        raise not_found("plan", plan)
    return plan


def evaluation_of(run: Run, plan: str) -> dict[str, Any]:
    """The evaluation of a plan. Raises ServiceError where the run has none of that id."""
    found = next((evaluation for evaluation in run.evaluations if evaluation["id"] == plan), None)
    if found is None:
        raise not_found("plan", plan)
    return found


def the_service(request: Request) -> Service:
    """The service that a request came to."""
    service: Service = request.app.state.service
    return service


Here = Annotated[Service, Depends(the_service)]
