"""A complete coefficient document out of the fits of kernels and steps; what is shared, derived or assumed."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.calibration.coefficient_file import default_entries
from planner.calibration.kernels import PREFILL_TILE_ROWS, Row, fit_kernels
from planner.calibration.steps import fit_steps
from sim.catalog import load_gpu

# GPUs without a table of their own that are built like one with a table.
ALIKE = {
    "B300-SXM-288GB": "B200-SXM-180GB",
    "H800-SXM-80GB": "H100-SXM-80GB",
    "H100-PCIe-80GB": "H100-SXM-80GB",
    "A100-SXM-40GB": "A100-SXM-80GB",
    "A100-PCIe-80GB": "A100-SXM-80GB",
    "L4": "L40S",
    "A10G": "L40S",
}
# FlashAttention-2 pads each decode of a mixed batch to a tile of query rows; the kernels of Hopper and of data-centre
# Blackwell do not. The cost in rows is that of the GPUs whose mixed steps were timed (`fit_steps`), or else this.
FLASH_ATTENTION_2 = ("A100-SXM-80GB", "L40S", "RTX-4090", "RTX-PRO-6000")
PADDED_ROWS = 128.0
FP8_KV_CACHE = 0.45  # of the bandwidth, on Hopper, before serving runs say more: half of that with 16 bit

# Start of layer (b): the kernels' own launches aside, an engine costs what its small kernels and its host do.
ENGINE = {
    "step_us": 0.0,
    "layer_us": 13.0,
    "moe_layer_us": 0.0,
    "sequence_us": 0.0,
    "truncated_sampling_us": 186.0,
    "truncated_sampling_us_per_million_logits": 150.0,
    "mixed_step_us": 120.0,
    "host_step_us": 900.0,
    "host_sequence_us": 5.0,
    "piecewise_layer_us": 60.0,
    "eager_layer_us": 550.0,
    "elementwise_passes": 1.0,
}
REQUEST = {
    "before_queue_us": 3500.0,
    "before_queue_us_per_token": 5.0,
    "first_token_us": 500.0,
    "last_token_us": 1000.0,
    "gateway_us": 45000.0,  # llm-d in front: 40 to 55 ms (BLIS paper, Table 2, against the same model without)
}


def _complete(gpu: str, entry: dict[str, Any]) -> dict[str, Any]:
    """`entry` with what the kernel tables leave out."""
    attention, moe, gemm = entry["attention"], entry["moe"], entry["gemm"]
    hopper = gpu.startswith(("H100", "H200"))
    attention["prefill_tile_rows"] = PREFILL_TILE_ROWS
    attention["mixed_tile_rows"] = PADDED_ROWS if gpu in FLASH_ATTENTION_2 else 0.0
    attention["decode_bandwidth_fp8"] = FP8_KV_CACHE if hopper else attention["decode_bandwidth"]
    if hopper and "fp8_block" in moe:
        # The table's fp8 kernel (FlashInfer-CUTLASS of vLLM 0.24) reads weights at a sixth of the bandwidth; the
        # Triton kernel, which served the measured runs, is the one of the block-scaled rows.
        moe["fp8"] = dict(moe["fp8_block"])
    # Weights of 4 bits without tensor cores for them are expanded in the 16-bit kernel.
    for fmt in ("int4", "mxfp4"):
        gemm.setdefault(fmt, dict(gemm["bf16"]))
    moe.setdefault("int4", dict(moe.get("mxfp4", moe["bf16"])))
    return entry


def assemble(kernel_rows: Sequence[Row], step_rows: Sequence[Row]) -> dict[str, Any]:
    """A document that `parse_coefficients` reads, layer (a) fitted and layer (b) at its start, with its provenance."""
    entries, residuals = fit_kernels(kernel_rows)
    gpus = {name: _complete(name, entry) for name, entry in entries.items()}
    document: dict[str, Any] = {
        "name": "default",
        "gpus": gpus,
        "alike": {name: other for name, other in ALIKE.items() if other in gpus},
        "defaults": default_entries(gpus, {name: load_gpu(name).interconnect for name in gpus}),
        "engine": dict(ENGINE),
        "request": dict(REQUEST),
    }
    document["defaults"]["pcie"]["attention"]["mixed_tile_rows"] = PADDED_ROWS  # without Hopper's kernels
    stepped: dict[str, Any] = {}
    for name in sorted({row["gpu"] for row in step_rows}):
        gpu = load_gpu(name, "gpu")
        stepped[gpu.name], fit = fit_steps(document, name, [row for row in step_rows if row["gpu"] == name])
        residuals[gpu.name] = {"steps": fit.residuals()}
    _share_padding(gpus, stepped)
    gpus |= stepped
    document["provenance"] = {"kernels": {"residuals": residuals}}
    return document


def _share_padding(gpus: Mapping[str, Any], stepped: Mapping[str, Any]) -> None:
    """The rows that a decode is padded to, from the GPUs whose mixed steps were timed to those that have the same
    kernel. Rows count at the efficiency of long prefills, of which a GPU's own differs."""
    timed = [entry["attention"] for name, entry in stepped.items() if name.startswith("RTX-PRO")]
    if not timed:
        return
    rows = float(np.median([attention["mixed_tile_rows"] for attention in timed]))
    for name, entry in gpus.items():
        if name in FLASH_ATTENTION_2:
            entry["attention"]["mixed_tile_rows"] = round(rows, 1)


def copied(document: Mapping[str, Any]) -> dict[str, Any]:
    """A deep copy that may be changed."""
    return copy.deepcopy(dict(document))
