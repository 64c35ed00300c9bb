"""The command line, run as a user runs it."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.store import RunStore

SMALL: dict[str, Any] = {
    "name": "small",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "workload": {"preset": "chatbot", "arrival": {"process": "poisson", "rate_rps": 20}, "num_requests": 60},
    "slo": ["ttft_p90_ms <= 2000", "gpus <= 3"],
    "objectives": [{"minimize": "ttft_mean_ms"}, {"minimize": "cost_per_hour"}],
    "space": {
        "gpu": ["L4", "H100"],
        "replicas": {"min": 1, "max": 4},
        "max_num_seqs": [8, 64],
        "routing": ["round-robin", "least-loaded"],
        "preemption": ["fcfs", "priority"],
    },
}
DETERMINISTIC = ("evaluations.jsonl", "front.json", "front.csv", "pareto.png", "report.html")


def planner(*arguments: object, cwd: Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent), "COLUMNS": "120"}
    command = [sys.executable, "-m", "planner.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout_s)


def write(folder: Path, document: dict[str, Any], name: str = "space.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(document))
    return path


def contents(run: Path) -> dict[str, bytes]:
    """Every file of a run whose bytes must not depend on time or executor."""
    files = [run / name for name in DETERMINISTIC] + sorted((run / "plans").iterdir())
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a finished search."""
    folder = tmp_path_factory.mktemp("done")
    result = planner("search", write(folder, SMALL), "--out", "run", "--executor", "serial", cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder / "run"


# -- what a search leaves ---------------------------------------------------------------------------------------


def test_a_search_leaves_every_file_of_the_contract(done: Path) -> None:
    manifest = json.loads((done / "run.json").read_text())
    front = json.loads((done / "front.json").read_text())
    assert manifest["exact"] is True
    assert front["exact"] is True
    assert manifest["evaluations"] + manifest["ruled_out"] + manifest["refused"] == manifest["candidates"]
    assert {"name", "space", "versions", "seed", "coefficients", "executor", "wall_time_s"} <= set(manifest)
    assert front["objectives"][0] == {"metric": "ttft_mean_ms", "sense": "min"}
    assert {"id", "parameters", "metrics", "slo_confidence"} <= set(front["plans"][0])
    assert (done / "pareto.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((done / "front.csv").open()))
    assert [row["id"] for row in rows] == [plan["id"] for plan in front["plans"]]
    assert sorted(path.stem for path in (done / "plans").iterdir()) == sorted(row["id"] for row in rows)


def test_the_front_of_a_search_is_feasible_and_non_dominated(done: Path) -> None:
    evaluations = [json.loads(line) for line in (done / "evaluations.jsonl").read_text().splitlines()]
    front = {plan["id"] for plan in json.loads((done / "front.json").read_text())["plans"]}
    costs = {
        e["id"]: (e["metrics"]["ttft_mean_ms"], e["metrics"]["cost_per_hour"]) for e in evaluations if e["feasible"]
    }
    for plan, cost in costs.items():
        dominated = any(all(a <= b for a, b in zip(o, cost, strict=True)) and o != cost for o in costs.values())
        assert (plan in front) == (not dominated)
    assert front <= set(costs)


def test_two_runs_leave_the_same_bytes(done: Path, tmp_path: Path) -> None:
    result = planner("search", write(tmp_path, SMALL), "--executor", "serial", "--quiet", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "")
    assert "the load is still rising" in result.stderr  # of its few requests, and nothing else
    assert result.stderr.count("\n") == 1
    assert contents(tmp_path / "results" / "small") == contents(done)


@pytest.mark.parametrize("workers", [1, 2])
def test_ray_leaves_the_same_bytes_as_serial(done: Path, tmp_path: Path, workers: int) -> None:
    space = write(tmp_path, SMALL)
    options = ("--out", "run", "--executor", "ray", "--workers", workers, "--quiet")
    result = planner("search", space, *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["executor"] == {"name": "ray", "workers": workers}
    assert contents(tmp_path / "run") == contents(done)


def test_simulating_a_plan_of_the_front_gives_the_numbers_of_the_search(done: Path, tmp_path: Path) -> None:
    plan = json.loads((done / "front.json").read_text())["plans"][0]
    path = done / "plans" / f"{plan['id']}.yaml"
    result = planner("simulate", path, "--json", "out.json", "--requests", "requests.csv", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    summary = json.loads((tmp_path / "out.json").read_text())
    assert summary["ttft_ms"]["mean"] == plan["metrics"]["ttft_mean_ms"]
    assert summary["e2e_ms"]["p99"] == plan["metrics"]["e2e_p99_ms"]
    assert summary["goodput_rps"] == plan["metrics"]["goodput_rps"]
    assert summary["cost_per_hour"] == plan["metrics"]["cost_per_hour"]
    assert len(list(csv.DictReader((tmp_path / "requests.csv").open()))) == summary["offered"] == 60


def test_set_changes_a_simulation(done: Path, tmp_path: Path) -> None:
    path = next((done / "plans").iterdir())
    result = planner("simulate", path, "--set", "workload.num_requests=7", "--json", "-", cwd=tmp_path)
    assert json.loads(result.stdout)["offered"] == 7


def test_show_plot_and_export_read_a_run(done: Path, tmp_path: Path) -> None:
    shown = planner("show", done, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert json.loads((done / "front.json").read_text())["plans"][0]["id"] in shown.stdout
    assert planner("plot", done, "--out", "plot.svg", cwd=tmp_path).returncode == 0
    assert b"<svg" in (tmp_path / "plot.svg").read_bytes()
    exported = planner("export", done, "--top-k", 1, "--out", "deploy", cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    assert any("vllm serve" in path.read_text() for path in (tmp_path / "deploy").rglob("*") if path.is_file())


def test_when_nothing_is_feasible_the_nearest_plans_are_shown(tmp_path: Path) -> None:
    result = planner("search", write(tmp_path, SMALL | {"slo": ["ttft_mean_ms <= 0.001"]}), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "No plan" in result.stdout
    assert json.loads((tmp_path / "results/small/front.json").read_text())["plans"] == []


# -- interrupted, resumed ---------------------------------------------------------------------------------------

SLOW = SMALL | {
    "workload": {"preset": "chatbot", "arrival": {"process": "poisson", "rate_rps": 20}, "num_requests": 1200},
    "space": SMALL["space"] | {"gpu": ["H100", "L4"], "max_num_seqs": [8, 64, 128, 256]},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of the slow search, never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    options = ("--out", "run", "--executor", "serial", "--quiet")
    assert planner("search", write(folder, SLOW), *options, cwd=folder).returncode == 0
    return folder / "run"


def simulated(log: Path) -> int:
    """How many simulated plans the log of evaluations holds."""
    return log.read_text().count('"simulated":true') if log.exists() else 0


@pytest.mark.parametrize(
    ("number", "executor"),
    [(signal.SIGINT, "serial"), (signal.SIGTERM, "serial"), (signal.SIGINT, "ray"), (signal.SIGKILL, "serial")],
    ids=lambda value: getattr(value, "name", value),
)
def test_an_interrupted_search_keeps_its_work_and_resumes_to_the_same_bytes(
    whole: Path, tmp_path: Path, number: signal.Signals, executor: str
) -> None:
    space = write(tmp_path, SLOW)
    # Interpreted, it is slow enough to be interrupted; resumed compiled, where that can be, it ends with the same bytes
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent), "PLANNER_INTERPRETED": "1"}
    command = [sys.executable, "-m", "planner.cli", "search", str(space), "--out", "run", "--executor", executor]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    log = tmp_path / "run" / "evaluations.jsonl"
    deadline = time.monotonic() + 60
    while simulated(log) < 18 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() is None, "ended before it could be interrupted"
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert simulated(log) >= 18
    if number != signal.SIGKILL:
        assert process.returncode == 130, errors
        assert b"Traceback" not in errors
        manifest = json.loads((tmp_path / "run" / "run.json").read_text())
        front = json.loads((tmp_path / "run" / "front.json").read_text())
        assert (manifest["interrupted"], front["exact"]) == (True, False)
        assert front["plans"]

    resumed = planner("search", space, "--out", "run", "--resume", "--executor", "serial", "--quiet", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert contents(tmp_path / "run") == contents(whole)
    again, all_of_them = (
        json.loads((run / "run.json").read_text())["simulations"] for run in (tmp_path / "run", whole)
    )
    assert again < all_of_them


def test_a_run_is_not_replaced_unless_asked_nor_resumed_with_another_workload(tmp_path: Path) -> None:
    space = write(tmp_path, SMALL)
    assert planner("search", space, "--quiet", cwd=tmp_path).returncode == 0
    refused = planner("search", space, cwd=tmp_path)
    assert refused.returncode == 2
    assert "--overwrite" in refused.stderr
    changed = ("--set", "workload.arrival.rate_rps=3")
    assert planner("search", space, *changed, "--resume", cwd=tmp_path).returncode == 2
    assert planner("search", space, *changed, "--overwrite", "--quiet", cwd=tmp_path).returncode == 0


def test_resuming_under_another_slo_simulates_nothing_again(tmp_path: Path) -> None:
    space = write(tmp_path, SMALL)
    assert planner("search", space, "--quiet", cwd=tmp_path).returncode == 0
    stricter = ("--set", "slo.1=gpus <= 2", "--resume", "--quiet")
    assert planner("search", space, *stricter, cwd=tmp_path).returncode == 0
    manifest = json.loads((tmp_path / "results/small/run.json").read_text())
    assert manifest["simulations"] == 0
    assert manifest["ruled_out"] > 0


# -- bad input --------------------------------------------------------------------------------------------------

ARRIVAL = {"process": "poisson", "rate_rps": 5}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"objectivs": 1}, "objectivs"),
    ({"model": ["a"]}, "model"),
    ({"model": "meta-llama/Llama-3.1-8B-Instrukt"}, "model"),
    ({"slo": ["ttft_p90_ms <= .nan"]}, "slo[0]"),
    ({"slo": ["ttft_mean <= 3"]}, "slo[0]"),
    ({"objectives": [{"minimize": "costs"}]}, "objectives[0].minimize"),
    ({"space": {}}, "space"),
    ({"space": {"gpu": []}}, "space.gpu"),
    ({"space": {"gpu": "H100", "replicas": -1}}, "space.replicas"),
    ({"space": {"gpu": "H100", "max_num_seqs": "many"}}, "space.max_num_seqs"),
    ({"space": {"gpu": "H100", "gpu_memory_utilization": float("nan")}}, "space.gpu_memory_utilization"),
    ({"space": {"gpu": "H100", "tensor_parallel_size": [3]}}, "space.tensor_parallel_size"),
    ({"space": {"gpu": "H100", "routing": "rond-robin"}}, "space.routing"),
    ({"workload": {"preset": "chatbt", "arrival": ARRIVAL, "num_requests": 5}}, "workload.preset"),
    (
        {"workload": {"preset": "chatbot", "arrival": ARRIVAL | {"rate_rps": 0}, "num_requests": 5}},
        "workload.arrival.rate_rps",
    ),
    (
        {"workload": {"preset": "chatbot", "arrival": ARRIVAL | {"rate_rps": -3}, "num_requests": 5}},
        "workload.arrival.rate_rps",
    ),
    ({"workload": {"kind": "trace", "trace": "absent.csv", "format": "csv"}}, "workload.trace"),
    ({"workload": {"kind": "trace", "trace": "broken.csv", "format": "csv"}}, "workload.trace"),
]


def test_two_searches_never_write_one_directory_at_a_time(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "run")
    store.start({"name": "first"}, keep_evaluations=False)
    space = write(tmp_path, SMALL)
    for option in ("--overwrite", "--resume"):
        refused = planner("search", space, "--out", "run", option, "--executor", "serial", cwd=tmp_path)
        assert refused.returncode == 2
        assert "another search" in refused.stderr or "--resume" in refused.stderr
    assert json.loads((tmp_path / "run/run.json").read_text()) == {"name": "first"}
    store.close()
    options = ("--out", "run", "--overwrite", "--executor", "serial", "--quiet")
    assert planner("search", space, *options, cwd=tmp_path).returncode == 0


def test_what_was_found_under_other_prices_is_not_taken_over(tmp_path: Path) -> None:
    space = write(tmp_path, SMALL)
    assert planner("search", space, "--quiet", cwd=tmp_path).returncode == 0
    cheaper = ("--set", "prices.L4=0.01", "--resume", "--quiet")
    assert planner("search", space, *cheaper, cwd=tmp_path).returncode == 0
    evaluations = (tmp_path / "results/small/evaluations.jsonl").read_text().splitlines()
    prices = {
        e["metrics"]["cost_per_hour"] / e["metrics"]["gpus"]
        for e in map(json.loads, evaluations)
        if e["parameters"]["gpu"] == "L4"
    }
    assert prices == {0.01}


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("simulate", "PLAN", "--json", "absent/x.json"), "--json"),
        (("simulate", "PLAN", "--json", "."), "--json"),
        (("simulate", "PLAN", "--requests", "absent/x.csv"), "--requests"),
        (("simulate", "PLAN", "--requests", "x", "--json", "x"), "--requests"),
        (("search", "SPACE", "--out", "file/run"), "--out"),
        (("search", "SPACE", "--out", "x" * 300), "--out"),
        (("search", "SPACE", "--workers", "9" * 5_000), "--workers"),
        (("plot", "RUN", "--out", "absent/x.png"), "--out"),
        (("export", "RUN", "--out", "file/x"), "--out"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_simulated(
    done: Path, tmp_path: Path, arguments: tuple[str, ...], option: str
) -> None:
    (tmp_path / "file").write_text("")
    places = {"PLAN": next((done / "plans").iterdir()), "SPACE": write(tmp_path, SMALL), "RUN": done}
    result = planner(*(places.get(argument, argument) for argument in arguments), cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("\n") == 1
    assert option in result.stderr
    assert not result.stdout


@pytest.mark.parametrize(("changes", "field"), BAD, ids=[f"{i}-{field}" for i, (_, field) in enumerate(BAD)])
def test_bad_input_is_one_line_with_file_and_field_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], field: str
) -> None:
    from planner.cli import main

    (tmp_path / "broken.csv").write_text("arrival_s,input_tokens,output_tokens\n0.0,10,5\n1.0,ten,5\n")
    space = write(tmp_path, SMALL | changes)
    code = main(["search", str(space), "--out", str(tmp_path / "run")])
    errors = capsys.readouterr().err
    assert code == 2
    assert errors.count("\n") == 1
    assert f"{space}: {field}: " in errors
    assert not (tmp_path / "run").exists()
    if "broken" in str(changes):
        assert "line 3" in errors


def test_a_plan_that_does_not_fit_is_refused_with_the_arithmetic(done: Path, tmp_path: Path) -> None:
    path = next((done / "plans").iterdir())
    changes = ("--set", "model=meta-llama/Llama-3.1-70B-Instruct", "--set", "deployment.gpu=H100")
    result = planner("simulate", path, *changes, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "GiB" in result.stderr


def test_requests_longer_than_max_model_len_are_counted_and_the_run_goes_on(done: Path, tmp_path: Path) -> None:
    path = next((done / "plans").iterdir())
    result = planner("simulate", path, "--set", "deployment.max_model_len=400", "--json", "-", cwd=tmp_path)
    summary = json.loads(result.stdout)
    assert 0 < summary["rejected"] < summary["offered"]
    assert summary["completed"] == summary["offered"] - summary["rejected"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["serch"],
        [],
        ["search"],
        ["search", "absent.yaml"],
        ["search", "space.yaml", "--workers", "0"],
        ["search", "space.yaml", "--overwrite", "--resume"],
        ["search", "space.yaml", "--set", "nonsense"],
        ["simulate", "space.yaml"],
        ["show", "absent"],
        ["export", ".", "--top-k", "0"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str]) -> None:
    write(tmp_path, SMALL)
    result = planner(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1, result.stderr


# -- manners ----------------------------------------------------------------------------------------------------


def test_help_takes_less_than_three_tenths_of_a_second(tmp_path: Path) -> None:
    def seconds() -> float:
        start = time.perf_counter()
        assert planner("--help", cwd=tmp_path).returncode == 0
        return time.perf_counter() - start

    assert min(seconds() for _ in range(3)) < 0.3


def test_version_says_how_the_engine_runs(tmp_path: Path) -> None:
    text = planner("--version", cwd=tmp_path).stdout
    assert text.startswith("planner ")
    assert "compiled" in text or "interpreted" in text


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    process = subprocess.Popen(
        [sys.executable, "-m", "planner.cli", "models"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.wait(30)


def test_a_search_whose_reader_goes_away_still_ends(tmp_path: Path) -> None:
    command = f"{sys.executable} -m planner.cli search {write(tmp_path, SMALL)} --out run --executor serial"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    subprocess.run(f"{command} 2>&1 | true", shell=True, cwd=tmp_path, env=environment, timeout=120, check=True)
    assert json.loads((tmp_path / "run/run.json").read_text())["status"] == "done"
    shown = subprocess.run(
        f"set -o pipefail; {sys.executable} -m planner.cli show run | true",
        shell=True, executable="/bin/bash", cwd=tmp_path, env=environment, timeout=60, check=False,
    )  # fmt: skip
    assert shown.returncode == 0


def test_a_closed_output_and_one_of_ascii_only_are_no_error(done: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent), "PYTHONIOENCODING": "ascii"}
    for redirection in ("", ">&-"):
        command = f"{sys.executable} -m planner.cli show {done} {redirection}"
        result = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, timeout=60)
        assert (result.returncode, result.stderr) == (0, b"")


def test_a_terminal_shows_evaluations_rate_feasible_front_and_time_left() -> None:
    import io

    from rich.console import Console

    from planner.progress import ProgressDisplay
    from planner.search.driver import Progress

    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, _environ={"TERM": "xterm"})
    with ProgressDisplay(console) as display:
        time.sleep(0.2)
        display(Progress(done=30, ruled_out=4, expected=120, feasible=12, front=3, elapsed_s=10.0))
    assert "30 of 120 simulated, 3.0/s, 12 feasible, front 3, 4 ruled out, 30 s left" in screen.getvalue()


def test_progress_goes_to_stderr_as_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    result = planner("search", write(tmp_path, SMALL), "--executor", "serial", cwd=tmp_path)
    assert "simulated" in result.stderr
    assert "feasible" in result.stderr
    assert "\x1b" not in result.stderr + result.stdout


def test_a_users_router_beside_the_space_is_found_by_serial_and_ray_alike(tmp_path: Path) -> None:
    (tmp_path / "my_router.py").write_text(
        "from sim.cluster import RoutingPolicy\n"
        "class Last(RoutingPolicy):\n"
        "    def route(self, request, replicas, now_s):\n"
        "        return len(replicas) - 1\n"
    )
    space = write(tmp_path, SMALL | {"space": {"gpu": "H100", "replicas": 2, "routing": ["my_router:Last", "random"]}})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for executor in ("serial", "ray"):
        options = ("--out", tmp_path / executor, "--executor", executor, "--quiet")
        result = planner("search", space, *options, cwd=elsewhere)
        assert result.returncode == 0, result.stderr
        assert json.loads((tmp_path / executor / "run.json").read_text())["evaluations"] == 2
    assert contents(tmp_path / "serial") == contents(tmp_path / "ray")
    for plan in (tmp_path / "serial" / "plans").iterdir():  # the module lies neither beside it nor here
        again = planner("simulate", plan, "--quiet", cwd=elsewhere)
        assert again.returncode == 0, again.stderr


def test_a_users_file_named_as_a_library_takes_nobodys_place(tmp_path: Path) -> None:
    for name in ("rich", "pydantic", "csv"):
        (tmp_path / f"{name}.py").write_text("raise SystemError('imported')\n")
    main = "import sys; from planner.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-P", "-c", main, "search", str(write(tmp_path, SMALL)), "--executor", "serial"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
