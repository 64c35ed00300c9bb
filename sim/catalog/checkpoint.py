"""Which weights of a checkpoint are quantised, and in which format: config.json's quantization_config."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from typing import Any

from sim.catalog.reader import Config, Reader

# Names that families give to the modules of each part.
_MODULES = {
    "attention": ("self_attn.q_proj", "self_attn.o_proj", "self_attn.q_b_proj"),
    "mlp": ("mlp.gate_proj", "mlp.down_proj", "feed_forward.gate_proj"),
    "experts": ("mlp.experts.0.gate_proj", "block_sparse_moe.experts.0.w1", "feed_forward.experts.0.gate_proj"),
    "shared_experts": ("mlp.shared_experts.gate_proj", "feed_forward.shared_expert.gate_proj"),
}


def quantization_of(outer: Reader, reader: Reader, moe: bool) -> dict[str, Any]:
    """`ModelSpec`'s fields of quantisation: format, parts that are stored in it, group size."""
    settings = reader.mapping("quantization_config") or reader.mapping("compression_config")
    settings = settings or outer.mapping("quantization_config")
    if not settings:
        return {"weight_format": "", "quantized_parts": (), "quantization_group_size": 0}
    name, group = _checkpoint_format(settings, reader)
    ignored: list[str] = []
    for key in ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules"):
        value = settings.get(key) or []
        if not isinstance(value, list):
            raise reader.error(f"quantization_config.{key} must be a list, got {value!r}")
        ignored += [str(item) for item in value]
    parts = [part for part, modules in _MODULES.items() if not any(_matches(p, m) for p in ignored for m in modules)]
    if name == "mxfp4":
        parts = [part for part in parts if part == "experts" or not moe]  # vLLM reads MXFP4 in experts only
    return {"weight_format": name, "quantized_parts": tuple(parts), "quantization_group_size": group}


def _matches(pattern: str, module: str) -> bool:
    """Whether an entry of an ignore list covers `module`: a regular expression (``re:``), a glob, or a name.

    Lists that name every layer are recognised by layer 1; an entry for the first layer alone does not count.
    """
    full = f"model.layers.1.{module}"
    if pattern.startswith("re:"):
        try:
            return any(re.match(pattern[3:], name) for name in (full, f"language_model.{full}"))
        except re.error:
            return False
    pattern = pattern.replace("language_model.", "")
    if "*" in pattern:
        return fnmatch.fnmatch(full, pattern) or fnmatch.fnmatch(full, pattern.rstrip("*.") + ".*")
    return any(name == pattern or name.startswith(pattern + ".") for name in (full, module))


def _checkpoint_format(settings: Config, reader: Reader) -> tuple[str, int]:
    method = str(settings.get("quant_method", "")).lower()
    if method in ("fp8", "fbgemm_fp8"):
        block = settings.get("weight_block_size")
        return "fp8", block[0] if isinstance(block, list) and block and isinstance(block[0], int) else 0
    if method == "mxfp4":
        return "mxfp4", 0
    if method in ("awq", "gptq", "auto-round", "bitsandbytes", "auto_awq"):
        bits = settings.get("bits", settings.get("w_bit", 4 if settings.get("load_in_8bit") is not True else 8))
        group = settings.get("group_size", settings.get("q_group_size", 128))
        four = "awq" if "awq" in method else "int4"
        return ("int8" if bits == 8 else four), group if isinstance(group, int) and group > 0 else 0
    if method == "modelopt":
        algorithm = str(settings.get("quant_algo", "")).upper()
        return ("nvfp4" if "FP4" in algorithm else "fp8"), 0
    if method == "compressed-tensors":
        return _compressed_tensors(settings, reader)
    raise reader.error(f"quantization_config.quant_method {method!r} is not known")


def _compressed_tensors(settings: Config, reader: Reader) -> tuple[str, int]:
    groups = settings.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise reader.error("quantization_config.config_groups is missing")
    first = next(iter(groups.values()))
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        raise reader.error("quantization_config.config_groups has no weights")
    bits, kind = weights.get("num_bits"), weights.get("type")
    group = weights.get("group_size")
    size = group if isinstance(group, int) and group > 0 else 0
    if bits == 8:
        return ("fp8" if kind == "float" else "int8"), 0
    if bits == 4:
        return ("nvfp4", 0) if kind == "float" else ("int4", size)
    raise reader.error(f"quantization_config: {bits!r}-bit {kind!r} weights are not known")
