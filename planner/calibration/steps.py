"""A GPU's efficiencies from measured durations of whole steps, where no table of single kernels exists."""

from __future__ import annotations

import copy
import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.calibration.coefficient_file import set_path
from planner.calibration.kernels import Floats, KernelFit, Parameter, least_squares_fit
from sim.catalog import GPUSpec, load_gpu, load_model
from sim.deployment import Deployment
from sim.errors import InputError
from sim.latency import Coefficients, StepTime, parse_coefficients
from sim.latency.coefficient_set import EngineCoefficients
from sim.latency.step_time import PhysicalStepTime

Row = dict[str, str]

# Of a sum of separately measured layers: no engine around them.
NO_ENGINE = EngineCoefficients(
    step_us=0.0,
    layer_us=0.0,
    moe_layer_us=0.0,
    sequence_us=0.0,
    truncated_sampling_us=0.0,
    truncated_sampling_us_per_million_logits=0.0,
    mixed_step_us=0.0,
    host_step_us=0.0,
    host_sequence_us=0.0,
    piecewise_layer_us=0.0,
    eager_layer_us=0.0,
    elementwise_passes=1.0,
)

PARAMETERS = (
    Parameter("gemm.bf16.compute", 0.6, 0.1, 1.0),
    Parameter("gemm.bf16.bandwidth", 0.85, 0.3, 1.0),
    Parameter("gemm.bf16.launch_us", 4.0, 1.0, 30.0),
    Parameter("gemm.bf16.overlap_loss", 0.1, 0.0, 1.0),
    Parameter("attention.prefill_compute", 0.5, 0.05, 1.0),
    Parameter("attention.prefill_ramp_tokens", 100.0, 0.0, 2000.0),
    Parameter("attention.prefill_tile_rows", 64.0, 0.0, 1024.0),
    Parameter("attention.decode_bandwidth", 0.8, 0.6, 1.0),
    Parameter("attention.launch_us", 8.0, 0.0, 20.0),
    Parameter("attention.tile_us", 0.02, 0.0, 2.0),
    Parameter("attention.mixed_tile_rows", 128.0, 64.0, 256.0),
)


def read_step_rows(path: str | Path) -> list[Row]:
    """The `composed` rows of a step table whose quality is ok; `InputError` if it is no step table."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    if not rows or "measured_ms" not in rows[0]:
        raise InputError(str(path), "is no step table: lacks the column measured_ms")
    return [row for row in rows if row["kind"] == "composed" and row["quality"] == "ok"]


def step_ms(step_time: StepTime, row: Row) -> float:
    """What the model says of the step in `row`."""
    decodes = int(float(row["decode_seqs"]))
    new = int(float(row["prefill_tokens"]))
    context = int(float(row["context_tokens"]))
    if not new:
        constant, per_token, _ = step_time.decode(decodes)
        duration = constant + per_token * int(float(row["total_kv_tokens"]))
        return max(duration, step_time.floor(decodes)) / 1e9
    computed = 0 if decodes else context - new
    pairs = new * computed + new * (new + 1) // 2
    kv = decodes * context
    return step_time.mixed(decodes, kv, 0, 1, new, pairs, 0, computed + new, decodes + 1) / 1e9


def _coefficients(document: Mapping[str, Any], gpu: str, values: Floats) -> Coefficients:
    changed = copy.deepcopy(dict(document))
    for parameter, value in zip(PARAMETERS, values, strict=True):
        set_path(changed["gpus"][gpu], parameter.name, float(value))
    return replace(parse_coefficients(changed, "candidate"), engine=NO_ENGINE)


def _fits(gpu: GPUSpec, row: Row) -> bool:
    """Whether the row's KV cache fits the GPU beside the weights: what does not was timed on blocks used twice over,
    which stay in L2."""
    model, tp = load_model(row["model"]), int(row["tp"])
    room = 0.9 * gpu.memory_bytes - model.weight_bytes_per_gpu(tp)
    return float(row["total_kv_tokens"]) * model.kv_bytes_per_token_per_gpu(tp) < room


def fit_steps(document: Mapping[str, Any], gpu_name: str, rows: Sequence[Row]) -> tuple[dict[str, Any], KernelFit]:
    """The `gpus` entry of a GPU out of its step rows, on top of the default for its interconnect, and the fit."""
    gpu = load_gpu(gpu_name)
    rows = [row for row in rows if _fits(gpu, row)]
    entry = copy.deepcopy(document["defaults"]["pcie" if gpu.interconnect == "pcie" else "nvlink"])
    base = copy.deepcopy(dict(document))
    base["gpus"] = dict(base["gpus"]) | {gpu.name: entry}
    measured = np.array([float(row["measured_ms"]) for row in rows])
    deployments = {
        key: Deployment(load_model(key[0]), gpu, tensor_parallel_size=key[1], max_num_seqs=512)
        for key in {(row["model"], int(row["tp"])) for row in rows}
    }

    def predict(values: Floats) -> Floats:
        coefficients = _coefficients(base, gpu.name, values)
        # The rows leave the all-reduce out, so each GPU of a group is timed by itself.
        times = {key: PhysicalStepTime(d, coefficients, greedy=True) for key, d in deployments.items()}
        for step_time in times.values():
            step_time.without_all_reduce()
        return np.array([step_ms(times[row["model"], int(row["tp"])], row) for row in rows])

    fit = least_squares_fit(PARAMETERS, predict, measured)
    for name, value in fit.values.items():
        set_path(entry, name, value)
    entry["attention"]["decode_bandwidth_fp8"] = entry["attention"]["decode_bandwidth"]
    entry["attention"]["decode_compute"] = entry["attention"]["prefill_compute"]
    return entry, fit
