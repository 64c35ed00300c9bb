"""Mistakes that are found before anything is simulated, and named on one line with their field."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from planner.cli import main
from planner.parameters import check_parameter
from sim.errors import InputError

PLAN = {
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "workload": {
        "kind": "lengths",
        "input": 100,
        "output": 10,
        "slo_class": "standard",
        "arrival": {"process": "poisson", "rate_rps": 5},
        "num_requests": 20,
    },
    "deployment": {"gpu": "L40S"},
    "slo": ["ttft_p99_ms <= 2000"],
}


def _plan(folder: Path, **changes: object) -> str:
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(PLAN | changes), encoding="utf-8")
    return str(path)


def _space(folder: Path, **changes: object) -> str:
    document = {name: PLAN[name] for name in ("model", "workload", "slo")} | {
        "objectives": [{"minimize": "gpus"}],
        "space": {"gpu": "L40S", "replicas": [1, 2]},
    }
    path = folder / "space.yaml"
    path.write_text(yaml.safe_dump(document | changes), encoding="utf-8")
    return str(path)


def _refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that the command writes, which refuses it."""
    assert main(list(arguments)) == 2
    written = capsys.readouterr().err
    assert written.count("\n") == 1
    return written


def test_limits_on_a_class_that_no_request_has_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slo = ["ttft_p99_ms <= 2000", "critical.ttft_p90_ms <= 1"]
    search = ("search", _space(tmp_path, slo=slo), "--out", str(tmp_path / "run"), "--quiet")
    for command in (search, ("simulate", _plan(tmp_path, slo=slo)), ("capacity", _plan(tmp_path, slo=slo))):
        written = _refused(capsys, *command)
        assert "slo[1]: critical.ttft_p90_ms: no request of the workload is of class critical" in written
        assert "standard" in written


def test_objectives_of_a_class_that_no_request_has_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objectives = [{"minimize": "gpus"}, {"minimize": "batch.ttft_p90_ms"}]
    space = _space(tmp_path, objectives=objectives)
    assert "objectives[1]" in _refused(capsys, "search", space, "--out", str(tmp_path / "run"), "--quiet")


def test_limits_on_a_class_that_requests_have_are_judged(tmp_path: Path) -> None:
    space = _space(tmp_path, slo=["standard.ttft_p90_ms <= 2000"])
    assert main(["search", space, "--out", str(tmp_path / "run"), "--quiet", "--executor", "serial"]) == 0


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("capacity PLAN", "--json"),
        ("sweep PLAN", "--json"),
        ("sweep PLAN", "--plot"),
        ("compare PLAN PLAN", "--json"),
        ("compare PLAN PLAN", "--plot"),
        ("explain RUN", "--json"),
        ("explain RUN", "--out"),
        ("sensitivity RUN", "--json"),
        ("sensitivity RUN", "--out"),
        ("validate RUN PLAN", "--json"),
        ("report RUN", "--out"),
        ("fidelity PLAN", "--json"),
        ("calibrate PLAN", "--out"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_at_once(
    command: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *inputs = command.split()
    files = {"PLAN": _plan(tmp_path), "RUN": str(tmp_path / "no-run")}
    target = tmp_path / "nowhere" / "file.png"
    written = _refused(capsys, name, *(files[given] for given in inputs), option, str(target))
    assert f"{option}: {target} cannot be written" in written


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("disaggregation", {"name": "prefix-based", "non_cached_tokens": "x"}, "non_cached_tokens"),
        ("disaggregation", {"name": "prefix-based", "non_cached_tokens": -5}, "non_cached_tokens"),
        ("disaggregation", {"name": "prefix-based", "non_cached_tokens": 2.5}, "non_cached_tokens"),
        ("routing", {"name": "power-of-two", "choices": 2.5}, "choices"),
        ("kv_offload", {"name": "tiered", "host_gib": 1, "host_gb_per_s": 1e300}, "host_gb_per_s"),
        ("kv_offload", {"name": "tiered", "host_gib": 1, "host_latency_ms": 1e30}, "host_latency_ms"),
        ("flow_control", {"name": "static", "ttl_s": 1e300}, "ttl_s"),
        ("routing", {"name": "weighted", "kv": 10**400}, "kv"),
        ("kv_transfer_gb_per_s", 1e300, ""),
        ("kv_transfer_gb_per_s", 1e-300, ""),
        ("kv_transfer_latency_ms", 1e300, ""),
        ("snapshot_interval_ms", 1e300, ""),
    ],
)
def test_numbers_that_no_simulation_can_count_are_refused(name: str, value: object, field: str) -> None:
    with pytest.raises(InputError) as caught:
        check_parameter(name, value, f"space.{name}")
    assert caught.value.field == f"space.{name}" + (f".{field}" if field else "")
    assert "must be" in caught.value.problem


def test_whole_numbers_may_be_written_as_fractions_that_are_whole() -> None:
    assert check_parameter("routing", {"name": "power-of-two", "choices": 3.0}, "routing")["choices"] == 3
