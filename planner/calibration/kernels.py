"""Layer (a): per-GPU kernel efficiencies from a table of measured kernels, by bounded least squares."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.catalog import GPUSpec, load_gpu
from sim.catalog.weights import weight_format
from sim.errors import InputError
from sim.latency.kernels import one_shot_limit_bytes

Floats = npt.NDArray[np.float64]
Row = dict[str, str]

# dtype in the table -> number format of the weights in the catalog
FORMATS = {
    "bfloat16": "bf16",
    "float16": "bf16",
    "half": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
    "w4a16_mxfp4": "mxfp4",
    "int4_wo": "int4",
}
DIFF_STEP = 1e-3  # the model rounds to whole picoseconds: smaller steps would see plateaus
LOSS_SCALE = 0.1  # of the robust loss: relative errors beyond 10% count less than their square
PREFILL_TILE_ROWS = 64.0  # half a tile of 128 query rows; tables without cached prefixes cannot tell
KEPT_IN_CACHE = 128e6  # no GPU here has a larger L2 cache


@dataclass(frozen=True, slots=True)
class Parameter:
    """One coefficient of a fit with its bounds."""

    name: str
    start: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class KernelFit:
    """What one fit gave: values by name, and how well it does on its own rows (relative errors)."""

    values: dict[str, float]
    rows: int
    median_ape: float
    p90_ape: float
    bias: float
    at_bound: tuple[str, ...]

    def residuals(self) -> dict[str, Any]:
        """For the provenance of a coefficient file; percent."""
        report: dict[str, Any] = {
            "rows": self.rows,
            "median_ape": round(100 * self.median_ape, 1),
            "p90_ape": round(100 * self.p90_ape, 1),
            "bias": round(100 * self.bias, 1),
        }
        if self.at_bound:
            report["at_bound"] = list(self.at_bound)
        return report


def least_squares_fit(
    parameters: Sequence[Parameter], predict: Callable[[Floats], Floats], measured: Floats
) -> KernelFit:
    """Bounded robust least squares on log(predicted / measured)."""
    from scipy.optimize import least_squares  # slow to load, and most commands need none

    low = np.array([p.low for p in parameters])
    high = np.array([p.high for p in parameters])
    scale = np.maximum(high - low, 1e-12)

    def residual(unit: Floats) -> Floats:
        return np.log(predict(low + unit * scale) / measured)

    start = (np.array([p.start for p in parameters]) - low) / scale
    robust = {"loss": "soft_l1", "f_scale": LOSS_SCALE}
    result = least_squares(residual, start, bounds=(0.0, 1.0), x_scale=0.1, diff_step=DIFF_STEP, **robust)
    errors = np.expm1(residual(result.x))
    values = low + result.x * scale
    near = [p.name for p, u in zip(parameters, result.x, strict=True) if (u < 1e-3 and p.low > 0) or u > 1 - 1e-3]
    return KernelFit(
        values={p.name: float(f"{v:.4g}") if v > 1e-6 else 0.0 for p, v in zip(parameters, values, strict=True)},
        rows=len(measured),
        median_ape=float(np.median(np.abs(errors))),
        p90_ape=float(np.quantile(np.abs(errors), 0.9)),
        bias=float(np.median(errors)),
        at_bound=tuple(near),
    )


def overlapped(first: Floats, second: Floats, loss: float) -> Floats:
    """As sim.latency.kernels.overlapped, on arrays."""
    return np.maximum(first, second) + loss * np.minimum(first, second)


def column(rows: Sequence[Row], name: str) -> Floats:
    """A column as floats; blanks are 0."""
    return np.array([float(row[name] or 0) for row in rows])


def outside_cache(working_set: Floats, bytes_per_s: float, us: Floats) -> npt.NDArray[np.bool_]:
    """Rows to keep: a benchmark that repeats a small kernel finds its data in L2, which a server never does.
    Sets up to the largest one that beat the datasheet's bandwidth are left out; tiny ones show the launch and stay."""
    faster = (working_set / (us * 1e-6) > bytes_per_s) & (working_set < KEPT_IN_CACHE)
    if not faster.any():
        return np.ones(len(us), dtype=bool)
    return (working_set > working_set[faster].max()) | (working_set < 1e6)


def _peak(gpu: GPUSpec, fmt: str) -> float:
    own = gpu.flops_per_s(weight_format(fmt).compute, or_zero=True)
    return own if own > 0 else gpu.flops_per_s("bf16")


