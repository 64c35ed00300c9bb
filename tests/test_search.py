"""Search methods and the loop around them: fronts, budgets, twins, and independence from who evaluates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from planner.evaluate import Outcome, Trial, make_evaluator
from planner.executors.serial import SerialExecutor
from planner.parameters import Parameters, resolve
from planner.search.driver import Search
from planner.search.evaluations import front_of
from planner.search.exhaustive import Exhaustive
from planner.search.nsga2 import NSGA2
from planner.search.nsga3 import NSGA3, partitions
from planner.search.pareto import front_order, non_dominated
from planner.search.random_sampling import RandomSampling
from planner.search.session import SearchOptions, search
from planner.search.surroundings import Found, Progress
from planner.search.twins import Twins, alike_schedulings
from planner.space import Space, parse_space
from sim.errors import InputError

Points = arrays(
    np.float64, st.tuples(st.integers(0, 25), st.integers(1, 4)), elements=st.integers(0, 4).map(float)
)  # few values, so that ties and duplicates are common


def dominates(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


# -- fronts -----------------------------------------------------------------------------------------------------


@given(Points)
def test_the_front_is_what_no_point_dominates(points: np.ndarray) -> None:
    kept = non_dominated(points)
    for i, point in enumerate(points):
        assert kept[i] == (not any(dominates(other, point) for other in points))


@given(Points)
def test_every_point_left_out_is_dominated_by_one_on_the_front(points: np.ndarray) -> None:
    kept = non_dominated(points)
    for point in points[~kept]:
        assert any(dominates(other, point) for other in points[kept])


@given(Points, st.randoms())
def test_the_front_does_not_depend_on_the_order_of_points(points: np.ndarray, random: Any) -> None:
    order = list(range(len(points)))
    random.shuffle(order)
    assert (non_dominated(points[order]) == non_dominated(points)[order]).all()


def test_equal_points_stay_on_the_front_together() -> None:
    assert non_dominated(np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 2.0]])).tolist() == [True, True, False]


def test_a_point_without_a_value_is_worse_than_any() -> None:
    assert non_dominated(np.array([[np.nan, 1.0], [5.0, 1.0]])).tolist() == [False, True]


def test_the_front_is_ordered_by_its_first_objective() -> None:
    assert front_order(np.array([[3.0, 1.0], [1.0, 3.0], [9.0, 9.0], [2.0, 2.0]])) == [1, 3, 0]


# -- methods on an analytic problem -----------------------------------------------------------------------------

SHAPE, ORDERED = (20, 20, 4, 3), (True, True, False, False)


def analytic(choice: Sequence[int]) -> tuple[list[float], float]:
    """Two conflicting costs over two ordered and two unordered variables, and a constraint on the first."""
    x, y, a, b = choice
    return [x + 3.0 * (a != 2) + b, (19 - x) ** 2 / 19 + (y - 7) ** 2 + (a == 0)], max(0.0, 3.0 - x)


def ask_and_tell(method: Any, evaluations: int) -> dict[tuple[int, ...], tuple[list[float], float]]:
    seen: dict[tuple[int, ...], tuple[list[float], float]] = {}
    while len(seen) < evaluations and (choices := method.ask()):
        results = [analytic(choice) for choice in choices]
        method.tell(choices, np.array([r[0] for r in results]), np.array([r[1] for r in results]))
        seen.update(zip(choices, results, strict=True))
    return seen


def front(seen: dict[tuple[int, ...], tuple[list[float], float]]) -> set[tuple[float, ...]]:
    costs = np.array([cost for cost, violation in seen.values() if violation == 0])
    return {tuple(row) for row in costs[non_dominated(costs)]}


def test_exhaustive_asks_for_every_combination_once() -> None:
    seen = ask_and_tell(Exhaustive(SHAPE), math.prod(SHAPE))
    assert len(seen) == math.prod(SHAPE)


def test_random_sampling_asks_for_every_combination_once_in_another_order() -> None:
    method = RandomSampling((5, 4, 70), seed=1)
    asked: list[tuple[int, ...]] = []
    while choices := method.ask():
        asked += choices
    assert sorted(asked) == list(itertools.product(range(5), range(4), range(70)))
    assert asked != sorted(asked)


@pytest.mark.parametrize("method", [NSGA2, NSGA3])
def test_evolution_finds_the_exhaustive_front_with_a_fraction_of_the_evaluations(method: type[NSGA2]) -> None:
    true_front = front(ask_and_tell(Exhaustive(SHAPE), math.prod(SHAPE)))
    found = ask_and_tell(method(SHAPE, ORDERED, objectives=2, seed=0, population=60), evaluations=1400)
    assert len(found) < 1500 < math.prod(SHAPE) / 3
    assert front(found) == true_front


@pytest.mark.parametrize("method", [NSGA2, NSGA3])
def test_evolution_with_one_seed_asks_for_the_same_combinations(method: type[NSGA2]) -> None:
    runs = [list(ask_and_tell(method(SHAPE, ORDERED, 2, seed, population=60), 300)) for seed in (5, 5, 6)]
    assert runs[0] == runs[1] != runs[2]


def test_nsga2_ends_on_a_space_that_it_has_seen_all_of() -> None:
    found = ask_and_tell_small(NSGA2((2, 3), (True, False), 2, seed=0, population=12))
    assert found == set(itertools.product(range(2), range(3)))


def test_nsga2_spends_its_budget_even_when_its_population_has_converged() -> None:
    found = ask_and_tell_small(NSGA2((4, 3, 30), (True, False, True), 2, seed=0, population=12))
    assert len(found) == 4 * 3 * 30


def ask_and_tell_small(method: NSGA2) -> set[tuple[int, ...]]:
    seen: set[tuple[int, ...]] = set()
    while choices := method.ask():
        seen.update(choices)
        costs = np.array([[float(sum(choice)), float(-choice[0])] for choice in choices])
        method.tell(choices, costs, np.zeros(len(choices)))
    return seen


@pytest.mark.parametrize("objectives", [1, 2, 4])
def test_reference_directions_fit_the_population(objectives: int) -> None:
    for population in (12, 50, 100):
        assert math.comb(partitions(population, objectives) + objectives - 1, objectives - 1) <= population


@pytest.mark.parametrize("evolving", [NSGA2, NSGA3])
def test_evolution_survives_plans_without_any_value(evolving: type[NSGA2]) -> None:
    method = evolving((6, 6), (True, True), 2, seed=0, population=8)
    for _ in range(5):
        choices = method.ask()
        method.tell(choices, np.full((len(choices), 2), np.inf), np.full(len(choices), np.inf))


# -- the loop ---------------------------------------------------------------------------------------------------


class Analytic:
    """Metrics by a formula, in place of a simulation; counts what it is asked."""

    def __init__(self, preemptions: float = 0.0) -> None:
        self.request_slo: dict[str, float] = {}
        self.workload: Sequence[None] = ()
        self.asked: list[Parameters] = []
        self.preemptions = preemptions

    def static_metrics(self, parameters: Parameters) -> dict[str, float]:
        gpus = float(parameters["tensor_parallel_size"] * parameters["replicas"])
        return {"gpus": gpus, "cost_per_hour": 2 * gpus}

    def __call__(self, candidate: Parameters | Trial) -> Outcome:
        parameters = candidate.parameters if isinstance(candidate, Trial) else candidate
        self.asked.append(parameters)
        static = self.static_metrics(parameters)
        if parameters["max_num_seqs"] > parameters["max_num_batched_tokens"]:
            return Outcome(static, refused="max_num_batched_tokens: too few")
        ttft = 800 / static["gpus"] + abs(parameters["max_num_seqs"] - 64) + 5 * parameters["replicas"]
        return Outcome(
            {**static, "ttft_mean_ms": ttft, "output_tokens_per_s": 100.0, "preemptions": self.preemptions},
            saturation="stable",
        )


class Kept:
    """A keeper in memory."""

    def __init__(self) -> None:
        self.evaluations: list[dict[str, Any]] = []

    def append(self, evaluations: Sequence[dict[str, Any]]) -> None:
        self.evaluations += evaluations


def space(**changes: Any) -> Space:
    document: dict[str, Any] = {
        "name": "analytic",
        "model": "none",
        "workload": {},
        "slo": ["gpus <= 8", "ttft_mean_ms <= 400"],
        "objectives": [{"minimize": "ttft_mean_ms"}, {"minimize": "gpus"}],
        "space": {
            "gpu": "H100",
            "tensor_parallel_size": [1, 2, 4],
            "replicas": {"min": 1, "max": 4},
            "max_num_seqs": [16, 64, 256],
            "routing": ["round-robin", "least-loaded"],
        },
    }
    return parse_space(document | changes, Path())


def run(parsed: Space, evaluator: Any = None, executor: Any = None, **options: Any) -> Found:
    evaluator = evaluator or Analytic()
    search = Search(parsed, evaluator, executor or SerialExecutor(evaluator), options.pop("keeper", Kept()), **options)
    return search.run()


def test_a_search_evaluates_each_deployment_once_and_rules_out_what_parameters_alone_break() -> None:
    evaluator, keeper = Analytic(), Kept()
    found = run(space(), evaluator, keeper=keeper)
    # TP x replicas within 8 GPUs: 3 of one replica, 7 of more, which alone can be routed to in two ways.
    assert len(evaluator.asked) == (3 + 7 * 2) * 3
    assert len({evaluation["id"] for evaluation in found.evaluations}) == len(found.evaluations)
    ruled_out = [evaluation for evaluation in found.evaluations if not evaluation["simulated"]]
    assert all(e["metrics"]["gpus"] > 8 and "gpus is" in e["why_not"] for e in ruled_out)
    assert len(ruled_out) == 2 * 2 * 3
    assert sorted(e["id"] for e in keeper.evaluations) == sorted(e["id"] for e in found.evaluations)
    assert found.exact


def test_the_front_holds_exactly_the_feasible_plans_that_no_feasible_plan_dominates() -> None:
    parsed = space()
    found = run(parsed)
    costs = {e["id"]: (e["metrics"]["ttft_mean_ms"], e["metrics"]["gpus"]) for e in found.evaluations if e["feasible"]}
    expected = {plan for plan, cost in costs.items() if not any(dominates(other, cost) for other in costs.values())}
    assert set(front_of(found.evaluations, parsed)) == expected
    assert expected


def test_without_a_feasible_plan_the_front_is_empty() -> None:
    parsed = space(slo=["ttft_mean_ms <= 1"])
    found = run(parsed)
    assert front_of(found.evaluations, parsed) == []
    assert all(evaluation["violation"] > 0 for evaluation in found.evaluations)


def test_a_refused_candidate_is_recorded_with_its_reason() -> None:
    parsed = space(space={"gpu": "H100", "max_num_seqs": [64, 4096], "max_num_batched_tokens": 2048})
    refused = [e for e in run(parsed).evaluations if e.get("refused")]
    assert [e["why_not"] for e in refused] == ["max_num_batched_tokens: too few"]
    assert refused[0]["violation"] == math.inf


def test_a_budget_bounds_the_evaluations_of_a_sampled_search() -> None:
    for method in ("random", "nsga2", "nsga3"):
        evaluator = Analytic()
        found = run(space(search={"method": method, "budget": 20}), evaluator)
        assert len(evaluator.asked) == 20, method
        assert not found.exact


def test_auto_is_exhaustive_where_the_different_deployments_fit_the_budget() -> None:
    assert run(space(search={"budget": 51})).method == "exhaustive"
    assert run(space(search={"budget": 50})).method == "nsga2"


def test_a_budget_that_cuts_an_exhaustive_search_short_makes_it_inexact() -> None:
    for budget, exact in ((50, False), (51, True), (52, True)):
        found = run(space(search={"method": "exhaustive", "budget": budget}))
        assert found.exact == exact
        assert sum(e["simulated"] for e in found.evaluations) == min(budget, 51)


def test_random_search_with_room_for_all_is_exact() -> None:
    found = run(space(search={"method": "random", "budget": 51}))
    assert found.exact
    exhaustive = run(space())
    assert {e["id"] for e in found.evaluations if e["simulated"]} == {
        e["id"] for e in exhaustive.evaluations if e["simulated"]
    }


class Backwards:
    """An executor whose candidates end in the opposite order."""

    name, workers = "backwards", 3

    def __init__(self, evaluate: Callable[[Parameters], Outcome]) -> None:
        self._evaluate = evaluate

    def run(self, candidates: Sequence[Parameters], expected: int) -> Iterator[tuple[int, Outcome]]:
        for position in reversed(range(len(candidates))):
            yield position, self._evaluate(candidates[position])

    def close(self) -> None:
        pass


@pytest.mark.parametrize("method", ["exhaustive", "random", "nsga2"])
def test_the_order_in_which_candidates_end_changes_nothing(method: str) -> None:
    parsed = space(search={"method": method, "budget": 40, "seed": 3})
    keepers = Kept(), Kept()
    forwards = run(parsed, keeper=keepers[0])
    backwards = run(parsed, executor=Backwards(Analytic()), keeper=keepers[1])
    assert forwards == backwards
    for keeper in keepers:
        assert sorted(e["id"] for e in keeper.evaluations) == sorted(e["id"] for e in forwards.evaluations)


def test_a_run_without_preemptions_speaks_for_every_preemption_policy() -> None:
    choices = {"gpu": "H100", "tensor_parallel_size": [1, 2], "preemption": ["fcfs", "priority"]}
    never, often = Analytic(preemptions=0.0), Analytic(preemptions=7.0)
    found = run(space(space=choices, slo=[]), never)
    run(space(space=choices, slo=[]), often)
    assert (len(never.asked), len(often.asked)) == (2, 4)
    assert len(found.evaluations) == 4
    assert len({e["metrics"]["ttft_mean_ms"] for e in found.evaluations}) == 2


def test_orders_of_admission_that_cannot_differ_are_simulated_once() -> None:
    choices = {"gpu": "H100", "scheduling": ["fcfs", "sjf", "priority"]}
    for alike, preemptions, asked in (
        ((), 0.0, 3),
        (("sjf",), 0.0, 2),
        (("sjf", "priority"), 0.0, 1),
        (("sjf",), 1.0, 3),
    ):
        evaluator = Analytic(preemptions=preemptions)
        found = run(space(space=choices, slo=[]), evaluator, twins=Twins(alike))
        assert len(evaluator.asked) == asked
        assert len(found.evaluations) == 3


def small_space(**changes: Any) -> Space:
    document: dict[str, Any] = {
        "name": "small",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "workload": {
            "kind": "lengths",
            "input": 500,
            "output": {"dist": "uniform", "min": 1, "max": 200},
            "arrival": {"process": "gamma", "cv": 3, "rate_rps": 40},
            "num_requests": 200,
        },
        "objectives": [{"minimize": "ttft_mean_ms"}],
        "space": {"gpu": "H100", "max_num_seqs": [3, 8], "scheduling": ["fcfs", "sjf", "priority"]},
    }
    return parse_space(document | changes, Path())


def test_where_prompts_are_equally_long_shortest_first_is_first_come_first_served_to_the_last_bit() -> None:
    evaluator = make_evaluator(small_space())
    assert alike_schedulings(evaluator.workload) == {"sjf", "priority"}
    for seats in (3, 8):
        outcomes = []
        for policy in ("fcfs", "sjf", "priority"):
            parameters = small_space().parameters((0, 0, 0)) | {"max_num_seqs": seats, "scheduling": policy}
            outcomes.append(evaluator(parameters))
        assert outcomes[0].metrics["queue_max_ms"] > 0
        assert repr(outcomes[0]) == repr(outcomes[1]) == repr(outcomes[2])


def test_prompts_of_different_lengths_tell_schedulings_apart() -> None:
    workload = dict(small_space().workload, input={"dist": "uniform", "min": 10, "max": 900})
    assert alike_schedulings(make_evaluator(small_space(workload=workload)).workload) == {"priority"}


class Floors:
    """Bounds that are a fixed share of what `Analytic` says."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._exact = Analytic()

    def of(self, parameters: Parameters) -> dict[str, float]:
        metrics = self._exact(parameters).metrics
        return {"gpus": metrics["gpus"], "ttft_mean_ms": self._share * metrics.get("ttft_mean_ms", 0.0)}


