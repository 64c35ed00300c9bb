"""What is deployed: one model on one kind of GPU, with the engine's and the router's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from sim.catalog import GPUSpec, ModelSpec

# What a prefill pool may have of its own, as ``prefill_`` and the name.
PREFILL_SETTINGS = ("tensor_parallel_size", "max_num_seqs", "max_num_batched_tokens")


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
    kv_offload: PolicySpec = PolicySpec("none")  # where KV goes that the GPU's memory has no room for
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
    prefill_replicas: int = 0  # engines that only prefill; 0: no disaggregation, else `replicas` are the decode pool
    prefill_tensor_parallel_size: int | None = None  # None, here and below: as in the decode pool
    prefill_max_num_seqs: int | None = None
    prefill_max_num_batched_tokens: int | None = None
    disaggregation: PolicySpec = PolicySpec("always")  # whose prompt goes to the prefill pool
    prefill_routing: PolicySpec = PolicySpec("least-loaded")
    kv_transfer_gb_per_s: float = 25.0  # into each replica of the decode pool
    kv_transfer_latency_ms: float = 0.05  # before the first byte of each transfer

    @property
    def gpus(self) -> int:
        """GPUs of the whole deployment."""
        prefill = self.prefill_pool()
        return self.tensor_parallel_size * self.replicas + (prefill.gpus if prefill is not None else 0)

    def prefill_pool(self) -> Deployment | None:
        """The prefill pool as a deployment of its own, None if there is none.

        An override of the number of KV blocks is the decode pool's: the prefill pool's memory decides for itself.
        """
        if self.prefill_replicas == 0:
            return None
        changes: dict[str, Any] = {f"prefill_{name}": None for name in PREFILL_SETTINGS}
        for name in PREFILL_SETTINGS:
            own = getattr(self, f"prefill_{name}")
            if own is not None:
                changes[name] = own
        return replace(
            self,
            replicas=self.prefill_replicas,
            routing=self.prefill_routing,
            num_gpu_blocks_override=None,
            prefill_replicas=0,
            **changes,
        )
