"""Exporting from a run directory: the best plans, in the report's order, as files that stand alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from planner.cli import main
from planner.export import export_plans, parse_serve_command
from planner.report import verdict
from planner.store import load_run
from sim.errors import InputError

SPACE = {
    "name": "tiny",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "workload": {
        "preset": "chatbot",
        "arrival": {"process": "poisson", "rate_rps": 4},
        "num_requests": 60,
    },
    "slo": ["ttft_mean_ms <= 500", "gpus <= 2"],
    "objectives": [{"minimize": "ttft_mean_ms"}, {"minimize": "cost_per_hour"}],
    "space": {"gpu": ["L40S", "H100-SXM-80GB"], "replicas": [1, 2], "scheduling": ["fcfs", "sjf"]},
    "search": {"method": "exhaustive"},
}


def searched(folder: Path, **changes: object) -> Path:
    (folder / "space.yaml").write_text(yaml.safe_dump({**SPACE, **changes}))
    arguments = ["search", str(folder / "space.yaml"), "--out", str(folder / "run"), "--executor", "serial", "--quiet"]
    assert main(arguments) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return searched(tmp_path_factory.mktemp("tiny"))


def test_folders_are_ranked_as_the_report_ranks_them(run_dir: Path, tmp_path: Path) -> None:
    folders = export_plans(run_dir, 2, tmp_path)
    assert [folder.name.split("-")[0] for folder in folders] == [str(n) for n in range(1, len(folders) + 1)]
    run = load_run(run_dir)
    best = verdict.recommended(run)
    assert best is not None
    figures = ("ttft_mean_ms", "cost_per_hour")
    exported = run.by_id()[folders[0].name.partition("-")[2]]
    assert [exported["metrics"][name] for name in figures] == [best["metrics"][name] for name in figures]


def test_every_exported_plan_reads_back_to_its_evaluation(run_dir: Path, tmp_path: Path) -> None:
    by_id = load_run(run_dir).by_id()
    for folder in export_plans(run_dir, 3, tmp_path):
        parameters = by_id[folder.name.partition("-")[2]]["parameters"]
        found = parse_serve_command((folder / "serve.sh").read_text())
        for name, value in found.items():
            if name not in ("model", "max_model_len"):
                assert value == parameters[name], name
        assert os.access(folder / "serve.sh", os.X_OK)


def test_the_exported_plan_simulates_to_the_same_numbers(run_dir: Path, tmp_path: Path) -> None:
    (folder, *_) = export_plans(run_dir, 1, tmp_path)
    assert main(["simulate", str(folder / "plan.yaml"), "--json", str(tmp_path / "again.json"), "--quiet"]) == 0
    again = json.loads((tmp_path / "again.json").read_text())
    metrics = load_run(run_dir).by_id()[folder.name.partition("-")[2]]["metrics"]
    assert again["ttft_ms"]["mean"] == metrics["ttft_mean_ms"]
    assert again["output_tokens_per_s"] == metrics["output_tokens_per_s"]


def test_the_exported_bytes_do_not_depend_on_when_they_are_written(run_dir: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        export_plans(run_dir, 3, tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert files
    assert all((tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes() for file in files)


def test_a_run_without_a_feasible_plan_has_nothing_to_export(tmp_path: Path) -> None:
    run_dir = searched(tmp_path, slo=["ttft_mean_ms <= 0.001"])
    with pytest.raises(InputError, match="no feasible plan"):
        export_plans(run_dir, 3, tmp_path / "out")


def test_plans_that_cannot_be_expressed_are_named_and_the_others_written(tmp_path: Path) -> None:
    run_dir = searched(tmp_path, space={"gpu": "L40S", "scheduling": "sjf"})
    with pytest.raises(InputError, match="sjf exists in the simulator only"):
        export_plans(run_dir, 3, tmp_path / "out")


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run directory"):
        export_plans(tmp_path, 3, tmp_path / "out")