def front_values(found: Found, parsed: Space) -> set[tuple[str, float]]:
    ids = front_of(found.evaluations, parsed)
    return {(e["id"], e["metrics"]["ttft_mean_ms"]) for e in found.evaluations if e["id"] in ids}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
def test_bounds_spare_simulations_and_leave_the_front_as_it_is(share: float) -> None:
    parsed = space(slo=["gpus <= 8", "ttft_mean_ms <= 250"])
    every, pruned = Analytic(), Analytic()
    expected = run(parsed, every)
    found = run(parsed, pruned, bounds=Floors(share))
    assert found.exact
    assert front_values(found, parsed) == front_values(expected, parsed)
    assert len(found.evaluations) == len(expected.evaluations)
    assert len(pruned.asked) < len(every.asked) or share < 0.5
    kinds = {e["id"]: e for e in expected.evaluations}
    for evaluation in found.evaluations:
        if evaluation.get("bound") == "constraint":
            assert not kinds[evaluation["id"]]["feasible"]
            assert "ttft_mean_ms is at least" in evaluation["why_not"]
        if evaluation.get("bound") == "dominated":
            assert evaluation["feasible"] is None
            assert evaluation["why_not"].split()[2] in {e["id"] for e in found.evaluations if e["simulated"]}


def test_who_asks_for_every_candidate_gets_every_verdict() -> None:
    found = run(space(search={"method": "exhaustive"}), bounds=Floors(1.0))
    assert all(e["feasible"] is not None for e in found.evaluations)
    assert not any(e.get("bound") == "dominated" for e in found.evaluations)


