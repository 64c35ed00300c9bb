"""`planner workload describe`: every format is read, numbers and picture are the requests', errors take a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.cli import main
from planner.report.workload_plot import workload_figure
from sim.workload import build_workload, parse_workload
from sim.workload.describe import course, describe, reusable_tokens

MOONCAKE = "\n".join(
    json.dumps({"timestamp": 1000 * i, "input_length": 1024, "output_length": 5, "hash_ids": [0, i + 1]})
    for i in range(5)
)
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,300,20\n2023-11-16 18:15:50.68,500,40\n"
OWN = "arrival_s,input_tokens,output_tokens,slo_class\n0,100,10,critical\n2,200,20,batch\n4,300,30,critical\n"
TRACEV2 = "arrival_time_us,input_tokens,output_tokens,tenant_id\n0,10,1,a\n1000000,20,2,b\n4000000,30,3,b\n"
PAIRS = "[12, 3]\n[20, 5]\n"
SPACE = """
name: mine
model: any
workload: {kind: lengths, input: 100, output: 10, num_requests: 50, arrival: {process: constant, rate_rps: 5}}
search: {seed: 3}
"""
PLAN = """
model: any
workload:
  kind: clients
  arrival: {process: poisson, rate_rps: 10}
  num_requests: 100
  clients: [{share: 1, preset: chatbot, tenant: x}, {share: 3, preset: chatbot, tenant: y}]
