"""ServeGen clients: windows of load, histograms of lengths, and what a broken folder says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.errors import InputError
from sim.workload import Workload, build_workload, parse_workload

PS_PER_S = 10**12
TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"

BUSY = "0,0,0,,0,0\n600,20,0.5,Gamma,4,0.0125\n1200,5,2.0,Weibull,0.543,0.1\n1800,0,0,,0,0\n"
LENGTHS = {
    "0": {"input_tokens": "{}", "output_tokens": "{}"},
    "600": {"input_tokens": "{100: 0.75, 200: 2.5e-1}", "output_tokens": "{10: 1.0}"},
    "1200": {"input_tokens": "{7: 1}", "output_tokens": "{8: 0.5, 9: 0.5}"},
    "1800": {"input_tokens": "{}", "output_tokens": "{}"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    client(tmp_path, 2, BUSY)
    client(tmp_path, 10, "0,0,0,,0,0\n600,1,1,Gamma,1,1\n1200,0,0,,0,0\n1800,0,0,,0,0\n")
    return tmp_path


def client(folder: Path, number: int, windows: str, lengths: object = LENGTHS) -> None:
    (folder / f"chunk-{number}-trace.csv").write_text(windows)
    (folder / f"chunk-{number}-dataset.json").write_text(json.dumps(lengths))


def drawn(folder: Path, seed: int = 0, **fields: Any) -> Workload:
    return build_workload(parse_workload({"trace": ".", **fields}), seed, folder)


def of(load: Workload, name: str) -> np.ndarray:
    assert load.tenant is not None
    return load.tenant == load.tenants.index(name)


def test_each_window_has_its_rate_and_its_burstiness(folder: Path) -> None:
    load = drawn(folder)
    times = load.arrival_ps[of(load, "chunk-2")] / PS_PER_S  # from the first busy window, at 600 s
    first, second = times[times < 600], times[times >= 600]
    assert len(first) == pytest.approx(12_000, rel=0.03)
    assert len(second) == pytest.approx(3_000, rel=0.15)
    assert times[-1] < 1200
    assert np.diff(first).std() / np.diff(first).mean() == pytest.approx(0.5, rel=0.05)
    assert np.diff(second).std() / np.diff(second).mean() == pytest.approx(2.0, rel=0.2)


def test_lengths_come_from_the_histograms_of_their_window(folder: Path) -> None:
    load = drawn(folder)
    mine = of(load, "chunk-2")
    early, late = mine & (load.arrival_ps < 600 * PS_PER_S), mine & (load.arrival_ps >= 600 * PS_PER_S)
    assert set(load.prompt_tokens[early].tolist()) == {100, 200}
    assert np.mean(load.prompt_tokens[early] == 100) == pytest.approx(0.75, abs=0.02)
    assert set(load.prompt_tokens[late].tolist()) == {7}
    assert set(load.output_tokens[late].tolist()) == {8, 9}


def test_a_window_draws_the_same_requests_whatever_is_drawn_beside_it(folder: Path) -> None:
    everything = drawn(folder)
    second = drawn(folder, start_s=1200)
    late = everything.arrival_ps >= 600 * PS_PER_S
    assert np.array_equal(everything.arrival_ps[late] - 600 * PS_PER_S, second.arrival_ps)
    assert np.array_equal(everything.prompt_tokens[late], second.prompt_tokens)
    alone = folder / "alone"
    alone.mkdir()
    client(alone, 2, BUSY)
    assert np.array_equal(drawn(alone).arrival_ps, everything.arrival_ps[of(everything, "chunk-2")])


def test_a_span_is_cut_out_and_scaled(folder: Path) -> None:
    load = drawn(folder, start_s=900, duration_s=150, arrival_scale=0.5)
    assert load.arrival_ps[-1] < 150 * PS_PER_S
    assert len(load) == pytest.approx(300 * 21, rel=0.1)


def test_the_seed_decides(folder: Path) -> None:
    assert np.array_equal(drawn(folder, 1).arrival_ps, drawn(folder, 1).arrival_ps)
    assert not np.array_equal(drawn(folder, 1).arrival_ps[:50], drawn(folder, 2).arrival_ps[:50])


@pytest.mark.parametrize(
    ("windows", "lengths", "problem"),
    [
        ("0,1,1,Gamma,1\n", LENGTHS, "chunk-2-trace.csv: line 1: needs start, rate"),
        ("0,0,0,,0,0\n600,x,1,Gamma,1,1\n", LENGTHS, "chunk-2-trace.csv: line 2: start, rate, cv and shape must be"),
        ("0,-1,0,,0,0\n", LENGTHS, "line 1: rates must be 0 or more"),
        ("600,0,0,,0,0\n0,0,0,,0,0\n", LENGTHS, "line 2: .*in order of time"),
        ("0,1,1,Poisson,1,1\n", LENGTHS, "line 1: a busy window needs Gamma or Weibull"),
        (BUSY, [], "chunk-2-dataset.json: must be a JSON object"),
        (BUSY, {"0": {"input_tokens": "{}"}}, "chunk-2-dataset.json: window 0: needs histograms"),
        (BUSY, {"0": {"input_tokens": "{1: ", "output_tokens": "{1: 1}"}}, "window 0: needs histograms"),
        (BUSY, {"0": {"input_tokens": "{}", "output_tokens": "{}"}}, "holds no lengths"),
    ],
)
def test_broken_client_files_are_refused_with_their_line(
    tmp_path: Path, windows: str, lengths: object, problem: str
) -> None:
    client(tmp_path, 2, windows, lengths)
    with pytest.raises(InputError, match=problem) as caught:
        drawn(tmp_path)
    assert caught.value.field == "workload.trace"
    assert "\n" not in str(caught.value)


def test_a_folder_without_clients_or_without_requests_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InputError, match="no request arrives"):
        drawn(folder, start_s=5000)
    (folder / "chunk-2-dataset.json").unlink()
    with pytest.raises(InputError, match="cannot read"):
        drawn(folder)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="holds no chunk-N-trace"):
        drawn(empty, format="servegen")


def test_real_clients_are_read() -> None:
    if not (TRACES / "servegen_m-mid").exists():
        pytest.skip("needs the real ServeGen clients")
    raw = {"trace": "servegen_m-mid", "start_s": 33_000, "duration_s": 86_400}
    load = build_workload(parse_workload(raw), 0, TRACES)
    assert load.tenants == ["chunk-50"]
    assert 0.02 < len(load) / 86_400 < 0.3