def test_what_bounds_rule_out_does_not_depend_on_who_evaluates_or_on_what_is_known() -> None:
    parsed = space(slo=["ttft_mean_ms <= 300"])
    bounds = Floors(0.8)
    forwards = run(parsed, bounds=bounds)
    assert run(parsed, executor=Backwards(Analytic()), bounds=bounds) == forwards
    known = {e["id"]: e for e in run(parsed).evaluations if e["simulated"]}
    resumed = run(parsed, known=known, bounds=bounds)
    assert resumed == forwards


def test_where_bounds_leave_nothing_feasible_the_nearest_of_each_size_is_simulated() -> None:
    parsed = space(slo=["ttft_mean_ms <= 1"])
    evaluator = Analytic()
    found = run(parsed, evaluator, bounds=Floors(0.9))
    simulated = [e for e in found.evaluations if e["simulated"]]
    assert len(simulated) == len(evaluator.asked) == len({e["metrics"]["gpus"] for e in simulated})
    assert front_of(found.evaluations, parsed) == []


@pytest.mark.parametrize("method", ["random", "nsga2", "nsga3"])
def test_sampling_methods_are_told_of_plans_that_bounds_rule_out(method: str) -> None:
    parsed = space(search={"method": method, "budget": 40, "seed": 3}, slo=["ttft_mean_ms <= 300"])
    evaluator = Analytic()
    found = run(parsed, evaluator, bounds=Floors(0.9))
    assert front_of(found.evaluations, parsed)
    assert len(evaluator.asked) <= 40


