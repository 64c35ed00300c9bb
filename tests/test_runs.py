"""`planner runs` and `planner diff`: what there is, and why a front changed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from planner.commands.runs import run as list_runs
from planner.differences import differences
from planner.search.session import SearchOptions, search
from planner.space import parse_space
from planner.store import Run
from sim.errors import InputError

DOCUMENT: dict[str, Any] = {
    "name": "small",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "workload": {
        "kind": "lengths",
        "input": 300,
        "output": 60,
        "num_requests": 150,
        "arrival": {"process": "poisson", "rate_rps": 20},
    },
    "slo": ["ttft_mean_ms <= 100"],
    "objectives": [{"minimize": "cost_per_hour"}, {"minimize": "ttft_mean_ms"}],
    "space": {"gpu": "H100", "max_num_seqs": [8, 64], "replicas": [1, 2, 3]},
    "search": {"method": "exhaustive"},
}


def run(folder: Path, **changes: Any) -> Run:
    return search(parse_space(DOCUMENT | changes, folder), SearchOptions(folder, reuse=False))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("runs") / "base")


def test_runs_are_listed_with_what_they_found(base: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert base.path is not None
    assert list_runs(argparse.Namespace(folder=base.path.parent)) == 0  # one is ruled out by its bounds
    assert "base: done, exhaustive, 6 candidates: 5 simulated, 1 ruled out, 5 feasible" in capsys.readouterr().out
    with pytest.raises(InputError):
        list_runs(argparse.Namespace(folder=base.path / "nowhere"))


def test_a_run_does_not_differ_from_itself(base: Run) -> None:
    (line,) = differences(base, base)
    assert line.startswith("The same recommended plan, ")
    assert line.endswith(f"with the same figures; the fronts hold the same {len(base.front)} plans.")


def test_a_plan_that_left_the_front_comes_with_the_reason(base: Run, tmp_path: Path) -> None:
    worst = max(e["metrics"]["ttft_mean_ms"] for e in base.front_evaluations())
    limit = f"ttft_mean_ms <= {0.999 * worst}"
    lines = list(differences(base, run(tmp_path / "stricter", slo=[limit])))
    assert any(line.startswith("slo: ") and "->" in line for line in lines)
    left = [line for line in lines if line.startswith("- ")]
    assert left
    assert all("ttft_mean_ms is" in line for line in left)


def test_a_plan_that_joined_the_front_comes_with_what_kept_it_off(base: Run, tmp_path: Path) -> None:
    other = run(tmp_path / "wider", space=DOCUMENT["space"] | {"replicas": [1, 2, 3, 4]})
    joined = [line for line in differences(base, other) if line.startswith("+ ")]
    assert all("not among the candidates" in line for line in joined if " 4 x TP1" in line)


def test_no_more_is_simulated_than_progress_said_to_expect(tmp_path: Path) -> None:
    shown: list[tuple[int, int | None]] = []
    space = parse_space(DOCUMENT | {"slo": ["ttft_mean_ms <= 0.1"]}, tmp_path)  # bounds rule out everything
    found = search(space, SearchOptions(tmp_path / "none", reuse=False), lambda p: shown.append((p.done, p.expected)))
    assert not found.front
    assert shown[-1][0] == sum(e["simulated"] for e in found.evaluations) > 0  # the nearest of each size
    assert all(expected is not None and done <= expected for done, expected in shown)
