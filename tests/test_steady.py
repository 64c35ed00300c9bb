"""A workload that ends while its load still rises is called so, and one that lasts is not."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from planner.evaluate import Trial, make_evaluator
from planner.goals import judge
from planner.parameters import resolve
from planner.plan import dump_plan, parse_plan
from planner.space import load_space
from planner.steady import LIVES, rising_load
from sim.workload import Workload, build_workload, parse_workload

SPACES = sorted((Path(__file__).parents[1] / "search_spaces").glob("*.yaml"))


def sessions(**changes: Any) -> Workload:
    """Sessions of 5 turns, each 10 s after the answer before: 40 s of thinking."""
    spec = {
        "kind": "sessions",
        "turns": 5,
        "input": 100,
        "output": 50,
        "think_time_s": 10,
        "arrival": {"process": "constant", "rate_rps": 1},
        "num_sessions": 101,
    }
    return build_workload(parse_workload(spec | changes), seed=0)


def requests(**changes: Any) -> Workload:
    spec = {"kind": "lengths", "input": 100, "output": 50, "arrival": {"process": "constant", "rate_rps": 10}}
    return build_workload(parse_workload(spec | changes), seed=0)


def at_least(warning: str | None) -> int:
    assert warning is not None
    return int(re.findall(r"use at least ([\d,]+)", warning)[0].replace(",", ""))


def test_sessions_that_begin_for_less_than_five_lives_are_called_rising() -> None:
    warning = rising_load(sessions())
    assert warning is not None
    assert "sessions begin for 100 s and one lasts at least 40 s" in warning
    assert at_least(warning) >= LIVES * 40


def test_the_time_of_the_answers_counts_as_part_of_a_session() -> None:
    long = sessions(num_sessions=250)
    assert rising_load(long) is None
    assert "lasts about 60 s" in str(rising_load(long, answer_s=4.0))


@pytest.mark.parametrize("answer_s", [0.0, 2.5, 11.0])
def test_as_many_sessions_as_the_warning_asks_for_are_enough(answer_s: float) -> None:
    needed = at_least(rising_load(sessions(), answer_s))
    assert rising_load(sessions(num_sessions=needed + 1), answer_s) is None


def test_plain_requests_are_judged_by_how_long_one_takes() -> None:
    few = requests(num_requests=101)  # in 10 s
    assert rising_load(few) is None
    assert rising_load(few, 1.9) is None
    assert at_least(rising_load(few, 4.0)) >= 200
    assert rising_load(few, 4.0, stable=False) is None  # how long one takes says how long it queues
    assert rising_load(few, math.nan) is None


def test_requests_that_all_come_at_once_are_a_burst_and_not_a_rising_load() -> None:
    assert rising_load(requests(num_requests=50, arrival={"process": "closed", "users": 50}), 9.0) is None


def test_a_closed_loop_is_short_when_its_users_have_few_requests_each() -> None:
    loop = {"process": "closed", "users": 50}
    assert at_least(rising_load(requests(num_requests=100, arrival=loop))) == LIVES * 50
    assert rising_load(requests(num_requests=250, arrival=loop)) is None


def test_sessions_among_plain_requests_are_judged_by_themselves() -> None:
    session = {
        "kind": "sessions",
        "turns": 5,
        "input": 100,
        "output": 50,
        "think_time_s": 10,
        "arrival": {"process": "constant", "rate_rps": 1},
        "num_sessions": 101,
    }
    plain = {"kind": "lengths", "input": 9, "output": 9, "arrival": {"process": "constant", "rate_rps": 9}}
    clients = [session, plain | {"num_requests": 900}]
    mix = build_workload(parse_workload({"kind": "clients", "clients": clients}), seed=0)
    assert rising_load(mix) == rising_load(sessions())


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_no_shipped_space_ends_while_its_load_rises(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "describe", str(path)]) == 0
    assert capsys.readouterr().err == ""


def test_the_sessions_space_finds_what_its_comment_says_and_no_less_with_twice_the_sessions() -> None:
    path = next(path for path in SPACES if path.stem == "qwen3_14b_sessions")
    affinity, spread = "session-affinity", "round-robin"
    evaluators = {}
    for count in (600, 1200):
        space = load_space(path, [f"workload.num_sessions={count}"])
        evaluators[count] = (space, make_evaluator(space))

    def holds(replicas: int, cache: str, routing: str, count: int = 600) -> bool:
        space, evaluator = evaluators[count]
        given = {"gpu": "L40S", "replicas": replicas, "max_num_seqs": 64, "kv_cache_dtype": cache, "gateway": "llm-d"}
        outcome = evaluator(Trial(resolve(given | {"routing": routing}), may_stop=True))
        return outcome.stopped is None and judge(space.constraints, outcome.metrics)[1] is None

    assert holds(2, "fp8", affinity)
    assert holds(2, "fp8", affinity, 1200)
    assert not holds(2, "fp8", spread)
    assert not holds(2, "auto", affinity)
    assert holds(3, "fp8", spread)
    assert holds(3, "auto", affinity)
    assert not holds(3, "auto", spread)


def plan_file(folder: Path, num_sessions: int) -> str:
    workload = {
        "kind": "sessions",
        "turns": 4,
        "input": 100,
        "output": 50,
        "think_time_s": 5,
        "arrival": {"process": "poisson", "rate_rps": 1},
        "num_sessions": num_sessions,
    }
    document = {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "workload": workload,
        "deployment": {"gpu": "L40S"},
        "slo": ["ttft_p99_ms <= 1000"],
    }
    path = folder / "plan.yaml"
    path.write_text(dump_plan(parse_plan(document, folder)))
    return str(path)


@pytest.mark.parametrize("command", ["simulate", "capacity"])
def test_simulate_and_capacity_warn_on_stderr(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, plan_file(tmp_path, 30)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "the load is still rising" in line
    if command == "simulate":
        assert main([command, plan_file(tmp_path, 200)]) == 0
        assert capsys.readouterr().err == ""


def test_a_search_warns_and_its_report_and_its_table_say_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import yaml

    plan = yaml.safe_load(Path(plan_file(tmp_path, 30)).read_text())
    space = {
        "name": "short",
        "model": plan["model"],
        "workload": plan["workload"],
        "slo": plan["slo"],
        "objectives": [{"minimize": "gpus"}],
        "space": {"gpu": "L40S", "replicas": [1, 2]},
    }
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(space))
    out = tmp_path / "run"
    assert main(["search", str(tmp_path / "space.yaml"), "--out", str(out), "--quiet"]) == 0
    warning = capsys.readouterr().err.strip().removeprefix("planner: ")
    assert "the load is still rising" in warning
    assert main(["show", str(out)]) == 0
    assert f"Caution: {warning}." in " ".join(capsys.readouterr().out.split())
    assert main(["report", str(out), "--format", "md"]) == 0
    assert warning in capsys.readouterr().out
    assert warning in (out / "report.html").read_text()
