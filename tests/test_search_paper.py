"""The configuration search of the BLIS paper: the verdicts that real hardware gave on eight of its plans.

Source: arXiv 2610.14255, Table 2 and text: Llama-2-70B on H100 behind llm-d, code generation at 5 requests/s, mean TTFT
at most 300 ms on at most 8 GPUs, each plan measured for 30 minutes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from planner.evaluate import Evaluator, Outcome, make_evaluator
from planner.executors.serial import SerialExecutor
from planner.goals import judge
from planner.search.choosing import Identity, count_plans
from planner.search.driver import Search
from planner.search.evaluations import front_of
from planner.space import Space, load_space

SPACE = Path(__file__).parent.parent / "search_spaces" / "llama2_70b_h100_codegen.yaml"

# TP, replicas, max_num_seqs: whether the mean TTFT measured was within 300 ms, and the share of requests completed.
MEASURED = [
    (4, 1, 64, True, 1.0),
    (4, 1, 256, True, 1.0),
    (4, 2, 64, True, 1.0),
    (4, 2, 256, True, 1.0),
    (2, 2, 20, False, 1.0),
    (2, 3, 20, True, 1.0),
    (2, 1, 4, False, 0.12),
    (4, 1, 8, False, 0.48),
]


@cache
def paper() -> tuple[Space, Evaluator]:
    space = load_space(SPACE)
    return space, make_evaluator(space)


def evaluate(**choice: Any) -> Outcome:
    """The plan of the space that takes these values, and the first option of every other variable."""
    space, evaluator = paper()
    positions = [v.options.index(choice[v.name]) if v.name in choice else 0 for v in space.variables]
    return evaluator(space.parameters(positions))


@pytest.mark.parametrize(("tp", "replicas", "max_num_seqs", "meets", "completed"), MEASURED)
def test_the_verdict_on_a_measured_plan_is_that_of_the_hardware(
    tp: int, replicas: int, max_num_seqs: int, meets: bool, completed: float
) -> None:
    space, _ = paper()
    outcome = evaluate(tensor_parallel_size=tp, replicas=replicas, max_num_seqs=max_num_seqs)
    assert (judge(space.constraints, outcome.metrics)[1] is None) == meets
    share = outcome.metrics["completed"] / outcome.metrics["offered"]
    assert (share == 1.0) == (completed == 1.0)


def test_the_space_has_the_papers_number_of_candidates_or_more() -> None:
    space, evaluator = paper()
    assert count_plans(space, Identity(space, evaluator), evaluator) >= 420


def test_the_front_is_one_replica_of_four_and_one_of_eight_gpus_as_the_paper_finds() -> None:
    fewer = ["space.max_num_seqs=[64]", "space.max_num_batched_tokens=2048", "space.scheduling=fcfs"]
    space = load_space(SPACE, [*fewer, "space.routing=least-loaded"])
    evaluator = make_evaluator(space)

    class Nowhere:
        def append(self, evaluations: Any) -> None:
            """Nothing is kept."""

    found = Search(space, evaluator, SerialExecutor(evaluator), Nowhere()).run()
    front = {evaluation["id"]: evaluation["parameters"] for evaluation in found.evaluations}
    sizes = {(front[p]["tensor_parallel_size"], front[p]["replicas"]) for p in front_of(found.evaluations, space)}
    assert sizes == {(4, 1), (8, 1)}
