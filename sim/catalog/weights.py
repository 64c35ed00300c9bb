"""How many bytes a weight takes: number formats with their scales, and vLLM's names of quantisation methods."""

from __future__ import annotations

from dataclasses import dataclass

from sim.errors import InputError
from sim.names import nearest


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """A number format of weights: bytes a parameter with its scales and zero points, and what the GEMM computes in."""

    name: str
    bytes_per_parameter: float
    compute: str  # "bf16" | "fp8" | "fp4" | "int8": the type whose peak FLOP/s bounds a GEMM with these weights
    k_multiple: int = 1  # the inner dimension is padded to a multiple of this


def _grouped(bits: int, group: int, scale_bytes: float) -> float:
    return bits / 8 + scale_bytes / group


# int4 (GPTQ, compressed-tensors): a 16-bit scale for each group of 128 along the input; awq also keeps a 4-bit zero
# point. MXFP4: an 8-bit exponent for 32 weights (OCP MX specification 1.0). NVFP4: an fp8
# scale for 16 weights. fp8: a 32-bit scale for a block of 128 x 128, or one a channel (less still).
# vLLM's MXFP4 kernels pad the inner dimension to 256 (gpt-oss: 2880 -> 3072, which its logs' weight sizes show).
# 4-bit weights are expanded to 16 bit in the kernel (Marlin), except NVFP4 on GPUs with fp4 tensor cores.
_FORMATS = {
    "bf16": WeightFormat("bf16", 2.0, "bf16"),
    "fp16": WeightFormat("fp16", 2.0, "bf16"),
    "fp32": WeightFormat("fp32", 4.0, "bf16"),
    "fp8": WeightFormat("fp8", 1.0 + 4 / 128**2, "fp8"),
    "int8": WeightFormat("int8", 1.0 + 4 / 4096, "int8"),
    "int4": WeightFormat("int4", _grouped(4, 128, 2.0), "bf16"),
    "awq": WeightFormat("awq", _grouped(4, 128, 2.5), "bf16"),
    "mxfp4": WeightFormat("mxfp4", _grouped(4, 32, 1.0), "bf16", k_multiple=256),
    "nvfp4": WeightFormat("nvfp4", _grouped(4, 16, 1.0), "fp4"),
}

# vLLM's --quantization names (and what people write for them) -> format.
_METHODS = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "modelopt": "fp8",
    "ptpc_fp8": "fp8",
    "int8": "int8",
    "experts_int8": "int8",
    "awq": "awq",
    "awq_marlin": "awq",
    "gptq": "int4",
    "gptq_marlin": "int4",
    "int4": "int4",
    "bitsandbytes": "int4",
    "mxfp4": "mxfp4",
    "modelopt_fp4": "nvfp4",
    "nvfp4": "nvfp4",
}


def weight_format(name: str, group_size: int = 0) -> WeightFormat:
    """The format called `name` (``bf16``, ``fp8``, ``int4``, ...); `group_size` replaces int4's and awq's usual one."""
    if name in ("int4", "awq") and group_size > 0:
        return WeightFormat(name, _grouped(4, group_size, 2.5 if name == "awq" else 2.0), "bf16")
    return _FORMATS[name]


def format_of_method(method: str, field: str = "deployment.quantization") -> str:
    """The format that a `--quantization` method stores; `InputError` on `field` if the method is unknown."""
    key = method.lower()
    if key not in _METHODS:
        hint = nearest(key, _METHODS)
        raise InputError(field, f"unknown quantization {method!r}{hint}; allowed: {', '.join(sorted(_METHODS))}")
    return _METHODS[key]
