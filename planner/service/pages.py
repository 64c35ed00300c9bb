"""The web page's files, and a reference of the API as a page; neither loads anything from elsewhere."""

from __future__ import annotations

from html import escape
from importlib import resources
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from planner.service.errors import not_found

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "woff2": "font/woff2",
    "json": "application/json",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self'; frame-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
REFERENCE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}"
    "code{font-family:ui-monospace,monospace}h2{margin:2rem 0 0;font-size:1.05rem}p{margin:.3rem 0}"
    "dl{margin:.3rem 0 0 1rem}dt{font-family:ui-monospace,monospace}dd{margin:0 0 0 1.5rem}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8cf}}"
)

router = APIRouter(include_in_schema=False)


@router.get("/")
def index() -> Response:
    """The page."""
    return static("index.html")


@router.get("/favicon.ico")
def icon() -> Response:
    """The icon that browsers ask for unbidden."""
    return RedirectResponse("/static/favicon.svg")


@router.get("/static/{name:path}")
def static(name: str) -> Response:
    """A file of the page."""
    parts = name.split("/")
    kind = MEDIA_TYPES.get(name.rpartition(".")[2])
    if kind is None or any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
        raise not_found("page", name)
    if parts[0] == "shared":  # the interactive front, which reports have too
        file = resources.files("planner.report").joinpath("page", *parts[1:])
    else:
        file = resources.files("planner.service").joinpath("static", *parts)
    if not file.is_file():
        raise not_found("page", name)
    # Revalidated each time, so that a new version of the service is never half an old page.
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    return Response(file.read_bytes(), media_type=kind, headers=headers)


@router.get("/api/docs")
def reference(request: Request) -> Response:
    """The API in words, out of its OpenAPI document."""
    document = request.app.openapi()
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(document['info']['title'])}</title><style>{STYLE}</style>",
        f"<h1>{escape(document['info']['title'])}</h1><p>{escape(document['info']['description'])}</p>",
        "<p>The same for machines: <a href='/openapi.json'>openapi.json</a></p>",
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(_operation(method, path, operation))
    return HTMLResponse("".join(parts), headers={"Content-Security-Policy": REFERENCE_POLICY})


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    words = escape(operation.get("description") or operation.get("summary") or "").replace("\n\n", "</p><p>")
    parameters = "".join(
        f"<dt>{escape(parameter['name'])}</dt><dd>in the {escape(parameter['in'])}"
        f"{', required' if parameter.get('required') else ''} {escape(parameter.get('description', ''))}</dd>"
        for parameter in operation.get("parameters", [])
    )
    listed = f"<dl>{parameters}</dl>" if parameters else ""
    return f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{words}</p>{listed}"
