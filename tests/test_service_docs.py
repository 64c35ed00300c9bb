"""What docs/service.md says of the service's options and limits is so."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from planner.service import command
from planner.service.app import create_app
from planner.service.settings import GIB, KIB, Limits, Settings

TEXT = (Path(__file__).parents[1] / "docs" / "service.md").read_text()
SERVE = re.findall(r"^(planner serve.*)$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("line", SERVE)
def test_every_command_that_starts_the_service_is_understood(line: str) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    parser.parse_args(shlex.split(line, comments=True)[2:])


def test_the_limits_are_those_of_the_code() -> None:
    limits = Limits()
    said = {name: float(value.replace(",", "")) for name, value in re.findall(r"`(--max-[\w-]+)` \| ([\d,]+)", TEXT)}
    assert said == {
        "--max-running": limits.running,
        "--max-queued": limits.queued,
        "--max-job-s": limits.job_s,
        "--max-job-gb": limits.job_bytes / GIB,
        "--max-requests": limits.requests,
        "--max-work": limits.simulated_requests,
        "--max-body-kb": limits.body_bytes / KIB,
        "--max-streams": limits.streams,
    }


def test_every_path_of_the_api_is_in_the_reference() -> None:
    table = TEXT[TEXT.index("## Reference") :]
    for path in create_app(Settings(Path("unused"))).openapi()["paths"]:
        last = re.sub(r"/\{.*?\}", "", path).rpartition("/")[2]
        assert last in table, path
