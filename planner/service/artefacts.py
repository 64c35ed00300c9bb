"""The files of a job that a client may have, by name: from a list, never by path."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.responses import FileResponse, Response

from planner.evaluation_log import EVALUATIONS
from planner.service.errors import not_found
from planner.service.schemas import Artefact
from planner.service.settings import Settings
from planner.store import FRONT, FRONT_CSV, MANIFEST, PICTURE, PLANS, REPORT

SPACE = "space.yaml"
MEDIA_TYPES = {
    SPACE: "application/yaml",
    MANIFEST: "application/json",
    FRONT: "application/json",
    FRONT_CSV: "text/csv",
    EVALUATIONS: "application/jsonl",
    PICTURE: "image/png",
    REPORT: "text/html",
}
_PLAN = re.compile(rf"{PLANS}/([a-z2-7]{{10}})\.yaml")

# The report brings its own script; in a sandbox it is a stranger to this service's pages, cookies and API.
SANDBOX = "sandbox allow-scripts allow-downloads; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
SANDBOX += "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"


def list_artefacts(settings: Settings, job: str) -> list[Artefact]:
    """The files that there are."""
    names = [name for name in MEDIA_TYPES if _path(settings, job, name).is_file()]
    names += sorted(f"{PLANS}/{path.name}" for path in (settings.run_dir(job) / PLANS).glob("*.yaml"))
    found = []
    for name in names:
        if media_type(name) is None:
            continue
        url = f"/api/v1/jobs/{job}/artefacts/{name}"
        size = _path(settings, job, name).stat().st_size
        found.append(Artefact(name=name, bytes=size, media_type=str(media_type(name)), url=url))
    return found


def find_artefact(settings: Settings, job: str, name: str, download: bool) -> Response:
    """A file as a response. Raises ServiceError for a name that is not on the list, or not there."""
    kind = media_type(name)
    path = _path(settings, job, name) if kind is not None else Path()
    if kind is None or not path.is_file():
        raise not_found("artefact", name)
    headers = {"Cache-Control": "private, no-cache"}
    if name == REPORT:
        headers["Content-Security-Policy"] = SANDBOX
    disposition = "attachment" if download else "inline"
    return FileResponse(
        path, media_type=kind, headers=headers, filename=path.name, content_disposition_type=disposition
    )


def media_type(name: str) -> str | None:
    """The media type of an artefact; None where there is none of that name."""
    return MEDIA_TYPES.get(name) or ("application/yaml" if _PLAN.fullmatch(name) else None)


def _path(settings: Settings, job: str, name: str) -> Path:
    return settings.job_dir(job) / "submitted.yaml" if name == SPACE else settings.run_dir(job) / name
