"""Simulations that are ended early: the front and the feasible plans stay what they are, and nobody waits for ever."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from planner.early_stop import TimedOut, hopeless, time_limit
from planner.evaluate import Outcome, Trial, make_evaluator
from planner.executors import make_executor
from planner.executors import process_pool as pools
from planner.goals import NEAR, Constraint
from planner.parameters import Parameters
from planner.search import session
from planner.search.session import SearchOptions, search
from planner.space import parse_space
from planner.store import Run, read_evaluations
from sim.errors import InputError

FILES = ("evaluations.jsonl", "front.json", "front.csv")


def random_space(seed: int, method: str) -> dict[str, Any]:
    draw = random.Random(f"early {seed}")
    n = draw.choice((100, 250))
    rate = 10 ** draw.uniform(0, 1.7)
    arrival: dict[str, Any] = draw.choice(
        (
            {"process": "poisson", "rate_rps": rate},
            {"process": "gamma", "rate_rps": rate, "cv": 3},
            {"process": "closed", "users": draw.choice((4, 60))},
        )
    )
    slo = draw.sample(
        [
            f"ttft_mean_ms <= {draw.choice((60, 200, 900))}",
            f"ttft_p99_ms <= {draw.choice((150, 800, 3000))}",
            f"e2e_p90_ms <= {draw.choice((1500, 6000))}",
            f"tpot_mean_ms <= {draw.choice((8, 14, 30))}",
            f"slo_attainment >= {draw.choice((0.5, 0.95))}",
            f"goodput_rps >= {rate * draw.choice((0.5, 0.9)):.3g}",
            f"shed_rate <= {draw.choice((0, 0.1))}",
        ],
        draw.choice((1, 2, 3)),
    )
    workload: dict[str, Any] = {
        "kind": "lengths",
        "input": draw.choice((200, {"dist": "lognormal", "mean": 700, "sd": 600, "min": 5, "max": 4000})),
        "output": draw.choice((30, {"dist": "uniform", "min": 1, "max": 250})),
        "num_requests": n,
        "arrival": arrival,
    }
    if draw.random() < 0.3:
        workload["time_limit_s"] = draw.choice((3, 20))
    return {
        "name": "random",
        "model": draw.choice(("meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-14B")),
        "workload": workload,
        "slo": slo,
        "objectives": [{"minimize": "gpus"}, {"minimize": draw.choice(("ttft_p90_ms", "e2e_mean_ms"))}],
        "space": {
            "gpu": ["L40S", "H100"],
            "replicas": [1, 3],
            "max_num_seqs": [4, 32],
            "routing": draw.choice((["round-robin"], ["least-loaded", "weighted"])),
            "admission": draw.choice((["always-admit"], ["probabilistic"])),
            "preemption": ["fcfs", "priority"],
        },
        "search": {"method": method, "executor": "serial", "seed": seed},
    }


def run(document: dict[str, Any], out: Path, stop: bool, **options: Any) -> Run:
    settings = document["search"] | {"early_stop": stop}
    space = parse_space(document | {"search": settings}, Path())
    return search(space, SearchOptions(out, **{"reuse": False} | options))


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_picture", lambda run: None)
    monkeypatch.setattr(session, "_report", lambda run: "")


def bytes_of(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in FILES]


STOPPED: list[int] = []


@pytest.mark.parametrize("seed", range(12))
def test_front_and_feasible_plans_are_those_of_a_search_that_runs_everything_to_its_end(
    tmp_path: Path, seed: int
) -> None:
    document = random_space(seed, "auto" if seed % 2 else "exhaustive")
    whole, early = run(document, tmp_path / "whole", False), run(document, tmp_path / "early", True)
    assert bytes_of(tmp_path / "whole")[1:] == bytes_of(tmp_path / "early")[1:]
    assert (whole.exact, whole.front) == (early.exact, early.front)
    assert early.exact
    kept = [{e["id"]: e for e in run.evaluations} for run in (whole, early)]
    assert kept[0].keys() == kept[1].keys()
    for plan, evaluation in kept[1].items():
        other = kept[0][plan]
        if evaluation.get("stopped_early"):
            assert other["simulated"]
            assert other["violation"] > NEAR
            assert other["violation"] >= evaluation["violation"] * (1 - 1e-9)
            assert evaluation["metrics"].keys() == {"gpus", "cost_per_hour"}  # never numbers that are not final
        elif not evaluation.get("nearest"):
            assert json.dumps(evaluation) == json.dumps(other)
    STOPPED.append(sum(bool(e.get("stopped_early")) for e in early.evaluations))


def test_some_of_these_were_stopped() -> None:
    assert not STOPPED or sum(STOPPED) > 20


OVERLOADED = random_space(0, "exhaustive") | {
    "workload": {
        "kind": "lengths",
        "input": {"dist": "lognormal", "mean": 700, "sd": 600, "min": 5, "max": 4000},
        "output": {"dist": "uniform", "min": 1, "max": 250},
        "num_requests": 200,
        "arrival": {"process": "gamma", "rate_rps": 20, "cv": 3},
    },
    "slo": ["ttft_mean_ms <= 120"],
    "space": {"gpu": ["L40S", "H100"], "replicas": [1, 2], "max_num_seqs": [8, 64], "scheduling": ["fcfs", "sjf"]},
}


def test_a_stopped_plan_says_after_how_many_requests_what_was_sure(tmp_path: Path) -> None:
    early = run(OVERLOADED, tmp_path / "run", True)
    stopped = [e for e in early.evaluations if e.get("stopped_early")]
    assert stopped
    assert len(stopped) == early.manifest["stopped_early"]
    for evaluation in stopped:
        assert not evaluation["simulated"]
        assert not evaluation["feasible"]
        assert evaluation["bounds"]["ttft_mean_ms"] > 120 * (1 + NEAR)
        assert " requests, must be <= 120" in evaluation["why_not"]
        assert "ttft_mean_ms is at least" in evaluation["why_not"]
    kinds = ("evaluations", "ruled_out", "refused", "failed")
    assert sum(early.manifest[kind] for kind in kinds) == early.manifest["candidates"]


def test_where_nothing_is_feasible_the_nearest_plans_are_run_to_their_end(tmp_path: Path) -> None:
    document = OVERLOADED | {"slo": ["ttft_p99_ms <= 120", "gpus <= 2"]}
    early = run(document, tmp_path / "run", True)
    assert early.front == []
    assert any(e.get("stopped_early") for e in early.evaluations)
    nearest = early.nearest(3)
    assert nearest
    assert all(e["metrics"]["ttft_p99_ms"] > 120 for e in nearest)
    before = bytes_of(tmp_path / "run")
    lines = (tmp_path / "run" / FILES[0]).read_text().splitlines(keepends=True)
    (tmp_path / "run" / FILES[0]).write_text("".join(lines[::2]))
    run(document, tmp_path / "run", True, resume=True)
    assert bytes_of(tmp_path / "run") == before


@pytest.mark.parametrize("executor", ["processes", "serial"])
def test_resumed_or_on_workers_or_reused_the_bytes_are_the_same(
    tmp_path: Path, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANNER_STORE", str(tmp_path / "store.sqlite"))
    run(OVERLOADED, tmp_path / "first", True)
    expected = bytes_of(tmp_path / "first")
    run(OVERLOADED, tmp_path / "second", True, executor=executor, workers=2, reuse=True)
    assert bytes_of(tmp_path / "second") == expected
    lines = (tmp_path / "second" / FILES[0]).read_text().splitlines(keepends=True)
    (tmp_path / "second" / FILES[0]).write_text("".join(lines[:7]))
    run(OVERLOADED, tmp_path / "second", True, resume=True)
    assert bytes_of(tmp_path / "second") == expected
    warm = run(OVERLOADED, tmp_path / "warm", True, reuse=True)
    assert warm.manifest["simulations"] == 0
    assert bytes_of(tmp_path / "warm") == expected


def test_another_slo_takes_over_what_was_run_to_its_end_and_nothing_that_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANNER_STORE", str(tmp_path / "store.sqlite"))
    strict = OVERLOADED | {"slo": ["requests_per_s >= 12"]}
    loose = OVERLOADED | {"slo": ["requests_per_s >= 8"]}
    assert run(strict, tmp_path / "strict", True, reuse=True).manifest["stopped_early"]
    warm = run(loose, tmp_path / "warm", True, reuse=True)
    run(loose, tmp_path / "cold", True)
    assert bytes_of(tmp_path / "warm") == bytes_of(tmp_path / "cold")
    assert warm.manifest["reused"] > 0


def test_resumed_under_a_looser_slo_a_stopped_plan_is_simulated_again(tmp_path: Path) -> None:
    run(OVERLOADED | {"slo": ["requests_per_s >= 12"]}, tmp_path / "run", True)
    loose = OVERLOADED | {"slo": ["requests_per_s >= 8"]}
    run(loose, tmp_path / "run", True, resume=True)
    run(loose, tmp_path / "fresh", True)
    fresh, resumed = ({e["id"]: e["feasible"] for e in read_evaluations(tmp_path / d)} for d in ("fresh", "run"))
    assert fresh == resumed


def test_a_method_that_learns_from_how_far_plans_miss_runs_them_all_to_their_end(tmp_path: Path) -> None:
    document = OVERLOADED | {"search": {"method": "nsga2", "budget": 15, "executor": "serial"}}
    assert run(document, tmp_path / "run", True).manifest["stopped_early"] == 0


def test_near_a_constraint_nothing_is_hopeless() -> None:
    limit = [Constraint("ttft_mean_ms", "<=", 100.0)]
    assert not hopeless(limit, {"ttft_mean_ms": 100 * (1 + NEAR)})
    assert hopeless(limit, {"ttft_mean_ms": 101 * (1 + NEAR)})
    assert not hopeless(limit, {})


# -- too long ---------------------------------------------------------------------------------------------------


STUCK = """
import time
from sim.cluster.policies import RoutingPolicy

