"""Coefficient sets: how near each kernel comes to its GPU's datasheet, and what the engine adds around the kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import yaml

from sim.catalog import GPUSpec
from sim.errors import InputError
from sim.names import nearest
from sim.text_files import read_text

T = TypeVar("T")

INTERCONNECTS = ("nvlink", "pcie")


@dataclass(frozen=True, slots=True)
class GemmCoefficients:
    """Of matrix products in one number format: fractions of the datasheet's peaks, and the cost of one launch."""

    compute: float
    bandwidth: float
    launch_us: float
    overlap_loss: float  # of the shorter of memory traffic and arithmetic, the share that adds to the longer
    host_us: float  # of the host, to launch it outside a CUDA graph, beyond the engine's eager_layer_us
    activation_passes: float  # how often the activations cross memory (grouped GEMMs also permute them)


@dataclass(frozen=True, slots=True)
class AttentionCoefficients:
    """Of the attention kernels, for one layer."""

    prefill_compute: float  # of the 16-bit peak, for long chunks
    prefill_ramp_tokens: float  # short chunks leave parts of the GPU idle: each new token costs this many more pairs
    prefill_tile_rows: float  # a chunk costs this many query rows more against its whole context: its last tile is half
    # empty, and few tiles leave parts of the GPU idle
    decode_bandwidth: float
    decode_bandwidth_fp8: float  # with an fp8 KV cache: FlashAttention-3 converts it on the way
    decode_compute: float  # of the 16-bit peak; bounds MLA, where 128 heads share each latent
    launch_us: float
    tile_us: float  # for each decoding sequence and KV head
    mixed_tile_rows: float  # query rows that one decode fills in a mixed batch: FlashAttention-2 pads it to a tile of
    # 64 rows and reads the keys for every query head; FlashAttention-3 packs the heads of a group (0)


@dataclass(frozen=True, slots=True)
class AllReduceCoefficients:
    """Of an all-reduce among `gpus` GPUs: vLLM's one-shot kernel for small payloads, two-shot or NCCL for large."""

    gpus: int
    one_shot_us: float
    one_shot_bandwidth: float  # of the link's datasheet figure; each GPU reads every other one's payload
    two_shot_us: float
    two_shot_bandwidth: float  # 2 (n - 1)/n of the payload


@dataclass(frozen=True, slots=True)
class GPUCoefficients:
    """Every efficiency of one kind of GPU."""

    gemm: Mapping[str, GemmCoefficients]  # by number format of the weights
    moe: Mapping[str, GemmCoefficients]
    attention: AttentionCoefficients
    all_reduce: tuple[AllReduceCoefficients, ...]  # by number of GPUs, ascending


@dataclass(frozen=True, slots=True)
class EngineCoefficients:
    """What vLLM adds to its kernels, in microseconds."""

    step_us: float  # on the GPU's critical path, each step
    layer_us: float  # norms, rotary embedding, activations, cache writes: the layer's small kernels
    moe_layer_us: float  # routing, top-k and permutation of a mixture layer, beyond layer_us
    sequence_us: float  # for each sequence that samples
    truncated_sampling_us: float  # of a step that samples with top-p or top-k: the kernels around the sort
    truncated_sampling_us_per_million_logits: float
    mixed_step_us: float  # of a step with a prefill, beyond one of pure decodes
    host_step_us: float  # scheduling and input preparation: hidden behind the GPU with asynchronous scheduling
    host_sequence_us: float
    piecewise_layer_us: float  # the host's launches of one layer when attention runs outside a CUDA graph
    eager_layer_us: float  # the same where no CUDA graph covers the batch
    elementwise_passes: float  # times that a layer's activations cross memory outside GEMMs and attention


@dataclass(frozen=True, slots=True)
class RequestCoefficients:
    """What surrounds a request: client, HTTP, tokenizer, streaming, gateway; in microseconds."""

    before_queue_us: float
    before_queue_us_per_token: float
    first_token_us: float
    last_token_us: float
    gateway_us: float


@dataclass(frozen=True, slots=True)
class Coefficients:
    """A complete set: GPUs by catalog name, the defaults for other GPUs, the engine and the request path."""

    name: str
    gpus: Mapping[str, GPUCoefficients]
    alike: Mapping[str, str]  # GPUs without a table that are built like one with a table
    defaults: Mapping[str, GPUCoefficients]  # for the other GPUs, by interconnect: nvlink or pcie
    engine: EngineCoefficients
    request: RequestCoefficients
    provenance: Mapping[str, Any]
    step_factor: float = 1.0  # by which every step is longer than these say

    def of_gpu(self, gpu: GPUSpec) -> GPUCoefficients:
        """The efficiencies of `gpu`; without a table of its own those of the GPU it is built like, or the default."""
        entry = self.gpus.get(self.alike.get(gpu.name, gpu.name))
        return entry if entry is not None else self.defaults["pcie" if gpu.interconnect == "pcie" else "nvlink"]


