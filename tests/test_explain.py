"""What is said to limit a plan does; what two plans are said to differ in, they do."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from planner.cli import main
from planner.compare import differing, pairwise, side
from planner.counterfactuals import what_if
from planner.parameters import resolve
from planner.plan import Plan, dump_plan
from planner.report import what_if as words
from planner.report.timelines import averaged, comparison_figure, in_progress

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
METRICS = words.shown_metrics()


def a_plan(deployment: dict[str, Any] | None = None, rate: float = 5, **lengths: int) -> Plan:
    workload = {
        "kind": "lengths",
        "input": lengths.get("input", 128),
        "output": lengths.get("output", 64),
        "arrival": {"process": "poisson", "rate_rps": rate},
        "num_requests": 150,
    }
    return Plan(model=MODEL, workload=workload, deployment=resolve({"gpu": "H100-SXM-80GB", **(deployment or {})}))


def most(plan: Plan, metric: str) -> str:
    """The resource that limits a metric most."""
    found = [outcome.change.resource for outcome, _ in words.limits(what_if(plan), metric) if outcome.change.resource]
    return found[0] if found else ""


def test_a_plan_with_too_few_seats_is_limited_by_seats() -> None:
    assert most(a_plan({"max_num_seqs": 2}), "ttft_mean_ms") == "seats (max_num_seqs)"


def test_a_small_batch_is_limited_by_reading_weights() -> None:
    assert most(a_plan(rate=0.5), "tpot_mean_ms") == "reading weights"


def test_long_prompts_are_limited_by_compute() -> None:
    plan = a_plan({"max_num_batched_tokens": 16384}, rate=0.5, input=16000, output=2)
    assert most(plan, "ttft_mean_ms") == "compute"


def test_long_contexts_are_limited_by_reading_the_cache_or_the_weights_and_never_by_seats() -> None:
    found = what_if(a_plan(rate=2, input=16000, output=64))
    (cache,) = (outcome for outcome in found.outcomes if outcome.change.resource == "reading the KV cache")
    assert words.gain(found, cache, "tpot_mean_ms") > 0.03
    assert "twice the seats" in words.sentences(found, METRICS)[-1]


def test_twice_the_kv_cache_is_twice_its_tokens() -> None:
    found = what_if(a_plan())
    (cache,) = (outcome for outcome in found.outcomes if outcome.change.name == "twice the KV cache")
    assert cache.metrics["kv_capacity_tokens"] == 2 * found.base["kv_capacity_tokens"]


def test_one_counterfactual_changes_one_thing_and_an_identity_changes_nothing() -> None:
    found = what_if(a_plan())
    by_name = {outcome.change.name: outcome for outcome in found.outcomes}
    assert by_name["one more replica"].metrics["gpus"] == 2
    assert by_name["twice the tensor parallelism"].metrics["gpus"] == 2
    assert all(
        o.metrics["gpus"] == 1 for o in found.outcomes if not o.change.name.startswith(("one more", "twice the t"))
    )
    # 256 seats are never full here: more of them change no latency.
    assert all(by_name["twice the seats"].metrics[metric] == found.base[metric] for metric in METRICS)


def test_nothing_that_is_made_faster_makes_a_lone_request_slower() -> None:
    found = what_if(a_plan(rate=0.2))
    for outcome in found.outcomes:
        if not outcome.change.buyable:
            assert outcome.metrics["e2e_mean_ms"] <= found.base["e2e_mean_ms"] * 1.0001, outcome.change.name


def test_what_cannot_be_is_said_with_its_reason() -> None:
    found = what_if(a_plan({"gpu": "L4", "tensor_parallel_size": 8}))
    told = " ".join(words.sentences(found, METRICS))
    assert "Cannot be: twice the tensor parallelism (" in told


def test_the_picture_has_a_bar_for_each_change_that_can_be() -> None:
    found = what_if(a_plan())
    figure = words.what_if_figure(found, "title", METRICS)
    possible = [outcome for outcome in found.outcomes if outcome.refused is None]
    assert [len(axis.patches) for axis in figure.axes] == [len(found.time_parts), *([len(possible)] * 3)]
    labels = [text.get_text() for text in figure.axes[1].get_yticklabels()]
    assert labels == [f"{o.change.name}{' *' if o.change.buyable else ''}" for o in possible][::-1]
    for axis in figure.axes[1:]:
        texts = [text for text in axis.texts if text.get_text()]
        assert len(texts) == len(possible)


# -- two plans ----------------------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    for name, plan in (("slow", a_plan({"gpu": "L40S"})), ("fast", a_plan())):
        (tmp_path / f"{name}.yaml").write_text(dump_plan(plan))
    return tmp_path / "slow.yaml", tmp_path / "fast.yaml"


def test_a_faster_gpu_is_faster_for_every_request(two: tuple[Path, Path]) -> None:
    slow, fast = map(side, two)
    assert pairwise(slow, fast) == {"ttft": 1.0, "tpot": 1.0, "e2e": 1.0}
    assert differing(slow, fast) == [("gpu", "L40S", "H100-SXM-80GB")]


def test_a_plan_does_not_differ_from_itself(two: tuple[Path, Path]) -> None:
    one, same = side(two[0]), side(two[0])
    assert differing(one, same) == []
    assert pairwise(one, same) == {"ttft": 0.0, "tpot": 0.0, "e2e": 0.0}


def test_requests_of_different_loads_are_not_paired(two: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(dump_plan(a_plan(rate=9)))
    assert pairwise(side(two[1]), side(tmp_path / "other.yaml")) == {}
    assert [name for name, _, _ in differing(side(two[1]), side(tmp_path / "other.yaml"))] == ["workload"]


@given(st.lists(st.tuples(st.integers(0, 20), st.one_of(st.none(), st.integers(0, 20)))))
def test_what_is_in_progress_is_what_began_and_has_not_ended(pairs: list[tuple[int, int | None]]) -> None:
    spans = [(float(a), math.nan if length is None else float(a + length)) for a, length in pairs]
    begin, end = np.array([a for a, _ in spans]), np.array([b for _, b in spans])
    at, level = in_progress(begin, end)
    for time, count in zip(at, level, strict=True):
        assert count == sum(a <= time and not b <= time for a, b in spans)


def test_the_time_requests_spend_running_is_the_area_under_the_batch(two: tuple[Path, Path]) -> None:
    """Little's law, which any picture of a queue must obey."""
    result = side(two[1]).result
    records = result.records
    started = (records.arrival_ms + records.queue_ms) / 1e3
    ended = (records.arrival_ms + records.e2e_ms) / 1e3
    at, level = in_progress(started, ended)
    assert float((np.diff(at) * level[:-1]).sum()) == pytest.approx(float((ended - started).sum()))
    assert level[-1] == 0
    edges, mean = averaged(at, level)
    assert float((np.diff(edges) * mean).sum()) == pytest.approx(float((ended - started).sum()))


