"""What a GPU can do, from its datasheet: peaks, bandwidths, memory, price."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

import yaml

from sim.errors import InputError
from sim.names import nearest, normal_form


@dataclass(frozen=True, slots=True)
class GPUSpec:
    """One kind of GPU. Peaks are dense (never sparse), in FLOP/s, and 0 where the GPU has no such units."""

    name: str
    bf16_flops_per_s: float
    fp8_flops_per_s: float
    fp4_flops_per_s: float
    int8_ops_per_s: float
    memory_bandwidth_bytes_per_s: float
    memory_nominal_bytes: int  # as sold
    memory_bytes: int  # as the driver reports it to the engine
    interconnect: str  # nvlink | xgmi | pcie
    interconnect_bytes_per_s: float  # per GPU, one direction
    price_usd_per_hour: float
    max_gpus_per_node: int
    host_bytes_per_s: float  # of its slot to the host, one direction, raw
    aliases: tuple[str, ...] = ()

    def supports(self, compute: str) -> bool:
        """Whether the GPU has units for `compute` (bf16, fp8, fp4, int8)."""
        return self.flops_per_s(compute, or_zero=True) > 0

    def flops_per_s(self, compute: str, or_zero: bool = False) -> float:
        """Dense peak for `compute` (bf16, fp16, fp8, fp4, int8); `InputError` if the GPU has none, unless `or_zero`."""
        peak = {
            "bf16": self.bf16_flops_per_s,
            "fp16": self.bf16_flops_per_s,
            "fp8": self.fp8_flops_per_s,
            "fp4": self.fp4_flops_per_s,
            "int8": self.int8_ops_per_s,
        }[compute]
        if peak <= 0 and not or_zero:
            raise InputError("deployment.gpu", f"{self.name} does not compute in {compute}")
        return peak


@cache
def _catalog() -> dict[str, GPUSpec]:
    text = resources.files("sim.catalog").joinpath("gpus.yaml").read_text(encoding="utf-8")
    document: dict[str, dict[str, Any]] = yaml.safe_load(text)["gpus"]
    known = {spec_field.name for spec_field in fields(GPUSpec)}
    catalog = {}
    for name, entry in document.items():
        values = {key: value for key, value in entry.items() if key in known and key != "aliases"}
        catalog[name] = GPUSpec(name=name, aliases=tuple(entry.get("aliases", ())), **values)
    return catalog


@cache
def _by_form() -> dict[str, str]:
    forms: dict[str, str] = {}
    for name, spec in _catalog().items():
        for known in (name, *spec.aliases):
            forms[normal_form(known)] = name
    return forms


def gpu_names() -> list[str]:
    """The names of the catalog's GPUs, in its order."""
    return list(_catalog())


def load_gpu(name: str, field: str = "deployment.gpu") -> GPUSpec:
    """The GPU called `name`, in any case, by alias too (``h100_sxm``); `InputError` on `field` if unknown."""
    found = _by_form().get(normal_form(str(name)))
    if found is None:
        known = [*(alias for spec in _catalog().values() for alias in spec.aliases), *_catalog()]
        hint = nearest(str(name), known)
        raise InputError(field, f"unknown GPU {name!r}{hint}; known: {', '.join(_catalog())}")
    return _catalog()[found]
