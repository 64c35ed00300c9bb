"""The documentation site builds without a warning, needs nothing from elsewhere, and says what the code says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from planner.cli import COMMANDS
from sim.cluster import policy_names
from sim.workload._spec import _KINDS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return out


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=\"?([^\" >]+)", page.read_text())
        loaded += re.findall(
            r"<link[^>]* rel=\"?(?:stylesheet|icon|preconnect)\"?[^>]* href=\"?([^\" >]+)", page.read_text()
        )
        assert [target for target in loaded if "://" in target or target.startswith("//")] == [], page.name


def test_every_command_policy_and_kind_of_workload_is_in_the_reference(site: Path) -> None:
    commands = (site / "generated/commands.html").read_text()
    assert all(f"planner {name}</h2>" in re.sub(r"<a.*?</a>", "", commands) for name in COMMANDS)
    policies = (site / "generated/policies.html").read_text()
    kinds = ("scheduling", "preemption", "routing", "admission", "flow_control")
    assert all(f"<code>{name}</code>" in policies for kind in kinds for name in policy_names(kind))
    workloads = (site / "generated/workload.html").read_text()
    assert all(f"<code>{name}</code>" in workloads for kind in _KINDS.values() for name in kind.model_fields)