class Stuck(RoutingPolicy):
    def route(self, request, replicas, now_s):
        while len(replicas) == 3:
            try:
                time.sleep({sleep})
            except Exception:
                pass
        return 0
"""


def stuck_space(timeout_s: float) -> dict[str, Any]:
    return OVERLOADED | {
        "slo": [],
        "space": {"gpu": "H100", "replicas": [1, 2, 3], "routing": ["stuck_policy:Stuck"]},
        "search": {"method": "exhaustive", "executor": "serial", "timeout_s": timeout_s},
    }


@pytest.fixture
def stuck_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stuck_policy.py").write_text(STUCK.format(sleep=0.01))
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("stuck_policy")
@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_a_policy_that_never_answers_costs_its_candidate_and_no_other(tmp_path: Path, executor: str) -> None:
    handler = signal.getsignal(signal.SIGALRM)
    found = run(stuck_space(0.5), tmp_path / "run", True, executor=executor, workers=1)
    assert signal.getsignal(signal.SIGALRM) == handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    failed = [e for e in found.evaluations if e.get("failed")]
    assert [e["parameters"]["replicas"] for e in failed] == [3]
    assert failed[0]["why_not"] == "its simulation took longer than 0.5 s"
    assert found.manifest["evaluations"] == 2
    assert not found.exact


@pytest.mark.usefixtures("stuck_policy")
def test_a_resumed_search_tries_again_only_with_more_time(tmp_path: Path) -> None:
    run(stuck_space(0.3), tmp_path / "run", True)
    before = bytes_of(tmp_path / "run")
    again = run(stuck_space(0.3), tmp_path / "run", True, resume=True)
    assert again.manifest["simulations"] == 0
    assert bytes_of(tmp_path / "run") == before
    assert run(stuck_space(0.4), tmp_path / "run", True, resume=True).manifest["simulations"] == 1


class Deaf:
    """An evaluator that does not come back for one candidate, whatever signals say."""

    def __call__(self, candidate: Parameters | Trial) -> Outcome:
        assert isinstance(candidate, dict)
        while candidate["n"] == 5:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
            time.sleep(60)
        return Outcome({"n": float(candidate["n"])})


@pytest.mark.parametrize("kind", ["processes", "ray"])
def test_a_worker_that_does_not_come_back_is_ended_and_its_candidate_recorded(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "ray":
        pytest.importorskip("ray")
        from planner.executors import ray_pool

        monkeypatch.setattr(ray_pool, "GRACE_S", 0.5)
    monkeypatch.setattr(pools, "GRACE_S", 0.5)
    executor = make_executor(kind, Deaf(), 2, timeout_s=1.0)
    try:
        outcomes = dict(executor.run([{"n": n} for n in range(12)], 12))
    finally:
        executor.close()
    assert outcomes[5].failed == "its simulation took longer than 1 s"
    assert outcomes[5].timed_out_s == 1.0
    assert [outcomes[n].metrics["n"] for n in range(12) if n != 5] == [float(n) for n in range(12) if n != 5]


def test_a_simulation_is_given_up_at_a_tick_where_no_signal_comes() -> None:
    document = OVERLOADED | {"search": {"timeout_s": 1e-9}, "space": {"gpu": "H100"}}
    evaluator = make_evaluator(parse_space(document, Path()))
    found: list[Outcome] = []
    import threading

    parameters = parse_space(document, Path()).parameters([0])
    thread = threading.Thread(target=lambda: found.append(evaluator(parameters)))
    thread.start()
    thread.join()
    assert found[0].timed_out_s == 1e-9


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGALRM")
def test_time_that_is_up_is_said_again_to_who_does_not_listen() -> None:
    heard = []
    with contextlib.suppress(TimedOut), time_limit(0.05):
        try:
            time.sleep(5)
        except BaseException as error:
            heard.append(error)
            time.sleep(5)
            heard.append(error)
    assert len(heard) == 1


def test_a_time_limit_must_be_a_number_above_zero() -> None:
    with pytest.raises(InputError, match="must be a number above 0"):
        parse_space(OVERLOADED | {"search": {"timeout_s": 0}}, Path())
