"""Where a replica's KV goes when the GPU's memory has no room for it: offloading policies."""

from __future__ import annotations

from dataclasses import dataclass

from sim.deployment import Deployment
from sim.engine.tiers import TierConfig
from sim.errors import InputError
from sim.memory import GIB, kv_bytes_per_token_per_gpu

GB = 1e9
PS_PER_MS = 10**9

# Of the raw rate of a PCIe slot, what copies from pinned host memory reach: 55 GB/s of an H100's 64.
PCIE_EFFICIENCY = 55 / 64


class OffloadPolicy:
    """Says what lies below a GPU's memory. Subclass it to bring your own."""

    def tiers(self, deployment: Deployment) -> list[TierConfig]:
        """The tiers of each replica, nearest first. Those without a block do not count."""
        raise NotImplementedError


class NoOffload(OffloadPolicy):
    """What is evicted from the GPU's memory is lost: vLLM's default."""

    def tiers(self, deployment: Deployment) -> list[TierConfig]:
        return []


@dataclass
class TieredOffload(OffloadPolicy):
    """Host memory over PCIe, then a peer's memory over RDMA, then a local disk; sizes in GiB a replica, 0: none.

    Each GPU of a replica loads its share of the KV over its own PCIe slot and its own network card, all at once; they
    share the disk. Latencies are before the first byte of a load.
    """

    host_gib: float = 0.0
    peer_gib: float = 0.0
    disk_gib: float = 0.0
    host_gb_per_s: float = 0.0  # 0: what the GPU's PCIe slot gives
    peer_gb_per_s: float = 50.0
    disk_gb_per_s: float = 7.0
    host_latency_ms: float = 0.01
    peer_latency_ms: float = 0.05
    disk_latency_ms: float = 0.1

    def __post_init__(self) -> None:
        for name in ("peer_gb_per_s", "disk_gb_per_s"):
            if not getattr(self, name) > 0:
                raise InputError(name, f"must be greater than 0, got {getattr(self, name)!r}")

    def tiers(self, deployment: Deployment) -> list[TierConfig]:
        gpus = deployment.tensor_parallel_size
        share = kv_bytes_per_token_per_gpu(deployment)
        pcie = self.host_gb_per_s * GB or deployment.gpu.host_bytes_per_s * PCIE_EFFICIENCY
        rows = (
            ("host", self.host_gib, pcie, share, self.host_latency_ms),
            ("peer", self.peer_gib, self.peer_gb_per_s * GB, share, self.peer_latency_ms),
            ("disk", self.disk_gib, self.disk_gb_per_s * GB, share * gpus, self.disk_latency_ms),
        )
        block_bytes = deployment.block_size * share * gpus
        return [
            TierConfig(
                name, int(size * GIB) // block_bytes, max(1, round(speed)), size_on_link, round(wait * PS_PER_MS)
            )
            for name, size, speed, size_on_link, wait in rows
        ]