def _build(cls: type[T], entry: Any, path: str) -> T:
    """`cls` out of a mapping of numbers; `InputError` on a missing, unknown or impossible one."""
    if not isinstance(entry, Mapping):
        raise InputError(path, f"must be a mapping, got {type(entry).__name__}")
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    for key in entry:
        if key not in names:
            raise InputError(f"{path}.{key}", f"unknown coefficient{nearest(str(key), names)}")
    values: dict[str, Any] = {}
    for name in names:
        if name not in entry:
            raise InputError(f"{path}.{name}", "is missing")
        value = entry[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise InputError(f"{path}.{name}", f"must be a number of 0 or more, got {value!r}")
        if ("compute" in name or "bandwidth" in name) and not 0 < value <= 1:
            raise InputError(f"{path}.{name}", f"must be above 0 and at most 1 (of the datasheet), got {value!r}")
        values[name] = value if name == "gpus" else float(value)
    return cls(**values)


def _section(document: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """A part of a document that must be a mapping itself."""
    found = document.get(key)
    if not isinstance(found, Mapping):
        raise InputError(f"{path}.{key}", f"must be a mapping, got {type(found).__name__}")
    return found


def _gpu(entry: Any, path: str) -> GPUCoefficients:
    if not isinstance(entry, Mapping):
        raise InputError(path, f"must be a mapping, got {type(entry).__name__}")
    for key in ("gemm", "moe", "attention", "all_reduce"):
        if key not in entry:
            raise InputError(f"{path}.{key}", "is missing")
    if not isinstance(entry["all_reduce"], list):
        raise InputError(f"{path}.all_reduce", "must be a list, one entry a number of GPUs")
    reduces = [
        _build(AllReduceCoefficients, item, f"{path}.all_reduce[{i}]") for i, item in enumerate(entry["all_reduce"])
    ]
    gemm, moe = _section(entry, "gemm", path), _section(entry, "moe", path)
    return GPUCoefficients(
        gemm={key: _build(GemmCoefficients, item, f"{path}.gemm.{key}") for key, item in gemm.items()},
        moe={key: _build(GemmCoefficients, item, f"{path}.moe.{key}") for key, item in moe.items()},
        attention=_build(AttentionCoefficients, entry["attention"], f"{path}.attention"),
        all_reduce=tuple(sorted(reduces, key=lambda item: item.gpus)),
    )


def _alike(entry: Mapping[str, str], gpus: Mapping[str, Any]) -> dict[str, str]:
    for name, other in entry.items():
        if other not in gpus:
            raise InputError(f"coefficients.alike.{name}", f"names {other!r}, which has no table")
    return dict(entry)


def parse_coefficients(document: Any, name: str) -> Coefficients:
    """The set in a YAML document; `InputError` names the entry that is wrong."""
    if not isinstance(document, Mapping):
        raise InputError("coefficients", "must be a mapping with the keys gpus, alike, defaults, engine, request")
    for key in ("gpus", "alike", "defaults", "engine", "request"):
        if key not in document:
            raise InputError(f"coefficients.{key}", "is missing")
    gpus = _section(document, "gpus", "coefficients")
    request = _build(RequestCoefficients, document["request"], "coefficients.request")
    if request.first_token_us > request.last_token_us:
        raise InputError("coefficients.request.first_token_us", "must be at most last_token_us, or TTFT exceeds E2E")
    return Coefficients(
        name=str(document.get("name", name)),
        gpus={key: _gpu(entry, f"coefficients.gpus.{key}") for key, entry in gpus.items()},
        alike=_alike(_section(document, "alike", "coefficients"), gpus),
        defaults={
            key: _gpu(_section(document, "defaults", "coefficients").get(key), f"coefficients.defaults.{key}")
            for key in INTERCONNECTS
        },
        engine=_build(EngineCoefficients, document["engine"], "coefficients.engine"),
        request=request,
        provenance=document.get("provenance") or {},
    )


@cache
def _shipped(name: str) -> Coefficients:
    text = resources.files("sim.latency").joinpath("coefficients", f"{name}.yaml").read_text(encoding="utf-8")
    return parse_coefficients(yaml.safe_load(text), name)


def shipped_names() -> list[str]:
    """The names of the sets that are shipped."""
    folder = resources.files("sim.latency").joinpath("coefficients")
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def load_coefficients(name_or_path: str = "default") -> Coefficients:
    """The shipped set of that name, or the set in that YAML file; `InputError` if there is none or it is wrong."""
    if name_or_path in shipped_names():
        return _shipped(name_or_path)
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        hint = nearest(name_or_path, shipped_names())
        raise InputError("coefficients", f"unknown set {name_or_path!r}{hint}; or give a .yaml file")
    try:
        text = read_text(path)
    except InputError as error:
        raise InputError("coefficients", f"{name_or_path}: {error.problem}") from None
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none
        raise InputError("coefficients", f"{name_or_path} is not YAML: {str(error).splitlines()[0]}") from None
    return parse_coefficients(document, path.stem)
