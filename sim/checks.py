"""What a real vLLM refuses when it starts, before it loads a weight."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sim.catalog.model import KV_DTYPE_BYTES, check_tensor_parallel
from sim.catalog.weights import format_of_method
from sim.deployment import PREFILL_SETTINGS, Deployment
from sim.errors import InputError
from sim.names import nearest

BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)  # vLLM, CacheConfig.block_size

# Formats whose weights vLLM expands to 16 bit where a GPU of NVIDIA has no units for them (Marlin kernels).
_EXPANDED_ON_NVIDIA = ("fp8", "nvfp4")


def check_deployment(deployment: Deployment) -> None:
    """`InputError` with the field's path for the first setting of `deployment` that vLLM would refuse."""
    _check_pool(deployment)
    if deployment.prefill_replicas < 0:
        raise InputError("deployment.prefill_replicas", f"must be at least 0, got {deployment.prefill_replicas}")
    prefill = deployment.prefill_pool()
    if prefill is not None:
        with of_prefill_pool():
            _check_pool(prefill)


@contextmanager
def of_prefill_pool() -> Iterator[None]:
    """In here a deployment is a prefill pool: what is wrong with it is so in the parameters that describe the pool."""
    try:
        yield
    except InputError as error:
        head, dot, name = error.field.rpartition(".")
        own = f"{head}{dot}prefill_{name}" if name in PREFILL_SETTINGS else error.field
        raise type(error)(own, f"{error.problem} (the prefill pool)") from None


def _check_pool(deployment: Deployment) -> None:
    _check_sizes(deployment)
    check_engine_version(deployment.engine_version, "deployment.engine_version")
    check_tensor_parallel(deployment.model, deployment.tensor_parallel_size)
    largest = deployment.gpu.max_gpus_per_node
    if deployment.tensor_parallel_size > largest:
        problem = f"must be at most the {largest} GPUs of a {deployment.gpu.name} node"
        raise InputError("deployment.tensor_parallel_size", f"{problem}, got {deployment.tensor_parallel_size}")
    _check_length(deployment)
    _check_quantization(deployment)
    if deployment.kv_cache_dtype not in KV_DTYPE_BYTES:
        hint = nearest(deployment.kv_cache_dtype, KV_DTYPE_BYTES)
        allowed = ", ".join(KV_DTYPE_BYTES)
        problem = f"must be one of {allowed}, got {deployment.kv_cache_dtype!r}{hint}"
        raise InputError("deployment.kv_cache_dtype", problem)


def check_engine_version(version: str, field: str) -> None:
    """`InputError` on `field` unless `version` holds a number such as 0.15."""
    if re.search(r"\d+\.\d+", version) is None:
        raise InputError(field, f"must be a version of vLLM such as 0.15.1, got {version!r}")


def _check_sizes(deployment: Deployment) -> None:
    for name in ("replicas", "tensor_parallel_size", "max_num_seqs", "max_num_batched_tokens"):
        value = getattr(deployment, name)
        if value < 1:
            raise InputError(f"deployment.{name}", f"must be at least 1, got {value}")
    if deployment.max_num_batched_tokens < deployment.max_num_seqs:
        problem = f"must be at least max_num_seqs ({deployment.max_num_seqs}), got {deployment.max_num_batched_tokens}"
        raise InputError("deployment.max_num_batched_tokens", problem)
    if deployment.block_size not in BLOCK_SIZES:
        allowed = ", ".join(str(size) for size in BLOCK_SIZES)
        raise InputError("deployment.block_size", f"must be one of {allowed}, got {deployment.block_size}")
    if not 0 < deployment.gpu_memory_utilization <= 1:
        problem = f"must be greater than 0 and at most 1, got {deployment.gpu_memory_utilization:g}"
        raise InputError("deployment.gpu_memory_utilization", problem)


def _check_length(deployment: Deployment) -> None:
    length, longest = deployment.max_model_len, deployment.model.max_model_len
    if length is None:
        return
    if length < 1:
        raise InputError("deployment.max_model_len", f"must be at least 1, got {length}")
    if length > longest:
        problem = f"must be at most the {longest} tokens of {deployment.model.name}, got {length}"
        raise InputError("deployment.max_model_len", problem)


def _check_quantization(deployment: Deployment) -> None:
    model, gpu, method = deployment.model, deployment.gpu, deployment.quantization
    wanted = format_of_method(method) if method is not None else model.weight_format
    if method is not None and model.weight_format and wanted != model.weight_format:
        problem = f"{model.name} is stored in {model.weight_format}; vLLM does not requantise it to {method!r}"
        raise InputError("deployment.quantization", problem)
    if not wanted:
        return
    compute = model.format_of_part("experts" if model.num_moe_layers else "mlp", method).compute
    if gpu.supports(compute):
        return
    if wanted not in _EXPANDED_ON_NVIDIA or gpu.interconnect == "xgmi":
        problem = f"{gpu.name} has no {compute} units for weights in {wanted}; use a 16-bit or int4 model"
        raise InputError("deployment.quantization", problem)
