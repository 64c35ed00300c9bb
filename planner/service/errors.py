"""What the service answers when it does not do what was asked: RFC 9457 problem documents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from sim.errors import InputError

MEDIA_TYPE = "application/problem+json"


class FieldProblem(BaseModel):
    """One thing that is wrong with an input."""

    field: str
    problem: str
    line: int | None = None


class Problem(BaseModel):
    """The body of every answer from 400 on."""

    status: int
    title: str
    detail: str
    problems: list[FieldProblem] = []


class ServiceError(Exception):
    """What a client is told instead of an answer."""

    def __init__(
        self,
        status: int,
        detail: str,
        problems: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.problems = list(problems)
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """The HTTP response."""
        return problem_response(self.status, self.detail, self.problems, self.headers)


def problem_response(
    status: int, detail: str, problems: Sequence[FieldProblem] = (), headers: Mapping[str, str] | None = None
) -> Response:
    """A problem document as a response."""
    body: dict[str, Any] = {
        "status": status,
        "title": HTTPStatus(status).phrase,
        "detail": detail,
        "problems": [problem.model_dump() for problem in problems],
    }
    # A lone surrogate in what the client sent is escaped, so that it can be echoed.
    return Response(json.dumps(body), status, dict(headers or {}), media_type=MEDIA_TYPE)


def of_input(error: InputError, line: int | None = None) -> FieldProblem:
    """An InputError as one entry of a problem document."""
    return FieldProblem(field=error.field, problem=error.problem, line=line)


def not_found(kind: str, name: str) -> ServiceError:
    """There is no such thing."""
    return ServiceError(404, f"no {kind} {name[:100]!r}")


def input_error(error: InputError, status: int = 422) -> ServiceError:
    """An InputError as what the client is told."""
    return ServiceError(status, str(error), [of_input(error)])
