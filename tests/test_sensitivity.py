"""Sensitivity: one parameter at a time, its options as an independent simulation of each has them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

import sim.simulate
from planner.cli import main
from planner.plan import parse_plan, simulate_plan
from planner.report import tornado, verdict
from planner.report.html import report_html
from planner.run_plans import space_of_run
from planner.sensitivity import all_options, effects, evaluated_options, metrics_of
from planner.store import Run, load_run
from sim.metrics import flatten

SPACE: dict[str, Any] = {
    "name": "moved",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "workload": {
        "kind": "lengths",
        "input": 400,
        "output": {"dist": "uniform", "min": 20, "max": 160},
        "arrival": {"process": "poisson", "rate_rps": 12},
        "num_requests": 200,
    },
    "slo": ["ttft_p90_ms <= 400", "gpus <= 2"],
    "objectives": [{"minimize": "cost_per_hour"}, {"minimize": "ttft_p90_ms"}],
    "space": {
        "gpu": ["L40S", "H100-SXM-80GB"],
        "replicas": [1, 2, 4],
        "max_num_seqs": [8, 64],
        "preemption": ["fcfs", "priority"],
        "routing": ["round-robin", "least-loaded"],
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("moved")
    (folder / "space.yaml").write_text(yaml.safe_dump(SPACE))
    assert main(["search", str(folder / "space.yaml"), "--out", str(folder / "run"), "--quiet"]) == 0
    return load_run(folder / "run")


@pytest.fixture(scope="module")
def base(run: Run) -> dict[str, Any]:
    found = verdict.recommended(run)
    assert found is not None
    return dict(found)


def test_every_option_is_what_simulating_the_plan_with_it_gives(run: Run, base: dict[str, Any]) -> None:
    options = all_options(run, space_of_run(run), base)
    assert set(options) == set(SPACE["space"])
    for name, given in options.items():
        assert [option for option, _ in given] == SPACE["space"][name]
        for option, evaluation in given:
            if name == "replicas" and option == 4:
                assert evaluation["why_not"].startswith("gpus is 4")
                continue
            document = {name: SPACE[name] for name in ("model", "workload")}
            document["deployment"] = base["parameters"] | {name: option}
            alone = flatten(simulate_plan(parse_plan(document, Path())).summary())
            assert evaluation["metrics"]["ttft_p90_ms"] == alone["ttft_p90_ms"]


def test_what_the_run_has_evaluated_is_not_simulated_again(
    run: Run, base: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = all_options(run, space_of_run(run), base)
    asked: list[Any] = []
    real = sim.simulate.simulate
    monkeypatch.setattr(sim.simulate, "simulate", lambda *a, **k: (asked.append(a), real(*a, **k))[1])
    again = all_options(run, space_of_run(run), base)
    assert [[o for o, _ in given] for given in again.values()] == [[o for o, _ in g] for g in everything.values()]
    known = {e["id"] for e in run.evaluations if e["simulated"]}
    ids = {e["id"] for given in again.values() for _, e in given if e["simulated"]}
    assert len(asked) <= len(ids - known) < len(ids)


def test_the_largest_effect_comes_first_and_what_changes_nothing_is_named(run: Run, base: dict[str, Any]) -> None:
    found = effects(base, all_options(run, space_of_run(run), base), metrics_of(run))
    sizes = [effect.size for effect in found]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 0  # nobody is preempted
    by_name = {effect.name: effect for effect in found}
    assert by_name["preemption"].size == 0
    price = next(s for s in by_name["replicas"].swings if s.metric == "cost_per_hour")
    assert price.high == pytest.approx(2 * price.low)
    assert by_name["replicas"].infeasible() == [4]
    words = tornado.sentence(found, run.objectives)
    assert "\n" not in words
    assert "preemption" in words.rpartition("next to nothing changes with")[2]
    table = tornado.rows(found, metrics_of(run))
    assert ("preemption, now fcfs", "moves nothing", "") in table


def test_an_effect_is_the_span_of_its_options() -> None:
    def evaluation(value: float, feasible: bool = True) -> dict[str, Any]:
        return {"simulated": True, "feasible": feasible, "parameters": {"seats": 2}, "metrics": {"ttft_mean_ms": value}}

    options = {"seats": [(1, evaluation(400.0, False)), (2, evaluation(100.0)), (4, evaluation(50.0))]}
    (effect,) = effects(options["seats"][1][1], options, ["ttft_mean_ms"])
    (swing,), (within,) = effect.swings, effect.within
    assert (swing.low, swing.low_at, swing.high, swing.high_at) == (50.0, 4, 400.0, 1)
    assert swing.size == pytest.approx(math.log(8))
    assert within.size == pytest.approx(math.log(2))
    assert effect.feasible() == [2, 4]
    figure = tornado.tornado_figure([effect], [("ttft_mean_ms", "min")], "one")
    widths = [patch.get_width() for patch in figure.axes[0].patches]
    assert sorted(widths) == pytest.approx([-math.log(2), math.log(4)])


def test_a_report_says_what_moves_the_plan_from_what_was_evaluated(run: Run, base: dict[str, Any]) -> None:
    known = evaluated_options(run, base)
    assert {"gpu", "replicas"} <= set(known)
    ids = {evaluation["id"] for evaluation in run.evaluations}
    assert all(evaluation["id"] in ids for given in known.values() for _, evaluation in given)
    assert "What moves it" in report_html(run)


def test_the_command_prints_draws_and_writes(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, document = tmp_path / "moves.svg", tmp_path / "moves.json"
    assert main(["sensitivity", str(run.path), "--out", str(out), "--json", str(document)]) == 0
    assert "From the least to the greatest" in capsys.readouterr().out
    assert out.read_text().lstrip().startswith("<?xml")
    written = json.loads(document.read_text())
    assert written["words"].endswith(".")
    assert {p["name"] for p in written["parameters"]} == set(SPACE["space"])
    ruled_out = next(e["id"] for e in run.evaluations if not e["simulated"])
    assert main(["sensitivity", str(run.path), ruled_out]) == 2
    assert main(["sensitivity", str(run.path), "nobody"]) == 2