def test_an_interrupt_keeps_every_evaluation_that_ended() -> None:
    class Interrupted(Analytic):
        def __call__(self, candidate: Parameters | Trial) -> Outcome:
            if len(self.asked) == 10:
                raise KeyboardInterrupt
            return super().__call__(candidate)

    keeper = Kept()
    found = run(space(), Interrupted(), keeper=keeper)
    assert found.interrupted
    assert not found.exact
    assert sum(e["simulated"] for e in found.evaluations) == 10
    assert sorted(e["id"] for e in keeper.evaluations) == sorted(e["id"] for e in found.evaluations)


def test_a_second_interrupt_loses_nothing_of_what_the_first_run_evaluated() -> None:
    class Interrupted(Analytic):
        def __call__(self, candidate: Parameters | Trial) -> Outcome:
            raise KeyboardInterrupt

    parsed = space(search={"method": "nsga2", "budget": 45})  # a dozen a generation: the second is never asked for
    known = {e["id"]: e for e in run(parsed).evaluations if e["simulated"]}
    del known[next(iter(known))]
    again = run(parsed, Interrupted(), known=known)
    assert again.interrupted
    assert known.keys() <= {e["id"] for e in again.evaluations}


def test_known_evaluations_are_taken_over_and_the_result_is_the_same() -> None:
    whole = run(space())
    half = {e["id"]: e for e in whole.evaluations[::2]}
    evaluator = Analytic()
    resumed = run(space(), evaluator, known=half)
    assert resumed == whole
    assert len(evaluator.asked) == sum(e["simulated"] for e in whole.evaluations if e["id"] not in half)