def fit_gemm(gpu: GPUSpec, fmt: str, rows: Sequence[Row]) -> KernelFit:
    """launch, bandwidth and compute efficiency of dense GEMMs with weights in `fmt`."""
    m, n, k = (column(rows, name) for name in "mnk")
    us = column(rows, "latency_ms") * 1e3
    weights = n * k * weight_format(fmt).bytes_per_parameter
    keep = outside_cache(weights, gpu.memory_bandwidth_bytes_per_s, us)
    m, n, k, us, weights = (values[keep] for values in (m, n, k, us, weights))
    memory = (weights + 2 * m * (n + k)) / gpu.memory_bandwidth_bytes_per_s * 1e6
    compute = 2 * m * n * k / _peak(gpu, fmt) * 1e6
    parameters = (
        Parameter("compute", 0.7, 0.05, 1.0),
        Parameter("bandwidth", 0.8, 0.1, 1.0),
        Parameter("launch_us", 4.0, 0.0, 30.0),
        Parameter("overlap_loss", 0.1, 0.0, 1.0),
    )
    fit = least_squares_fit(parameters, lambda v: v[2] + overlapped(memory / v[1], compute / v[0], v[3]), us)
    fit.values.update(activation_passes=1.0, host_us=0.0)
    return fit


def fit_moe(gpu: GPUSpec, fmt: str, rows: Sequence[Row]) -> KernelFit:
    """The same of the grouped GEMMs of a mixture layer, from the rows without expert parallelism."""
    base = "fp8" if fmt == "fp8_block" else fmt
    rows = [row for row in rows if float(row["moe_ep"] or 1) == 1]
    tokens, hidden, inter, topk, experts, tp = (
        column(rows, name) for name in ("num_tokens", "hidden", "inter", "topk", "num_experts", "moe_tp")
    )
    us = column(rows, "latency_ms") * 1e3
    width = inter / tp
    touched = experts * (1 - (1 - topk / experts) ** tokens)
    balanced = np.array([row["routing_dist"] == "balanced" for row in rows])
    touched = np.where(balanced, np.minimum(experts, tokens * topk), touched)  # dealt out in turn, not drawn
    per_expert = 3 * hidden * width
    read = touched * per_expert * weight_format(base).bytes_per_parameter
    moved = tokens * topk * (2 * hidden + 3 * width) * 2
    row_us = 2 * per_expert / _peak(gpu, base) * 1e6
    parameters = (
        Parameter("compute", 0.4, 0.05, 1.0),
        Parameter("bandwidth", 0.7, 0.1, 1.0),
        Parameter("launch_us", 20.0, 0.0, 120.0),
        Parameter("overlap_loss", 0.1, 0.0, 0.3),
        Parameter("activation_passes", 1.5, 1.0, 4.0),
    )

    def predict(v: Floats) -> Floats:
        memory = (read + v[4] * moved) / gpu.memory_bandwidth_bytes_per_s * 1e6
        return v[2] + overlapped(memory / v[1], tokens * topk * row_us / v[0], v[3])

    fit = least_squares_fit(parameters, predict, us)
    fit.values["host_us"] = 0.0
    return fit


def fit_prefill(gpu: GPUSpec, rows: Sequence[Row]) -> KernelFit:
    """Compute efficiency of prefill attention, the ramp of short chunks, and the launch."""
    rows = [row for row in rows if float(row["seq_len"]) > 1]
    batch, q, past, heads, kv_heads, dim = (
        column(rows, name) for name in ("batch", "seq_len", "past_kv", "num_heads", "num_kv_heads", "head_dim")
    )
    us = column(rows, "latency_ms") * 1e3
    pairs = batch * (q * past + q * (q + 1) / 2)
    tiles = batch * (past + q) * PREFILL_TILE_ROWS
    pair_us = 4 * heads * dim / gpu.bf16_flops_per_s * 1e6
    read = batch * (past + q) * kv_heads * dim * 4 / gpu.memory_bandwidth_bytes_per_s * 1e6
    parameters = (
        Parameter("prefill_compute", 0.6, 0.05, 1.0),
        Parameter("prefill_ramp_tokens", 200.0, 0.0, 2000.0),
        Parameter("launch_us", 8.0, 0.0, 60.0),
    )
    return least_squares_fit(
        parameters, lambda v: v[2] + (pairs + tiles + v[1] * batch * q) * pair_us / v[0] + read, us
    )


def fit_decode(gpu: GPUSpec, rows: Sequence[Row]) -> KernelFit:
    """Bandwidth efficiency of decode attention, the cost of each (sequence, KV head), and the launch; from contexts of
    256 tokens and more, as served."""
    rows = [row for row in rows if float(row["past_kv"]) >= 255]
    batch, past, kv_heads, dim = (column(rows, name) for name in ("batch", "past_kv", "num_kv_heads", "head_dim"))
    us = column(rows, "latency_ms") * 1e3
    read = batch * (past + 1) * kv_heads * dim * 4
    keep = outside_cache(read, gpu.memory_bandwidth_bytes_per_s, us)
    tiles, us, read = (batch * kv_heads)[keep], us[keep], read[keep]
    floor = read / gpu.memory_bandwidth_bytes_per_s * 1e6
    parameters = (
        Parameter("decode_bandwidth", 0.8, 0.1, 1.0),
        Parameter("tile_us", 0.02, 0.0, 2.0),
        Parameter("launch_us", 8.0, 0.0, 60.0),
    )
    return least_squares_fit(parameters, lambda v: v[2] + tiles * v[1] + floor / v[0], us)


