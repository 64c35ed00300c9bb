"""The API against its own OpenAPI document: whatever fits it, and much that does not, is answered and never fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.python.asgi import ASGIClient, get_client
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from planner.service.app import create_app
from planner.service.settings import Limits, Settings
from tests.service_cases import API, SMALL, service, submit, wait_for

ENDLESS = f"{API}/events"  # a stream that stays open


@dataclass(frozen=True)
class Served:
    """An application, a client of it, and a job that is done."""

    app: FastAPI
    client: ASGIClient
    job: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with a finished job, and no room in its queue: what is submitted is not searched."""
    data = tmp_path_factory.mktemp("schema")
    with service(data) as client:
        job = submit(client, SMALL)
        wait_for(client, job, "done")
    app = create_app(Settings(data, workers=1, limits=Limits(queued=0)))
    with get_client(app) as session:
        yield Served(app, session, job)


DOCUMENT = create_app(Settings(Path("unused"))).openapi()
OPERATIONS = {
    operation.ok().label: operation.ok()
    for operation in schemathesis.openapi.from_dict(DOCUMENT).exclude(path=ENDLESS).get_all_operations()
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_request_makes_the_service_fail(operation: str, served: Served) -> None:
    @settings(max_examples=10, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=OPERATIONS[operation].as_strategy())
    def try_many(case: schemathesis.Case) -> None:
        check(case, served)
        if "job" in case.path_parameters and case.method != "DELETE":
            case.path_parameters["job"] = served.job
            check(case, served)

    try_many()


def check(case: schemathesis.Case, served: Served) -> None:
    """The answer is no failure, and one that the document describes."""
    answer = case.call(session=served.client, base_url="http://127.0.0.1")
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    case.validate_response(answer, checks=checks)


def test_every_operation_says_what_it_does_and_how_it_refuses() -> None:
    for path, operations in DOCUMENT["paths"].items():
        assert re.fullmatch(r"/api/v1(/[a-z_{}:]+)+", path)
        for operation in operations.values():
            assert operation["description"]
            assert "application/problem+json" in operation["responses"]["422"]["content"]
