"""Calibration finds the coefficients that made the data, and never fits on what it is judged by."""

from __future__ import annotations

import copy
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from planner.calibrate import calibrate, sort_files
from planner.calibration.blocks import BLOCKS
from planner.calibration.kernels import fit_all_reduce, fit_decode, fit_gemm, fit_moe, fit_prefill, outside_cache
from planner.calibration.serving import Block, Coefficient, fit_block, get_path, is_fit_row, relative_errors, set_path
from planner.calibration.steps import fit_steps, step_ms
from planner.measurements import MeasuredRun
from sim.catalog import load_gpu, load_model
from sim.deployment import Deployment
from sim.errors import InputError
from sim.latency import build_step_time, parse_coefficients
from sim.latency.coefficient_set import AllReduceCoefficients, GemmCoefficients
from sim.latency.kernels import AllReduceTime, GemmTime, GroupedGemmTime
from sim.workload import build_workload, parse_workload

H100 = load_gpu("H100")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    text = resources.files("sim.latency").joinpath("coefficients", "default.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def rows_of(**columns: Any) -> list[dict[str, str]]:
    names = list(columns)
    return [dict(zip(names, map(str, values), strict=True)) for values in zip(*columns.values(), strict=True)]


def test_a_gemm_table_gives_back_the_efficiencies_that_made_it() -> None:
    truth = GemmCoefficients(0.7, 0.8, 5.0, 0.2, 0.0, 1.0)
    shapes = [(m, n, k) for m in (1, 16, 128, 512, 4096) for n in (4096, 16384) for k in (4096, 8192)]
    times = [
        GemmTime(n, k, 2.0 * n * k, H100.bf16_flops_per_s, H100.memory_bandwidth_bytes_per_s, truth).us(m) / 1e3
        for m, n, k in shapes
    ]
    m, n, k = zip(*shapes, strict=True)
    fit = fit_gemm(H100, "bf16", rows_of(m=m, n=n, k=k, latency_ms=times))
    assert fit.values["compute"] == pytest.approx(0.7, rel=0.02)
    assert fit.values["bandwidth"] == pytest.approx(0.8, rel=0.02)
    assert fit.values["launch_us"] == pytest.approx(5.0, rel=0.05)
    assert fit.median_ape < 0.01


def test_a_table_of_experts_gives_back_the_efficiencies_that_made_it() -> None:
    truth = GemmCoefficients(0.5, 0.75, 20.0, 0.1, 0.0, 2.0)
    tokens = (1, 4, 16, 64, 256, 1024, 4096)
    model = GroupedGemmTime(
        64, 8, 3 * 2048 * 1024, 2.0, 2.0 * 8 * (2 * 2048 + 3 * 1024), H100.bf16_flops_per_s,
        H100.memory_bandwidth_bytes_per_s, truth,
    )  # fmt: skip
    rows = rows_of(
        num_tokens=tokens, hidden=[2048] * 7, inter=[1024] * 7, topk=[8] * 7, num_experts=[64] * 7, moe_tp=[1] * 7,
        moe_ep=[1] * 7, routing_dist=["power_law_1.2"] * 7, latency_ms=[model.us(t) / 1e3 for t in tokens],
    )  # fmt: skip
    assert fit_moe(H100, "bf16", rows).median_ape < 0.02


def test_an_all_reduce_table_gives_back_the_latency_that_made_it() -> None:
    truth = AllReduceCoefficients(4, 5.0, 0.5, 8.0, 0.6)
    model = AllReduceTime(4, H100.interconnect_bytes_per_s, truth)
    sizes = [2**i for i in range(10, 26)]
    kernel = ["vLLM_custom_graph"] * len(sizes)
    fits = fit_all_reduce(H100, 4, rows_of(kernel=kernel, bytes=sizes, latency_ms=[model.us(s) / 1e3 for s in sizes]))
    assert fits["one_shot"].values["one_shot_us"] == pytest.approx(5.0, rel=0.02)
    assert fits["one_shot"].values["one_shot_bandwidth"] == pytest.approx(0.5, rel=0.02)
    assert fits["two_shot"].values["two_shot_bandwidth"] == pytest.approx(0.6, rel=0.05)


def test_attention_tables_give_back_what_made_them() -> None:
    q = [256, 1024, 4096, 8192, 16384]
    pairs = [n * (n + 1) / 2 + 64 * n + 300 * n for n in q]
    read = [n * 8 * 128 * 4 / H100.memory_bandwidth_bytes_per_s for n in q]
    times = [
        9e-3 + (p * 4 * 32 * 128 / (0.6 * H100.bf16_flops_per_s) + r) * 1e3 for p, r in zip(pairs, read, strict=True)
    ]
    common = {"num_heads": [32] * 5, "num_kv_heads": [8] * 5, "head_dim": [128] * 5}
    prefill = fit_prefill(H100, rows_of(batch=[1] * 5, seq_len=q, past_kv=[0] * 5, latency_ms=times, **common))
    assert prefill.values["prefill_compute"] == pytest.approx(0.6, rel=0.03)
    past = [511, 1023, 4095, 8191, 16383]
    floor = [64 * (p + 1) * 8 * 128 * 4 / H100.memory_bandwidth_bytes_per_s * 1e3 for p in past]
    decode = fit_decode(
        H100, rows_of(batch=[64] * 5, past_kv=past, latency_ms=[0.01 + f / 0.85 for f in floor], **common)
    )
    assert decode.values["decode_bandwidth"] == pytest.approx(0.85, rel=0.03)


def test_data_that_stays_in_the_cache_is_not_taken_for_bandwidth() -> None:
    sizes = np.array([1e5, 8e6, 30e6, 200e6])
    us = np.array([3.0, 2.0, 20.0, 120.0])  # 8 MB in 2 us: 4 TB/s on a GPU of 2 TB/s
    assert outside_cache(sizes, 2e12, us).tolist() == [True, False, True, True]


def small_run(document: dict[str, Any], identity: str, rate: float) -> MeasuredRun:
    """A run that is measured on the simulator itself, under the document's coefficients."""
    deployment = Deployment(load_model("meta-llama/Llama-3.1-8B-Instruct"), H100, max_num_seqs=64)
    spec = parse_workload(
        {"kind": "lengths", "input": 300, "output": 30, "arrival": {"process": "poisson", "rate_rps": rate},
         "num_requests": 60}
    )  # fmt: skip
    run = MeasuredRun(
        identity, "mine", "open loop", H100.name, "m", "bf16", deployment, lambda seed: build_workload(spec, seed), {}
    )
    measured = dict.fromkeys(("ttft_mean", "tpot_mean", "e2e_mean"), 1.0)
    (errors,) = relative_errors(document, [replace(run, measured=measured)])
    return replace(run, measured={metric: float(np.exp(error)) for metric, error in errors.items()})


def test_a_serving_fit_finds_the_overhead_that_made_the_runs(document: dict[str, Any]) -> None:
    truth = copy.deepcopy(document)
    set_path(truth, "engine.layer_us", 21.0)
    set_path(truth, "request.before_queue_us", 9000.0)
    runs = [small_run(truth, f"r{rate}", rate) for rate in (2, 10, 30)]
    block = Block(
        "test",
        (Coefficient(("engine.layer_us",), 0.0, 40.0), Coefficient(("request.before_queue_us",), 0.0, 20000.0)),
        lambda run: True,
    )
    fitted, report = fit_block(document, block, runs)
    assert get_path(fitted, "engine.layer_us") == pytest.approx(21.0, rel=0.1)
    assert get_path(fitted, "request.before_queue_us") == pytest.approx(9000.0, rel=0.1)
    assert report.after["e2e_mean"] < 1.0 < report.before["e2e_mean"]
    low, high = report.intervals["engine.layer_us"]
    assert low <= get_path(fitted, "engine.layer_us") * 1.01
    assert high >= get_path(fitted, "engine.layer_us") * 0.99


def test_a_step_table_gives_back_a_gpu(document: dict[str, Any]) -> None:
    """Steps made with an L40S's coefficients, told to be another GPU's, predict themselves."""
    gpu, model = load_gpu("L40S"), load_model("meta-llama/Llama-3.1-8B-Instruct")
    from planner.calibration.steps import NO_ENGINE

    coefficients = replace(parse_coefficients(document, "x"), engine=NO_ENGINE)
    step_time = build_step_time(Deployment(model, gpu, max_num_seqs=512), coefficients, greedy=True)
    shapes = [(n, 0, c, n * c) for n in (1, 4, 16, 64) for c in (64, 512, 2048)]
    shapes += [(0, q, q + p, q + p) for q in (16, 128, 1024, 4096) for p in (0, 1024)]
    shapes += [(32, 256, 1024, 32 * 1024 + 256), (64, 512, 512, 64 * 512 + 512)]
    rows = [
        {"gpu": "l40s", "model": "Llama-3.1-8B-Instruct", "tp": "1", "decode_seqs": str(d), "prefill_tokens": str(q),
         "context_tokens": str(c), "total_kv_tokens": str(kv)} for d, q, c, kv in shapes
    ]  # fmt: skip
    for row in rows:
        row["measured_ms"] = str(step_ms(step_time, row))
    _, fit = fit_steps(document, "L40S", rows)
    assert fit.median_ape < 0.03


def test_a_quarter_of_the_load_points_may_be_fitted_on_and_always_the_same() -> None:
    ids = [f"point-{i}" for i in range(4000)]
    chosen = [is_fit_row(i) for i in ids]
    assert 900 < sum(chosen) < 1100
    assert chosen == [is_fit_row(i) for i in ids]


def test_the_dev_set_is_never_fitted_on(tmp_path: Path) -> None:
    path = tmp_path / "vllm_open_loop_dev.json"
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="never to fit on"):
        sort_files([str(path)])


def test_without_a_kernel_table_a_start_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "vllm_open_loop_train.json"
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="--start: is required"):
        calibrate([str(path)], "serving", None, print)


def test_blocks_bound_every_efficiency_by_the_datasheet(document: dict[str, Any]) -> None:
    for block in BLOCKS:
        for coefficient in block.coefficients:
            for path in coefficient.paths:
                get_path(document, path)  # it exists
            name = coefficient.paths[0].rpartition(".")[2]
            if name in ("compute", "bandwidth", "decode_bandwidth_fp8"):
                assert 0 < coefficient.low < coefficient.high <= 1
