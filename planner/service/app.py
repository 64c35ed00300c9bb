"""The application: its parts put together, from the gate to the routes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from planner.run_lock import RunLock
from planner.service import pages, routes_jobs, routes_results, routes_service
from planner.service.analyses import Analyses
from planner.service.context import Service
from planner.service.database import open_database
from planner.service.errors import MEDIA_TYPE, FieldProblem, Problem, ServiceError, problem_response
from planner.service.job_store import JobStore
from planner.service.jobs import Jobs
from planner.service.json_text import JsonResponse
from planner.service.run_cache import RunCache
from planner.service.security import API, Gate
from planner.service.settings import Settings
from planner.service.streams import Streams
from sim.errors import InputError
from sim.version import __version__

DESCRIPTION = (
    "Searches for LLM serving plans: submit a space, watch the search, read the front. Every answer from 400 on is an "
    "RFC 9457 problem document. POST needs Content-Type: application/json. Where the service has a token, send it as "
    "Authorization: Bearer."
)

log = logging.getLogger("planner.service")


def create_app(settings: Settings) -> FastAPI:
    """The application of a service; its jobs run from startup to shutdown. Where its folder or database cannot be used
    it does not start, and `app.state.refusal` says why."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            async with _running(settings) as app.state.service:
                yield
        except InputError as error:
            app.state.refusal = error  # for who started it: a server only logs it
            raise

    app = FastAPI(
        title="LLM serving planner",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own load scripts from elsewhere
        redoc_url=None,
        default_response_class=JsonResponse,
        redirect_slashes=False,
    )
    problem = {"model": Problem, "content": {MEDIA_TYPE: {}}}
    common = dict.fromkeys((400, 401, 403, 404, 413, 415, 422), problem)
    for part, tag in ((routes_service, "service"), (routes_jobs, "jobs"), (routes_results, "results")):
        app.include_router(part.router, prefix=API, tags=[tag], responses=common)  # type: ignore[arg-type]
    app.include_router(pages.router)
    _handle_errors(app)
    app.add_middleware(Gate, settings=settings)
    return app


@asynccontextmanager
async def _running(settings: Settings) -> AsyncIterator[Service]:
    """The parts of a service, while it runs. Raises InputError where its folder or database cannot be used."""
    lock = _claim(settings)
    try:
        store = JobStore(open_database(settings.database, settings.data / "jobs.sqlite"))
        try:
            jobs, analyses = Jobs(settings, store), Analyses(settings)
            await jobs.start()
            yield Service(settings, jobs, RunCache(settings.runs), Streams(settings.limits.streams), analyses)
            await analyses.stop()
            await jobs.stop()
        finally:
            store.close()
    finally:
        lock.release()


def _claim(settings: Settings) -> RunLock:
    """Make the service's folder its own. Raises InputError where it cannot be, or another service has it."""
    try:
        for folder in (settings.runs, settings.jobs):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("--data", f"{settings.data} cannot be written: {error.strerror or error}") from None
    lock = RunLock(settings.data)
    try:
        lock.acquire()
    except InputError:
        raise InputError("--data", f"{settings.data} is in use by another service; give another folder") from None
    return lock


def _handle_errors(app: FastAPI) -> None:
    """Whatever goes wrong is told as a problem document."""

    @app.exception_handler(ServiceError)
    async def service_error(request: Request, error: ServiceError) -> Response:
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        problems = [
            FieldProblem(field=".".join(str(part) for part in each["loc"][1:]), problem=str(each["msg"]))
            for each in error.errors()
        ]
        broken = any(each["type"] == "json_invalid" for each in error.errors())
        first = problems[0]
        detail = f"{first.field}: {first.problem}" if first.field and not broken else first.problem
        return problem_response(400 if broken else 422, detail, problems)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        detail = {404: "there is nothing here", 405: "this cannot be done here"}.get(error.status_code, error.detail)
        return problem_response(error.status_code, detail, headers=error.headers)

    @app.exception_handler(Exception)
    async def failure(request: Request, error: Exception) -> Response:
        log.error("%s %s", request.method, request.url.path, exc_info=error)
        return problem_response(500, "the service failed at this; its log says more")