def test_progress_counts_what_is_done_feasible_and_on_the_front() -> None:
    shown: list[tuple[int, int | None]] = []
    last: list[Progress] = []

    def show(progress: Progress) -> None:
        shown.append((progress.done, progress.expected))
        last[:] = [progress]

    found = run(space(), show=show)
    assert shown[-1] == (51, 51)
    assert [done for done, _ in shown] == sorted(done for done, _ in shown)
    assert last[0].feasible == sum(e["feasible"] for e in found.evaluations)
    assert last[0].front > 0


# -- with the simulator -----------------------------------------------------------------------------------------


def simulated_space(**changes: Any) -> Space:
    document: dict[str, Any] = {
        "name": "small",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "workload": {"preset": "chatbot", "arrival": {"process": "poisson", "rate_rps": 20}, "num_requests": 60},
        "slo": ["ttft_p90_ms <= 2000"],
        "objectives": [{"minimize": "ttft_mean_ms"}, {"minimize": "cost_per_hour"}],
        "space": {"gpu": ["L4", "H100"], "replicas": [1, 2], "max_num_seqs": [8, 64]},
    }
    return parse_space(document | changes, Path())


def test_every_candidate_sees_the_same_requests() -> None:
    parsed = simulated_space()
    evaluator = make_evaluator(parsed)
    outcomes = [evaluator(parsed.parameters(choice)) for choice in parsed.choices()]
    assert {outcome.metrics["offered"] for outcome in outcomes} == {60.0}
    assert outcomes == [evaluator(parsed.parameters(choice)) for choice in parsed.choices()]


