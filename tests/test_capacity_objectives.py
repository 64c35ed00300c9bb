"""Capacities as objectives: what a search finds is what trying every rate and every size finds."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.boundary import RATE_STEP, Boundary, nearest_step, rate_scale
from planner.bounds import Bounds
from planner.capacity import TOLERANCE, Prober, max_rate, offered_rate
from planner.evaluate import Evaluator, Trial, make_evaluator, plan_of
from planner.evaluation_log import to_line
from planner.executors.process_pool import ProcessExecutor
from planner.executors.serial import SerialExecutor
from planner.goals import judge
from planner.search.driver import Search
from planner.search.evaluations import front_of
from planner.search.session import SearchOptions, search
from planner.search.surroundings import Found
from planner.search.twins import Twins, alike_schedulings
from planner.space import Space, parse_space
from sim.errors import InputError

DOCUMENT: dict[str, Any] = {
    "name": "headroom",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "workload": {
        "kind": "lengths",
        "input": 300,
        "output": {"dist": "uniform", "min": 20, "max": 120},
        "arrival": {"process": "poisson", "rate_rps": 6},
        "num_requests": 150,
    },
    "slo": ["ttft_p90_ms <= 250", "gpus <= 4"],
    "objectives": [{"maximize": "max_rate_rps"}, {"minimize": "gpus"}],
    "space": {
        "gpu": ["L40S", "H100-SXM-80GB"],
        "replicas": [1, 2, 3],
        "max_num_seqs": [8, 16],
        "scheduling": ["fcfs", "sjf"],
        "routing": ["round-robin", "least-loaded"],
    },
}
LEVEL = 250.0


def space(**changes: Any) -> Space:
    return parse_space(DOCUMENT | changes, Path())


class Nowhere:
    def append(self, evaluations: Any) -> None:
        pass


def run(parsed: Space, executor: Any = None, twins: bool = True) -> tuple[Found, Search]:
    evaluator = make_evaluator(parsed)
    known = Twins(alike_schedulings(evaluator.workload)) if twins else None
    chosen = executor(evaluator) if executor else SerialExecutor(evaluator)
    running = Search(parsed, evaluator, chosen, Nowhere(), twins=known, bounds=Bounds(evaluator))
    try:
        return running.run(), running
    finally:
        chosen.close()


def holds(evaluator: Evaluator, trial: Trial) -> bool:
    outcome = evaluator(trial)
    return outcome.saturation != "overloaded" and outcome.metrics["ttft_p90_ms"] <= LEVEL


@pytest.fixture(scope="module")
def exhaustive() -> tuple[Found, Search]:
    return run(space(search={"method": "exhaustive"}))


# -- the bracket ------------------------------------------------------------------------------------------------


@given(st.integers(-40, 845), st.integers(0, 845), st.integers(1, 64), st.booleans(), st.floats(0.2, 6))
def test_the_last_step_that_holds_is_found_from_any_hint(
    last: int, hint: int, width: int, tells: bool, power: float
) -> None:
    search = Boundary(-40, 845, hint, width)
    looks = 0
    while (step := search.next()) is not None:
        beyond = math.copysign(abs(step - last - 0.5) ** power, step - last - 0.5)
        search.learn(step, step <= last, beyond if tells else math.nan)
        looks += 1
    assert search.low == last
    assert search.high == (None if last == 845 else last + 1)
    assert looks <= 40


def test_a_bracket_is_found_in_few_looks_where_the_excess_is_smooth() -> None:
    for last in range(50, 800, 50):
        search = Boundary(0, 845, last + 7, 8)
        search.given(0, -4.0)
        looks = 0
        while (step := search.next()) is not None:
            search.learn(step, step <= last, math.log1p(0.02 * math.exp((step - last) / 30)) - math.log1p(0.0202))
            looks += 1
        assert looks <= 8


def test_neighbouring_rates_are_within_the_tolerance() -> None:
    scales = [rate_scale(step) for step in range(-845, 846)]
    assert all(1 < b / a <= 1 + TOLERANCE for a, b in itertools.pairwise(scales))
    assert [nearest_step(scale) for scale in scales] == list(range(-845, 846))
    assert RATE_STEP < 1 + TOLERANCE


# -- rates ------------------------------------------------------------------------------------------------------


def test_the_rate_of_each_plan_is_the_highest_of_all_rates_tried_one_by_one(exhaustive: tuple[Found, Search]) -> None:
    parsed = space()
    evaluator = make_evaluator(parsed)
    base = offered_rate(evaluator.workload)
    feasible = [e for e in exhaustive[0].evaluations if e["feasible"]]
    assert len(feasible) > 20
    for evaluation in feasible[::8]:
        step = nearest_step(evaluation["metrics"]["max_rate_rps"] / base)
        tried = range(0, step + 40, 1 if evaluation is feasible[0] else 8)
        carried = [k for k in tried if holds(evaluator, Trial(evaluation["parameters"], rate_scale=rate_scale(k)))]
        assert carried == [k for k in tried if k <= step]
        assert evaluation["metrics"]["max_rate_rps"] == base * rate_scale(step)


def test_a_pruned_search_finds_the_front_of_an_exhaustive_one_with_fewer_simulations(
    exhaustive: tuple[Found, Search],
) -> None:
    parsed = space()
    found, running = run(parsed)
    assert front_of(found.evaluations, parsed) == front_of(exhaustive[0].evaluations, parsed)
    assert found.exact
    spent = [each.simulations.run + each.simulations.trials_run for each in (running, exhaustive[1])]
    assert spent[0] < 0.7 * spent[1]
    outdone = [e for e in found.evaluations if e.get("bound") == "dominated"]
    rates = {e["id"]: e["metrics"].get("max_rate_rps", 0.0) for e in exhaustive[0].evaluations}
    for evaluation in outdone:
        rival = evaluation["why_not"].split()[2].rstrip(":")
        assert rates[evaluation["id"]] < rates[rival] * (1 + TOLERANCE)


def test_evolution_finds_the_same_rates(exhaustive: tuple[Found, Search]) -> None:
    rates = {e["id"]: e["metrics"].get("max_rate_rps") for e in exhaustive[0].evaluations}
    found, _ = run(space(search={"method": "nsga2", "budget": 20}))
    seen = {e["id"]: e["metrics"]["max_rate_rps"] for e in found.evaluations if "max_rate_rps" in e["metrics"]}
    assert seen
    assert all(rates[plan] == rate for plan, rate in seen.items())


def test_more_replicas_carry_more_and_seats_carry_no_less(exhaustive: tuple[Found, Search]) -> None:
    rates = {
        tuple(e["parameters"][name] for name in ("gpu", "scheduling", "routing", "replicas", "max_num_seqs")): e[
            "metrics"
        ]["max_rate_rps"]
        for e in exhaustive[0].evaluations
        if e["feasible"]
    }
    for (gpu, scheduling, routing, replicas, seats), rate in rates.items():
        more = rates.get((gpu, scheduling, routing, replicas + 1, seats))
        assert more is None or more > 1.2 * rate
        wider = rates.get((gpu, scheduling, routing, replicas, 2 * seats))
        assert wider is None or wider >= rate / (1 + TOLERANCE)


def test_planner_capacity_finds_the_same_rate(exhaustive: tuple[Found, Search]) -> None:
    parsed = space()
    for plan in front_of(exhaustive[0].evaluations, parsed):
        evaluation = next(e for e in exhaustive[0].evaluations if e["id"] == plan)
        found = max_rate(Prober(plan_of(parsed, evaluation["parameters"])))
        assert found.max_rate_rps == evaluation["metrics"]["max_rate_rps"]


def test_twins_carry_what_each_carries_by_itself() -> None:
    pair = {"gpu": "H100", "max_num_seqs": [16], "scheduling": ["fcfs", "sjf"], "preemption": ["fcfs", "priority"]}
    parsed = space(space=pair, search={"method": "exhaustive"})
    together, alone = run(parsed), run(parsed, twins=False)
    assert [to_line(e) for e in together[0].evaluations] == [to_line(e) for e in alone[0].evaluations]
    assert together[1].simulations.trials_run < alone[1].simulations.trials_run


def test_worker_processes_find_the_same(exhaustive: tuple[Found, Search]) -> None:
    found, _ = run(space(search={"method": "exhaustive"}), lambda evaluator: ProcessExecutor(evaluator, 2))
    assert [to_line(e) for e in found.evaluations] == [to_line(e) for e in exhaustive[0].evaluations]


def test_a_rate_may_be_a_constraint_and_stages_are_scaled_together() -> None:
    stages = [{"rate_rps": 2, "duration_s": 10}, {"rate_rps": 6, "duration_s": 20}]
    workload = {k: v for k, v in DOCUMENT["workload"].items() if k != "num_requests"}
    workload["arrival"] = {"process": "poisson", "stages": stages}
    slo = [*DOCUMENT["slo"], "max_rate_rps >= 20"]
    parsed = space(
        workload=workload, slo=slo, space={"gpu": "L40S", "replicas": [1, 2, 3]}, objectives=[{"minimize": "gpus"}]
    )
    found, _ = run(parsed)
    rates = {e["parameters"]["replicas"]: (e["metrics"]["max_rate_rps"], e["feasible"]) for e in found.evaluations}
    assert all(feasible == (rate >= 20) for rate, feasible in rates.values())
    assert rates[3][0] > rates[1][0]


# -- sizes ------------------------------------------------------------------------------------------------------

SIZED = {
    "slo": ["ttft_p90_ms <= 250"],
    "objectives": [{"minimize": "min_gpus"}, {"minimize": "ttft_p90_ms"}],
    "workload": DOCUMENT["workload"] | {"arrival": {"process": "poisson", "rate_rps": 60}},
    "space": {
        "gpu": ["L40S", "H100-SXM-80GB"],
        "replicas": {"min": 1, "max": 12},
        "max_num_seqs": [8, 16, 64],
        "routing": ["round-robin", "least-loaded"],
    },
}


def test_the_fewest_gpus_are_those_of_trying_every_number_of_replicas() -> None:
    parsed = space(**SIZED, search={"method": "exhaustive"})
    found, running = run(parsed)
    evaluator = make_evaluator(parsed)
    assert len(found.evaluations) == 2 * 3 * 2  # an engine configuration is one candidate, whatever its replicas
    for evaluation in found.evaluations:
        parameters = evaluation["parameters"]
        carried = [n for n in range(1, 13) if holds(evaluator, Trial(parameters | {"replicas": n}))]
        if carried:
            assert parameters["replicas"] == min(carried) == evaluation["metrics"]["min_gpus"]
            assert evaluation["metrics"]["gpus"] == evaluation["metrics"]["min_gpus"]
            assert evaluation["metrics"] | {"min_gpus": 0} == evaluator(parameters).metrics | {"min_gpus": 0}
        else:
            assert not evaluation["feasible"]
    assert running.simulations.run < 6 * len(found.evaluations)
    pruned, less = run(space(**SIZED))
    assert front_of(pruned.evaluations, parsed) == front_of(found.evaluations, parsed)
    assert less.simulations.run <= running.simulations.run


def test_what_may_be_bought_limits_the_replicas() -> None:
    found, _ = run(space(**SIZED | {"slo": ["ttft_p90_ms <= 250", "gpus <= 2"]}))
    assert found.evaluations
    assert all(e["parameters"]["replicas"] <= 2 for e in found.evaluations)
    assert any(not e["feasible"] for e in found.evaluations)


def test_the_rate_of_the_smallest_plan_is_what_that_plan_carries() -> None:
    goals = [{"minimize": "min_gpus"}, {"maximize": "max_rate_rps"}]
    found, _ = run(space(**SIZED | {"objectives": goals}))
    best = [e for e in found.evaluations if e["feasible"]]
    assert best
    assert all(judge((), e["metrics"])[1] is None and e["metrics"]["max_rate_rps"] >= 55 for e in best)


# -- a run directory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, SIZED])
def test_a_search_that_was_cut_short_goes_on_to_the_same_bytes(tmp_path: Path, changes: dict[str, Any]) -> None:
    parsed = space(**changes)
    whole = search(parsed, SearchOptions(tmp_path / "run", executor="serial", reuse=False))
    files = ("front.json", "evaluations.jsonl")
    before = {name: (tmp_path / "run" / name).read_bytes() for name in files}
    lines = before["evaluations.jsonl"].splitlines(keepends=True)
    (tmp_path / "run" / "evaluations.jsonl").write_bytes(b"".join(lines[1::2]))
    again = search(parsed, SearchOptions(tmp_path / "run", resume=True, executor="serial", reuse=False))
    assert {name: (tmp_path / "run" / name).read_bytes() for name in files} == before
    assert again.manifest["trials"] + again.manifest["simulations"] < (
        whole.manifest["trials"] + whole.manifest["simulations"]
    )


def test_probes_are_kept_for_later_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_STORE", str(tmp_path / "store.sqlite"))
    runs = [search(space(), SearchOptions(tmp_path / name, executor="serial")) for name in ("a", "b")]
    assert runs[1].manifest["trials"] == runs[1].manifest["simulations"] == 0
    assert (tmp_path / "a/front.json").read_bytes() == (tmp_path / "b/front.json").read_bytes()
    front = json.loads((tmp_path / "a/front.json").read_text())
    assert all(plan["metrics"]["max_rate_rps"] > 6 for plan in front["plans"])


def test_what_plans_carry_is_found_in_each_draw_of_seed_and_error(tmp_path: Path) -> None:
    small = {"gpu": "H100-SXM-80GB", "replicas": [1, 2], "max_num_seqs": [8, 16]}
    search(space(space=small, search={"seeds": 2}), SearchOptions(tmp_path / "run", executor="serial", reuse=False))
    plans = json.loads((tmp_path / "run" / "front.json").read_text())["plans"]
    assert [plan["front_confidence"] for plan in plans] == [1.0] * len(plans)  # seats and replicas win in any draw
    assert all(plan["slo_confidence"] == plan["seed_confidence"] == 1.0 for plan in plans)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"slo": ["gpus <= 4"]}, "slo"),
        ({"search": {"method": "screening"}}, "search.method"),
        ({"objectives": [{"minimize": "min_gpus"}], "space": {"gpu": "L40S"}}, "space.replicas"),
        ({"workload": DOCUMENT["workload"] | {"arrival": {"process": "closed", "users": 4}}}, "workload.arrival"),
    ],
)
def test_a_capacity_that_cannot_be_found_is_an_input_error(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=field):
        search(space(**changes), SearchOptions(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