def _latency_and_bandwidth(floor: Floats, values: Floats) -> Floats:
    return values[0] + floor / values[1]


def fit_all_reduce(gpu: GPUSpec, gpus: int, rows: Sequence[Row]) -> dict[str, KernelFit]:
    """One-shot and two-shot costs among `gpus` GPUs. Beyond 2 GPUs on PCIe vLLM's kernel is off: NCCL's rows."""
    custom = gpu.interconnect != "pcie" or gpus == 2
    kernel = "vLLM_custom_graph" if custom else "NCCL"
    rows = [row for row in rows if row["kernel"] == kernel and 256 <= float(row["bytes"]) <= 64e6]
    payload, us = column(rows, "bytes"), column(rows, "latency_ms") * 1e3
    link = gpu.interconnect_bytes_per_s / 1e6
    threshold = one_shot_limit_bytes(gpus)
    fits = {}
    for name, factor, keep in (
        ("one_shot", gpus - 1, payload <= threshold),
        ("two_shot", 2 * (gpus - 1) / gpus, payload > threshold),
    ):
        parameters = (Parameter(f"{name}_us", 6.0, 0.0, 100.0), Parameter(f"{name}_bandwidth", 0.5, 0.01, 1.0))
        floor = factor * payload[keep] / link
        fits[name] = least_squares_fit(parameters, partial(_latency_and_bandwidth, floor), us[keep])
    return fits


def read_kernel_rows(path: str | Path) -> list[Row]:
    """The rows of a kernel table; `InputError` if it is missing or has other columns."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    needed = {"gpu", "op", "kernel", "dtype", "m", "n", "k", "latency_ms", "bytes", "num_gpus", "num_tokens"}
    if not rows or not needed <= rows[0].keys():
        missing = ", ".join(sorted(needed - (rows[0].keys() if rows else set())))
        raise InputError(str(path), f"is no kernel table: lacks the columns {missing}")
    return rows


def fit_gpu(gpu: GPUSpec, rows: Sequence[Row]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The `gpus` entry of a coefficient file for one GPU, and the residuals of its fits."""
    entry: dict[str, Any] = {"gemm": {}, "moe": {}}
    residuals: dict[str, Any] = {}

    def note(name: str, fit: KernelFit) -> dict[str, float]:
        residuals[name] = fit.residuals()
        return fit.values

    for op, fitted in (("gemm", fit_gemm), ("moe", fit_moe)):
        of_op = [row for row in rows if row["op"] == op]
        for dtype in sorted({row["dtype"] for row in of_op}):
            fmt = FORMATS[dtype]
            entry[op][fmt] = note(f"{op}.{fmt}", fitted(gpu, fmt, [row for row in of_op if row["dtype"] == dtype]))
    prefill = note("attention.prefill", fit_prefill(gpu, [row for row in rows if row["op"] == "attn_prefill"]))
    decode = note("attention.decode", fit_decode(gpu, [row for row in rows if row["op"] == "attn_decode"]))
    prefill.pop("launch_us")  # both kernels run in one launch; the decode's is the one on the critical path
    entry["attention"] = {**prefill, **decode, "decode_compute": prefill["prefill_compute"]}
    entry["all_reduce"] = []
    reduces = [row for row in rows if row["op"] == "all_reduce"]
    for gpus in sorted({int(float(row["num_gpus"])) for row in reduces}):
        fits = fit_all_reduce(gpu, gpus, [row for row in reduces if float(row["num_gpus"]) == gpus])
        values: dict[str, float] = {"gpus": gpus}
        for name, fit in fits.items():
            values |= note(f"all_reduce.{gpus}.{name}", fit)
        entry["all_reduce"].append(values)
    return entry, residuals


def fit_kernels(rows: Sequence[Row]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Entries and residuals by catalog GPU, for every GPU in a kernel table."""
    entries: dict[str, Any] = {}
    residuals: dict[str, Any] = {}
    for name in sorted({row["gpu"] for row in rows}):
        gpu = load_gpu(name, "gpu")
        entries[gpu.name], residuals[gpu.name] = fit_gpu(gpu, [row for row in rows if row["gpu"] == name])
    return entries, residuals
