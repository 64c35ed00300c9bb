"""Screening and robustness: the front for a fraction of the requests, and how sure it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.bounds import Bounds
from planner.evaluate import Evaluator, Outcome, Trial, faster, first_requests, make_evaluator
from planner.executors.serial import SerialExecutor
from planner.goals import judge
from planner.parameters import Parameters
from planner.search.driver import Search
from planner.search.evaluations import front_of
from planner.search.robustness import try_plans
from planner.search.screening import BUDGET, LONG, Screening, _beats
from planner.search.session import SearchOptions, search
from planner.search.surroundings import Found
from planner.space import Space, parse_space

DOCUMENT: dict[str, Any] = {
    "name": "screened",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "workload": {"preset": "chatbot", "arrival": {"process": "poisson", "rate_rps": 20}, "num_requests": 1500},
    "slo": ["ttft_p90_ms <= 500", "tpot_mean_ms <= 60"],
    "objectives": [{"minimize": "cost_per_hour"}, {"minimize": "ttft_p90_ms"}],
    "space": {
        "gpu": ["L40S", "H100-SXM-80GB"],
        "tensor_parallel_size": [1, 2],
        "replicas": {"min": 1, "max": 5},
        "max_num_seqs": [16, 32, 64],
        "max_num_batched_tokens": [2048, 8192],
    },
}


def space(**settings: Any) -> Space:
    return parse_space(DOCUMENT | {"search": settings}, Path())


class Nowhere:
    def append(self, evaluations: Sequence[Mapping[str, Any]]) -> None:
        pass


class Backwards:
    """An executor whose candidates end in the opposite order."""

    name, workers = "backwards", 3

    def __init__(self, evaluate: Evaluator) -> None:
        self._evaluate = evaluate

    def run(self, candidates: Sequence[Parameters | Trial], expected: int) -> Iterator[tuple[int, Outcome]]:
        for position in reversed(range(len(candidates))):
            yield position, self._evaluate(candidates[position])

    def close(self) -> None:
        pass


def run(parsed: Space, executor: type = SerialExecutor, bounds: bool = True) -> tuple[Found, Search]:
    evaluator = make_evaluator(parsed)
    found = Search(parsed, evaluator, executor(evaluator), Nowhere(), bounds=Bounds(evaluator) if bounds else None)
    return found.run(), found


@pytest.fixture(scope="module")
def screened() -> tuple[Found, Search]:
    return run(space(method="screening"))


@pytest.fixture(scope="module")
def exact() -> Found:
    return run(space(method="exhaustive"), bounds=False)[0]


def best(found: Found, parsed: Space) -> list[tuple[float, float]]:
    ids = front_of(found.evaluations, parsed)
    metrics = [e["metrics"] for e in found.evaluations if e["id"] in ids]
    return sorted({(m["cost_per_hour"], m["ttft_p90_ms"]) for m in metrics})


def test_screening_finds_what_simulating_everything_finds(screened: tuple[Found, Search], exact: Found) -> None:
    parsed = space()
    found, true = best(screened[0], parsed), best(exact, parsed)
    assert found[0] == true[0]  # the cheapest plan
    for cost, ttft in true:
        assert any(c <= cost and t <= 1.1 * ttft for c, t in found)


def test_screening_simulates_a_fraction_and_says_so(screened: tuple[Found, Search]) -> None:
    found, searched = screened
    candidates = sum(e.get("bound") is None for e in found.evaluations)
    requests = 1500 * searched.simulations.run + searched.simulations.trial_requests
    assert requests <= (BUDGET + 0.02) * 1500 * candidates + 1500
    assert not found.exact
    left_out = [e for e in found.evaluations if e.get("screened")]
    assert all(e["feasible"] is None and e["why_not"].startswith("screened out: ") for e in left_out)
    assert len(left_out) + searched.simulations.run == candidates


def test_the_order_in_which_trials_end_changes_nothing(screened: tuple[Found, Search]) -> None:
    assert run(space(method="screening"), Backwards)[0] == screened[0]


def test_a_difference_within_the_noise_speaks_against_nobody() -> None:
    noise = np.array([1.0, -1.2, 0.9, -0.8, 1.1, -1.0, 0.7, -0.6])
    base = np.full(8, 100.0)
    assert not _beats([base], [base + noise])
    assert _beats([base], [base + 5 + noise])
    assert not _beats([base, np.array([2.0])], [base + 5 + noise, np.array([1.0])])
    assert not _beats([base], [base])  # equal plans stay together


def test_only_plans_simulated_in_full_and_feasible_speak_against_others() -> None:
    parsed = space()
    evaluator = make_evaluator(parsed)
    choices = {str(i): parsed.parameters(choice) for i, choice in enumerate(list(parsed.choices())[:12])}
    calls: list[int] = []

    def simulate(trials: Mapping[str, Trial]) -> dict[str, Outcome]:
        calls.append(len(trials))
        return {plan: evaluator(trial) for plan, trial in trials.items()}

    screening = Screening(choices, 1500, parsed.objectives, parsed.constraints, simulate)
    screening.windows()
    assert calls[0] == 12
    assert not any("beats" in reason for reason in screening.result.reasons.values())


def test_a_window_holds_the_first_requests_and_a_faster_workload_the_same_ones() -> None:
    workload = make_evaluator(space()).workload
    window = first_requests(workload, 100)
    assert len(window) == 100
    assert (window.arrival_ps == workload.arrival_ps[:100]).all()
    quick = faster(workload, 2.0)
    assert (quick.prompt_tokens == workload.prompt_tokens).all()
    assert quick.arrival_ps[-1] == pytest.approx(workload.arrival_ps[-1] / 2, abs=1)


# -- robustness -------------------------------------------------------------------------------------------------


def test_a_plan_with_room_is_sure_under_every_seed_and_one_at_its_limit_is_not() -> None:
    parsed = space(method="exhaustive", seeds=3)
    evaluator = make_evaluator(parsed)
    roomy = parsed.parameters((1, 0, 3, 2, 0))
    exact_p90 = evaluator(roomy).metrics["ttft_p90_ms"]
    for limit, sure in ((4 * exact_p90, True), (exact_p90 * 1.0001, False)):
        tight = parse_space(DOCUMENT | {"slo": [f"ttft_p90_ms <= {limit}"], "search": {"seeds": 6}}, Path())
        outcome = evaluator(roomy)
        violation, why_not = judge(tight.constraints, outcome.metrics)
        evaluation: dict[str, Any] = {
            "id": "roomy",
            "parameters": roomy,
            "simulated": True,
            "feasible": why_not is None,
            "violation": violation,
            "metrics": outcome.metrics,
        }

        class Trials:
            capacities = None

            def trials(self, trials: Mapping[str, Trial]) -> dict[str, Outcome]:
                return {plan: evaluator(trial) for plan, trial in trials.items()}

        try_plans(tight, evaluator, Trials(), [evaluation])
        assert (evaluation["seed_confidence"] == 1.0) == sure
        assert evaluation["cliff"] != sure


def test_another_seed_is_another_workload_of_the_same_kind() -> None:
    evaluator = make_evaluator(space())
    parameters = space().parameters((1, 0, 3, 2, 0))
    outcomes = [evaluator(Trial(parameters, seed=seed)).metrics["ttft_mean_ms"] for seed in (0, 1, 1)]
    assert outcomes[0] == evaluator(parameters).metrics["ttft_mean_ms"]
    assert outcomes[0] != outcomes[1] == outcomes[2]


def test_a_search_under_several_seeds_writes_how_sure_its_front_is(tmp_path: Path) -> None:
    document = DOCUMENT | {"space": {"gpu": "H100", "replicas": [1, 2]}, "search": {"seeds": 3}}
    search(parse_space(document, tmp_path), SearchOptions(tmp_path / "run", reuse=False))
    front = json.loads((tmp_path / "run" / "front.json").read_text())
    assert all(0 <= plan["seed_confidence"] <= 1 for plan in front["plans"])
    assert LONG < 1