def test_the_comparison_draws_every_run_in_every_panel(two: tuple[Path, Path]) -> None:
    slow, fast = map(side, two)
    figure = comparison_figure([(slow.name, slow.result), (fast.name, fast.result)])
    lines = [[line for line in axis.lines if len(line.get_xdata()) > 2] for axis in figure.axes]
    assert [len(found) for found in lines] == [2, 2, 2, 0, 0]
    assert [len(axis.patches) for axis in figure.axes] == [0, 0, 0, 2, 2]
    assert all(axis.get_xlabel() and axis.get_ylabel() for axis in figure.axes)
    assert len({(line.get_color(), line.get_linestyle()) for line in lines[0]}) == 2


def test_the_commands_explain_and_compare_a_run(
    two: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = {
        "name": "small",
        "model": MODEL,
        "workload": a_plan().workload | {"num_requests": 40},
        "objectives": [{"minimize": "cost_per_hour"}],
        "space": {"gpu": ["L4", "L40S"]},
    }
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(space))
    run = str(tmp_path / "run")
    assert main(["search", str(tmp_path / "space.yaml"), "--out", run, "--executor", "serial", "--quiet"]) == 0
    other = json.loads((tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()[-1])["id"]
    for plan in ([], [other]):
        assert main(["explain", run, *plan, "--out", str(tmp_path / "why.svg")]) == 0
    assert (tmp_path / "why.svg").read_text().startswith("<?xml")
    capsys.readouterr()
    assert main(["explain", run, "--json", "-"]) == 0
    assert {"base", "changes", "words"} <= set(json.loads(capsys.readouterr().out))
    assert (
        main(["compare", run, str(two[1]), "--plot", str(tmp_path / "two.png"), "--json", str(tmp_path / "c.json")])
        == 0
    )
    assert (tmp_path / "two.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "c.json").read_text())["sooner_with_b"] == {}
    capsys.readouterr()
    assert main(["explain", run, "nobody"]) == 2
    assert "no plan 'nobody'" in capsys.readouterr().err


def test_a_router_on_live_state_keeps_its_policy() -> None:
    found = what_if(a_plan({"replicas": 2, "routing": {"name": "weighted", "prefix_index": "precise"}}))
    assert "the same routing on live state" in {outcome.change.name for outcome in found.outcomes}
    live = a_plan({"replicas": 2, "routing": "round-robin", "snapshot_interval_ms": 0})
    assert "the same routing on live state" not in {outcome.change.name for outcome in what_if(live).outcomes}