seed: 1
"""


def described(file: Path, *options: str) -> dict[str, Any]:
    out = file.parent / "out.json"
    assert main(["workload", "describe", str(file), "--json", str(out), *options]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize(
    ("name", "text", "requests", "span_s", "prompt_mean"),
    [
        ("m.jsonl", MOONCAKE, 5, 4, 1024),
        ("a.csv", AZURE, 2, 4, 400),
        ("o.csv", OWN, 3, 4, 200),
        ("t.csv", TRACEV2, 3, 4, 20),
        ("space.yaml", SPACE, 50, 9.8, 100),
    ],
)
def test_every_format_is_described(
    tmp_path: Path, name: str, text: str, requests: int, span_s: float, prompt_mean: float
) -> None:
    found = described(written(tmp_path, name, text), "--plot", str(tmp_path / "p.svg"))
    assert (found["requests"], found["prompt_tokens"]["mean"]) == (requests, prompt_mean)
    assert found["span_s"] == pytest.approx(span_s)
    assert found["rate_rps"] == pytest.approx(requests / span_s)
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")


def test_lengths_without_times_have_no_rate_and_still_a_picture(tmp_path: Path) -> None:
    found = described(written(tmp_path, "pairs.jsonl", PAIRS), "--plot", str(tmp_path / "p.png"))
    assert (found["requests"], found["rate_rps"], found["prompt_tokens"]["mean"]) == (2, None, 16)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_tracev2_header_names_its_trace(tmp_path: Path) -> None:
    written(tmp_path, "run.csv", TRACEV2)
    found = described(written(tmp_path, "run.yaml", "time_unit: us\n"))
    assert {name: group["requests"] for name, group in found["tenants"].items()} == {"a": 1, "b": 2}


def test_a_servegen_folder_is_described(tmp_path: Path) -> None:
    folder = tmp_path / "clients"
    folder.mkdir()
    written(folder, "chunk-1-trace.csv", "0,2,1,Gamma,1,0.5\n600,0,0,,0,0\n1200,0,0,,0,0\n")
    tokens = {"input_tokens": "{50: 1.0}", "output_tokens": "{5: 1.0}"}
    none = {"input_tokens": "{}", "output_tokens": "{}"}
    written(folder, "chunk-1-dataset.json", json.dumps({"0": tokens, "600": none, "1200": none}))
    found = described(folder)
    assert found["rate_rps"] == pytest.approx(2, rel=0.2)
    assert found["prompt_tokens"]["mean"] == 50


def test_what_is_shared_is_told_from_what_could_be_hit(tmp_path: Path) -> None:
    """Block 0 begins all five prompts, and is new once."""
    found = described(written(tmp_path, "m.jsonl", MOONCAKE))
    assert found["shared_fraction"] == 0.5
    assert found["reusable_fraction"] == 4 * 512 / (5 * 1024)


def test_classes_and_tenants_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = described(written(tmp_path, "o.csv", OWN))
    assert found["classes"]["critical"] == {"requests": 2, "prompt_tokens_mean": 200, "output_tokens_mean": 20}
    found = described(written(tmp_path, "plan.yaml", PLAN))
    assert sum(group["requests"] for group in found["tenants"].values()) == 100
    assert found["tenants"]["y"]["requests"] > found["tenants"]["x"]["requests"]
    shown = capsys.readouterr().out
    assert "critical" in shown
    assert "67%" in shown


def test_overrides_and_seeds_are_those_of_the_search(tmp_path: Path) -> None:
    space = written(tmp_path, "space.yaml", SPACE.replace("constant", "poisson"))
    wanted = {"kind": "lengths", "input": 100, "output": 10, "num_requests": 50}
    wanted["arrival"] = {"process": "poisson", "rate_rps": 20}
    load = build_workload(parse_workload(wanted), 3)
    found = described(space, "--set", "workload.arrival.rate_rps=20")
    assert found["span_s"] == pytest.approx(load.arrival_ps[-1] / 1e12)
    trace = written(tmp_path, "m.jsonl", MOONCAKE)
    assert described(trace, "--set", "workload.arrival_scale=0.5")["span_s"] == 2


def test_numbers_go_to_the_output_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "describe", str(written(tmp_path, "o.csv", OWN)), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 3


@pytest.mark.parametrize(
    ("name", "text", "options", "problem"),
    [
        ("o.csv", OWN + "5,x,1,batch\n", [], "trace: o.csv: line 5: input_tokens must be a whole number"),
        ("o.csv", OWN, ["--format", "mooncke"], "workload.format: must be one of mooncake"),
        ("o.csv", OWN, ["--plot", "x.pdf"], "--plot: must end in .png or .svg"),
        ("o.csv", OWN, ["--set", "workload.arival_scale=2"], "workload.arival_scale: unknown field (did you mean"),
        ("space.yaml", SPACE.replace("rate_rps: 5", "rate_rps: -5"), [], "space.yaml: workload.arrival.rate_rps: must"),
        ("space.yaml", SPACE.replace("seed: 3", "seed: -3"), [], "space.yaml: search.seed: must be a whole number"),
        ("space.yaml", "workload: 3\n", [], "space.yaml: workload: must be a mapping"),
        ("o.csv", None, [], "trace: no file"),
        ("space.yaml", None, [], "space.yaml: no such file"),
    ],
)
def test_an_error_takes_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, options: list[str], problem: str
) -> None:
    if text is not None:
        written(tmp_path, name, text)
    assert main(["workload", "describe", str(tmp_path / name), *options]) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1


def test_the_course_adds_up_to_the_workload() -> None:
    raw = {"preset": "codegen", "arrival": {"process": "gamma", "cv": 3, "rate_rps": 5}, "num_requests": 2_000}
    load = build_workload(parse_workload(raw), 0)
    found = course(load)
    width_s = np.diff(found.edges_s)
    assert found.requests_per_s @ width_s == pytest.approx(2_000)
    assert found.prompt_tokens_per_s @ width_s == pytest.approx(int(load.prompt_tokens.sum()))
    assert found.reusable_tokens_per_s @ width_s == pytest.approx(int(reusable_tokens(load).sum()))
    assert found.requests_per_s.max() == pytest.approx(describe(load).peak_rate_rps)


def test_a_few_requests_make_no_peak_of_their_own() -> None:
    """With one request a window the busiest window would say how short windows are, not how busy the load is."""
    raw = {"kind": "lengths", "input": 9, "output": 9, "num_requests": 10}
    load = build_workload(parse_workload(raw | {"arrival": {"process": "poisson", "rate_rps": 5}}), 0)
    found = describe(load)
    assert found.peak_rate_rps == found.rate_rps
    assert found.dispersion is None


def test_the_picture_draws_every_length_and_every_window() -> None:
    raw = {"preset": "codegen", "arrival": {"process": "poisson", "rate_rps": 5}, "num_requests": 400}
    load = build_workload(parse_workload(raw), 0)
    rate, _, lengths, reuse = workload_figure(load, "mine").axes
    edges = rate.patches[0].get_data().edges
    assert edges[-1] == pytest.approx(load.arrival_ps[-1] / 1e12)
    prompt = lengths.lines[0].get_xdata()
    assert (prompt.min(), prompt.max()) == (load.prompt_tokens.min(), load.prompt_tokens.max())
    shares = reuse.patches[0].get_data().values
    assert sorted(shares) == pytest.approx(sorted(reusable_tokens(load) / load.prompt_tokens))
