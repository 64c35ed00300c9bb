"""Run directories: nothing that was evaluated is lost, and nothing of the user's is overwritten."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from planner.store import Run, RunStore, claim_directory, load_run, read_evaluations, write_atomically
from sim.errors import InputError


def evaluation(number: int, **changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": f"plan{number}",
        "parameters": {"gpu": "L4", "replicas": number, "routing": {"name": "weighted", "queue": 3}},
        "simulated": True,
        "feasible": True,
        "why_not": None,
        "violation": 0.0,
        "saturation": "stable",
        "metrics": {"ttft_mean_ms": 100.0 / number, "gpus": float(number), "itl_max_ms": math.nan},
    }
    return base | changes


MANIFEST: dict[str, Any] = {
    "name": "test",
    "space": {"name": "test"},
    "objectives": [["ttft_mean_ms", "min"]],
    "constraints": [["gpus", "<=", 4]],
}


def run_of(evaluations: list[dict[str, Any]], front: list[str]) -> Run:
    return Run(
        name="test",
        space={"name": "test"},
        objectives=[("ttft_mean_ms", "min")],
        constraints=[("gpus", "<=", 4.0)],
        evaluations=evaluations,
        front=front,
        exact=True,
        manifest=MANIFEST,
    )


def same(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> bool:
    return repr(first) == repr(second)  # nan is not equal to itself


def test_a_run_written_and_read_is_the_same_run(tmp_path: Path) -> None:
    refused = evaluation(3, simulated=False, feasible=False, why_not="does not fit", violation=math.inf, refused=True)
    evaluations = [evaluation(1), evaluation(2), refused]
    store = RunStore(tmp_path / "run")
    store.start(MANIFEST, keep_evaluations=False)
    store.append(evaluations)
    store.finish(run_of(evaluations, ["plan2", "plan1"]), {"plan1": "a: 1\n", "plan2": "a: 2\n"}, b"png")
    run = load_run(tmp_path / "run")
    assert same(run.evaluations, evaluations)
    assert (run.front, run.exact, run.objectives, run.constraints) == (
        ["plan2", "plan1"],
        True,
        [("ttft_mean_ms", "min")],
        [("gpus", "<=", 4.0)],
    )
    assert sorted(path.name for path in (tmp_path / "run").rglob("*") if path.is_file()) == [
        "evaluations.jsonl",
        "front.csv",
        "front.json",
        "pareto.png",
        "plan1.yaml",
        "plan2.yaml",
        "run.json",
    ]


def test_every_file_is_json_that_any_reader_takes(tmp_path: Path) -> None:
    def no_constants(name: str) -> None:
        raise AssertionError(name)

    store = RunStore(tmp_path)
    store.start(MANIFEST, keep_evaluations=False)
    evaluations = [evaluation(1, violation=math.inf)]
    store.finish(run_of(evaluations, ["plan1"]), {})
    for text in [(tmp_path / "front.json").read_text(), *(tmp_path / "evaluations.jsonl").read_text().splitlines()]:
        json.loads(text, parse_constant=no_constants)


def test_plans_with_equal_objectives_point_to_the_first_of_them(tmp_path: Path) -> None:
    twin = evaluation(1, id="twin")
    store = RunStore(tmp_path)
    store.start(MANIFEST, keep_evaluations=False)
    store.finish(run_of([evaluation(1), twin], ["plan1", "twin"]), {})
    plans = json.loads((tmp_path / "front.json").read_text())["plans"]
    assert [plan["same_objectives_as"] for plan in plans] == [None, "plan1"]


def test_evaluations_survive_a_crash_in_the_middle_of_a_line(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.start(MANIFEST, keep_evaluations=False)
    store.append([evaluation(1), evaluation(2)])
    with (tmp_path / "evaluations.jsonl").open("a") as file:
        file.write('{"id": "plan3", "para')
    assert [e["id"] for e in read_evaluations(tmp_path)] == ["plan1", "plan2"]
    store.close()  # a process that ends lets go of its lock
    resumed = RunStore(tmp_path)
    resumed.start(MANIFEST, keep_evaluations=True)
    resumed.append([evaluation(4)])
    assert [e["id"] for e in read_evaluations(tmp_path)] == ["plan1", "plan2", "plan4"]


@pytest.mark.parametrize("line", ["{}", "[1]", "null", '{"id": 3, "metrics": 4}', "\x00\x00", '{"id": "x"', "ÿ"])
def test_a_damaged_line_is_left_out_and_the_others_are_kept(tmp_path: Path, line: str) -> None:
    store = RunStore(tmp_path)
    store.start(MANIFEST, keep_evaluations=False)
    store.append([evaluation(1)])
    with (tmp_path / "evaluations.jsonl").open("ab") as file:
        file.write(line.encode("latin-1") + b"\n")
    store.append([evaluation(2)])
    assert [e["id"] for e in read_evaluations(tmp_path)] == ["plan1", "plan2"]


def test_an_evaluation_is_readable_as_soon_as_it_is_appended(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.start(MANIFEST, keep_evaluations=False)
    store.append([evaluation(1)])
    run = load_run(tmp_path)
    assert [e["id"] for e in run.evaluations] == ["plan1"]
    assert (run.front, run.exact) == (["plan1"], False)  # of what there is so far


def test_a_front_whose_evaluations_are_lost_is_refused_in_one_line(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.start(MANIFEST, keep_evaluations=False)
    store.finish(run_of([evaluation(1)], ["plan1"]), {"plan1": "a: 1\n"})
    (tmp_path / "evaluations.jsonl").write_text("")
    with pytest.raises(InputError, match="lacks 1 plans of the front"):
        load_run(tmp_path)


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_text("old")
    link.symlink_to(target)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, "sent")
    assert os.read(reader, 9) == b"sent"
    assert pipe.is_fifo()


def test_a_new_run_takes_away_what_the_old_one_left_and_nothing_else(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.start(MANIFEST, keep_evaluations=False)
    store.finish(run_of([evaluation(1)], ["plan1"]), {"plan1": "a: 1\n"}, b"png")
    store.close()
    (tmp_path / "notes.txt").write_text("mine")
    RunStore(tmp_path).start(MANIFEST, keep_evaluations=False)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [
        "evaluations.jsonl",
        "notes.txt",
        "run.json",
    ]
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_directory_that_is_not_a_run_is_never_written_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="--out"):
        claim_directory(tmp_path, overwrite=True, resume=False)
    with pytest.raises(InputError, match="is a file"):
        claim_directory(tmp_path / "thesis.tex", overwrite=True, resume=False)


def test_a_run_is_replaced_only_when_asked(tmp_path: Path) -> None:
    claim_directory(tmp_path / "new", overwrite=False, resume=False)
    RunStore(tmp_path / "old").start(MANIFEST, keep_evaluations=False)
    with pytest.raises(InputError, match="--overwrite"):
        claim_directory(tmp_path / "old", overwrite=False, resume=False)
    claim_directory(tmp_path / "old", overwrite=True, resume=False)
    claim_directory(tmp_path / "old", overwrite=False, resume=True)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    with pytest.raises(TypeError):
        write_atomically(path, 3)  # type: ignore[arg-type]
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_run_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_run(tmp_path / "absent")
    with pytest.raises(InputError, match="not a run directory"):
        load_run(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read as JSON"):
        load_run(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match="not the manifest"):
        load_run(tmp_path)


def test_the_nearest_plans_are_simulated_ones_by_violation() -> None:
    evaluations = [
        evaluation(1, feasible=False, violation=0.9, why_not="x"),
        evaluation(2, feasible=False, violation=0.1, why_not="x"),
        evaluation(3, feasible=False, violation=0.0, why_not="x", simulated=False),
    ]
    assert [e["id"] for e in run_of(evaluations, []).nearest(5)] == ["plan2", "plan1"]
