"""Routes about the service itself: that it lives, what it knows, who may ask."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from planner.service.context import Here
from planner.service.errors import ServiceError
from planner.service.form_catalog import catalog, examples
from planner.service.json_text import JsonResponse
from planner.service.schemas import (
    Examples,
    Health,
    Login,
    ServiceLimits,
    Session,
    SpaceFacts,
    SpaceInput,
    Validation,
    Version,
)
from planner.service.security import COOKIE, SESSION_S, Sessions
from planner.service.submission import check, facts
from planner.versions import engine_mode
from sim.version import __version__

MOST_FILES = 1000

router = APIRouter()


@router.get("/health")
async def health() -> Health:
    """Whether the service answers. Needs no token."""
    return Health()


@router.get("/version")
async def version(service: Here) -> Version:
    """What runs here, what it allows, and the files that a space may name."""
    settings = service.settings
    limits = settings.limits
    return Version(
        version=__version__,
        engine=engine_mode(),
        policies_allowed=settings.allow_policies,
        files_allowed=settings.files is not None,
        files=[] if settings.files is None else await asyncio.to_thread(_files, settings.files),
        limits=ServiceLimits(
            max_body_bytes=limits.body_bytes,
            max_running=limits.running,
            max_queued=limits.queued,
            max_candidates=limits.candidates,
            max_requests=limits.requests,
            max_simulated_requests=limits.simulated_requests,
            max_job_s=limits.job_s,
            max_streams=limits.streams,
        ),
    )


def _files(folder: Path) -> list[str]:
    """The files below the allowed folder, hidden ones left out."""
    found = []
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            found.append(name.as_posix())
            if len(found) >= MOST_FILES:
                break
    return sorted(found)


@router.get("/session")
async def session(request: Request, service: Here) -> Session:
    """Whether a token is needed, and whether this client has shown it. Needs no token."""
    token = service.settings.token
    return Session(required=token is not None, authenticated=token is None or Sessions(token).admits(request.headers))


@router.post("/session", responses={401: {"description": "the token is wrong"}})
def log_in(body: Login, request: Request, response: Response, service: Here) -> Session:
    """Exchange the token for a cookie, so that a browser's links, images and event streams are let in."""
    token = service.settings.token
    if token is None:
        return Session(required=False, authenticated=True)
    sessions = Sessions(token)
    if not sessions.is_token(body.token):
        raise ServiceError(401, "the token is wrong")
    secure = request.url.scheme == "https"
    response.set_cookie(
        COOKIE, sessions.new(), max_age=SESSION_S, path="/", secure=secure, httponly=True, samesite="strict"
    )
    return Session(required=True, authenticated=True)


@router.delete("/session", status_code=204)
async def log_out(response: Response) -> None:
    """Forget the cookie."""
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")


@cache
def _catalog() -> bytes:
    return bytes(JsonResponse(catalog()).body)


@router.get("/catalog")
async def get_catalog() -> dict[str, Any]:
    """Everything that a space may name: models, GPUs, policies and their parameters, workloads, metrics."""
    return Response(_catalog(), media_type="application/json")  # type: ignore[return-value]


@cache
def _examples() -> bytes:
    return bytes(JsonResponse({"examples": examples()}).body)


@router.get("/examples")
async def get_examples() -> Examples:
    """Search spaces to start from."""
    return Response(_examples(), media_type="application/json")  # type: ignore[return-value]


@router.post("/validate")
def validate(body: SpaceInput, service: Here) -> Validation:
    """Check a space as `planner search` would, without searching it."""
    checked = check(body.given, service.settings)
    if checked.space is None:
        return Validation(valid=False, problems=checked.problems, space=None)
    known = SpaceFacts.model_validate(facts(checked.space, checked.requests))
    return Validation(valid=True, problems=[], space=known)
