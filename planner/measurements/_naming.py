"""From the names in benchmark files to the catalog's models, and from engine versions to their defaults."""

from __future__ import annotations

import re

from sim.catalog import GPUSpec, ModelSpec, load_model, model_names
from sim.errors import InputError
from sim.memory import api_server_defaults

SIXTEEN_BIT = ("", "bf16", "fp16", "bfloat16", "float16", "auto")
ASYNC_SCHEDULING_SINCE = (0, 14)
# Of vLLM by the month of a measurement, for rows that record a date and no version.
VERSION_BY_MONTH = {"2025-10": "0.11.0", "2025-11": "0.11.2", "2025-12": "0.12.0", "2026-01": "0.13.0"}


def version_of(text: str, note: str, fallback: str = "0.11.0") -> str:
    """``major.minor.patch`` from a version column, or from the month of measurement in a note."""
    if text.startswith("llm-d"):  # the router's own version; its images of May 2025 served vLLM 0.8.5
        return "0.8.5"
    found = re.search(r"\d+\.\d+(\.\d+)?", text)
    if found:
        return found[0]
    month = re.search(r"20\d\d-\d\d", f"{text} {note}")
    if month is None:
        return fallback
    if month[0] in VERSION_BY_MONTH:
        return VERSION_BY_MONTH[month[0]]
    return "0.10.0" if month[0] < "2025-10" else "0.15.1"


def parsed_version(version: str) -> tuple[int, int]:
    """(major, minor)."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def async_by_default(version: str) -> bool:
    """Whether vLLM schedules asynchronously unless told otherwise (from about 0.14)."""
    return parsed_version(version) >= ASYNC_SCHEDULING_SINCE


def batch_defaults(gpu: GPUSpec, version: str) -> tuple[int, int]:
    """(max_num_seqs, max_num_batched_tokens) of `vllm serve` where not given; before 0.9 256 seats everywhere."""
    seats, tokens = api_server_defaults(gpu)
    return (seats, tokens) if parsed_version(version) >= (0, 9) else (min(seats, 256), min(tokens, 2048))


def _same_shape(a: ModelSpec, b: ModelSpec) -> bool:
    names = ("hidden_size", "num_layers", "num_attention_heads", "num_experts", "vocab_size", "intermediate_size")
    return all(getattr(a, name) == getattr(b, name) for name in names)


def _matches(model: ModelSpec, precision: str) -> bool:
    own = model.weight_format
    if precision in SIXTEEN_BIT:
        return own == ""
    if precision in ("fp4", "nvfp4", "mxfp4"):
        return own in ("nvfp4", "mxfp4")
    return own == precision


def find_model(name: str, precision: str) -> tuple[ModelSpec, str | None]:
    """The catalog model called `name` in `precision`, and the quantisation to apply on loading (None: as it is).

    A checkpoint of the same shape with such weights is preferred; without one, the 16-bit model is quantised.
    """
    model = load_model(name)
    if _matches(model, precision):
        return model, None
    for other in model_names():
        candidate = load_model(other)
        if _same_shape(candidate, model) and _matches(candidate, precision):
            return candidate, None
    method = {"fp8": "fp8", "int8": "int8", "int4": "awq", "awq": "awq", "bnb": "bitsandbytes", "fp4": "nvfp4"}
    if precision not in method or model.weight_format:
        raise InputError("precision", f"no {precision} checkpoint of {name} is known")
    return model, method[precision]