def test_a_model_too_large_for_the_gpu_is_infeasible_and_says_why() -> None:
    parsed = simulated_space(model="meta-llama/Llama-3.1-70B-Instruct", space={"gpu": ["L4", "B200"]})
    evaluator = make_evaluator(parsed)
    found = run(parsed, evaluator)
    refused = [e for e in found.evaluations if e.get("refused")]
    assert [e["parameters"]["gpu"] for e in refused] == ["L4"]
    assert "GiB" in refused[0]["why_not"]


def test_a_user_price_changes_the_cost_and_nothing_else() -> None:
    dear = simulated_space(prices={"H100": 100.0})
    cheap = simulated_space()
    choice = (1, 0, 0)
    assert cheap.parameters(choice)["gpu"] == "H100-SXM-80GB"
    at_100 = make_evaluator(dear)(dear.parameters(choice)).metrics
    listed = make_evaluator(cheap)(cheap.parameters(choice)).metrics
    changed = {name for name in listed if listed[name] != at_100[name] and not math.isnan(listed[name])}
    assert at_100["cost_per_hour"] == 100.0
    assert changed == {"cost_per_hour", "cost_per_million_output_tokens"}


def test_a_policy_that_breaks_costs_its_own_plans_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken_router.py").write_text(
        "from sim.cluster import RoutingPolicy\n"
        "class Broken(RoutingPolicy):\n"
        "    def route(self, request, replicas, now_s):\n"
        "        raise RuntimeError('no idea where to go')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    parsed = simulated_space(space={"gpu": "H100", "replicas": 2, "routing": ["random", "broken_router:Broken"]})
    found = run(parsed, make_evaluator(parsed))
    failed = [e for e in found.evaluations if e.get("failed")]
    assert len(failed) == 1
    assert "no idea where to go" in failed[0]["why_not"]
    assert not found.exact
    assert len(front_of(found.evaluations, parsed)) == 1


@pytest.mark.parametrize("method", ["nsga2", "random"])
def test_a_space_whose_every_plan_is_ruled_out_comes_to_an_end(tmp_path: Path, method: str) -> None:
    many = {"gpu": "H100", "replicas": {"min": 2, "max": 1000}, "max_num_seqs": {"min": 1, "max": 1000}}
    never = parse_space(
        {
            "name": "never",
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "workload": {"preset": "chatbot", "arrival": {"process": "poisson", "rate_rps": 5}, "num_requests": 5},
            "slo": ["gpus <= 1"],
            "objectives": [{"minimize": "gpus"}],
            "space": many,
            "search": {"method": method, "budget": 20, "executor": "serial"},
        },
        tmp_path,
    )
    run = search(never, SearchOptions(tmp_path / "run"))
    assert not run.exact
    assert not run.front


def test_more_combinations_than_can_be_tried_are_not_tried_one_by_one(tmp_path: Path) -> None:
    endless = {"gpu": "H100", "replicas": {"min": 1, "max": 10_000}, "max_num_seqs": {"min": 1, "max": 10_000}}
    document = {
        "name": "endless",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "workload": {"preset": "chatbot"},
        "objectives": [{"minimize": "gpus"}],
        "space": endless,
        "search": {"method": "exhaustive"},
    }
    with pytest.raises(InputError, match=r"search\.method: would try"):
        parse_space(document, tmp_path)


@pytest.mark.parametrize(
    "setting",
    [{"flow_control": "soft-reflective"}, {"prefill_replicas": 1}, {"kv_offload": {"name": "tiered", "host_gib": 8}}],
)
def test_schedulings_are_no_twins_where_requests_may_come_out_of_order(setting: dict[str, Any]) -> None:
    twins, base = Twins({"sjf"}), resolve({"gpu": "H100"})
    pair = [base | {"scheduling": name} for name in ("fcfs", "sjf")]
    assert twins.key(pair[0]) == twins.key(pair[1])
    assert twins.key(pair[0] | setting) != twins.key(pair[1] | setting)
