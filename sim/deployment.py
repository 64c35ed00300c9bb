"""What is deployed: one model on one kind of GPU, with the engine's and the router's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sim.catalog import GPUSpec, ModelSpec


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy by name (``weighted``, or ``my_module:MyRouter``) with its parameters."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Deployment:
    """Every parameter of a deployment, resolved. Names and defaults are vLLM's where vLLM has them."""

    model: ModelSpec
    gpu: GPUSpec
    tensor_parallel_size: int = 1
    replicas: int = 1
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int | None = None  # None: the model's own, cut to what the KV cache holds
    gpu_memory_utilization: float = 0.9
    block_size: int = 16
    enable_prefix_caching: bool = True
    kv_cache_dtype: str = "auto"  # auto (the model's 16-bit type) | fp8
    quantization: str | None = None  # None: as the checkpoint is
    async_scheduling: bool = True
    long_prefill_token_threshold: int = 0  # 0: none
    num_gpu_blocks_override: int | None = None  # KV blocks a replica, say from an engine's log; None: as memory allows
    engine_version: str = "0.15.1"
    scheduling: PolicySpec = PolicySpec("fcfs")
    preemption: PolicySpec = PolicySpec("fcfs")
    routing: PolicySpec = PolicySpec("round-robin")
    admission: PolicySpec = PolicySpec("always-admit")
    flow_control: PolicySpec = PolicySpec("none")
    gateway: str = "none"  # none | llm-d
    snapshot_interval_ms: float = 50.0  # 0: live

    @property
    def gpus(self) -> int:
        """GPUs of the whole deployment."""
        return self.tensor_parallel_size * self.replicas
