"""The prefill pool of a simulated deployment: its replicas, the links out of it, and what they did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.deployment import Deployment
from sim.engine.link import Link
from sim.engine.replica import Replica
from sim.engine.requests import REJECTED, RequestTable
from sim.engine.timeline import SampledReplica, Timeline
from sim.memory import KVCapacity
from sim.metrics import PS_PER_MS, PS_PER_S
from sim.workload import Workload

BYTES_PER_GB = 1e9
TTFT_PARTS = ("to_prefill", "prefill_queue", "prefill", "to_decode", "kv_and_seat", "decode", "to_client")


@dataclass(slots=True)
class PrefillPool:
    """A prefill pool, as `Deployment.prefill_pool` describes it, and the link into each replica of the decode pool.

    In its `table` a request has one output token; `replica` is -1 for those that were never sent to it.
    """

    deployment: Deployment
    capacity: KVCapacity
    table: RequestTable
    replicas: list[Replica]
    links: list[Link]

    @property
    def disaggregated(self) -> npt.NDArray[np.bool_]:
        """Which requests were sent to it."""
        return np.frombuffer(self.table.replica, dtype=np.int32) >= 0

    def timelines(self) -> list[Timeline]:
        """The state of each of its replicas over time; empty unless the run was sampled."""
        return [replica.timeline() for replica in self.replicas if isinstance(replica, SampledReplica)]

    def waited_ps(self, decode: RequestTable) -> npt.NDArray[np.float64]:
        """How long each disaggregated request waited in the decode engine, its KV's transfer included; 0 for the
        others, nan where it has not ended.
        """
        queued, scheduled = (np.frombuffer(c, dtype=np.int64) for c in (decode.queue_ps, decode.scheduled_ps))
        waited = np.where(scheduled < 0, np.nan, (scheduled - queued).astype(np.float64))
        return np.where(self.disaggregated, waited, 0.0)

    def decode_lookups(self, decode: RequestTable) -> tuple[int, int]:
        """(tokens looked up, tokens hit) in the decode pool for what spared a transfer and no computing."""
        seated = self.disaggregated & (np.frombuffer(decode.scheduled_ps, dtype=np.int64) >= 0)
        columns = (np.frombuffer(decode.prompt_tokens, dtype=np.int64), np.frombuffer(decode.cached_tokens, np.int32))
        looked_up, hit = (int(column[seated].sum()) for column in columns)
        return looked_up, hit

    def ttft_parts_ms(self, decode: RequestTable, first_token_ps: int) -> dict[str, float] | None:
        """The mean TTFT of the disaggregated requests that have a first token, in its parts; None where none has.

        `first_token_ps` is how long a first token takes to the client. The parts: on the way to the prefill replica
        (flow control's time included), in its queue, its prefill, on the way to the decode replica, there until its KV
        has come and it has a seat, the steps until the first token, and that one's way to the client.
        """
        first = self.table
        columns = (
            decode.arrival_ps,
            first.queue_ps,
            first.scheduled_ps,
            first.finish_ps,
            decode.queue_ps,
            decode.scheduled_ps,
            decode.first_token_ps,
        )
        times = np.stack([np.frombuffer(column, dtype=np.int64) for column in columns])
        times = times[:, self.disaggregated & (times[-1] >= 0)]
        if not times.shape[1]:
            return None
        parts = (np.diff(times, axis=0).sum(axis=1) / times.shape[1] / PS_PER_MS).tolist()
        return dict(zip(TTFT_PARTS, [*parts, first_token_ps / PS_PER_MS], strict=True))

    def summary(self, offered: npt.NDArray[np.bool_], duration_s: float) -> dict[str, Any]:
        """The flat metrics of the pool and of the links, over `duration_s`; `offered`: the requests that arrived."""
        sent = int((self.disaggregated & offered).sum())
        transfers, moving_ps = (sum(getattr(link, name) for link in self.links) for name in ("transfers", "moving_ps"))
        tokens, busy_ps = (sum(getattr(link, name) for link in self.links) for name in ("tokens", "busy_ps"))
        duration_ps = duration_s * PS_PER_S
        busy = sum(replica.stats.busy_ps for replica in self.replicas)
        size = kv_bytes_per_token(self.deployment)
        return {
            "disaggregated_share": sent / int(offered.sum()) if offered.any() else 0.0,
            "prefill_kv_capacity_tokens": self.capacity.tokens,
            "prefill_utilization_mean": _share(busy, duration_ps * len(self.replicas)),
            "kv_transfer_mean_ms": moving_ps / transfers / PS_PER_MS if transfers else None,
            "kv_transferred_gb": tokens * size / BYTES_PER_GB,
            "kv_link_utilization_mean": _share(busy_ps, duration_ps * len(self.links)),
        }


def _share(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole else 0.0


def kv_bytes_per_token(deployment: Deployment) -> int:
    """Bytes of a token's KV cache in all layers and heads: what moves, whatever the pools' tensor parallelism."""
    return deployment.model.kv_bytes_per_token_per_gpu(1, deployment.kv_cache_dtype)


def make_links(deployment: Deployment) -> list[Link]:
    """The link into each replica of the decode pool."""
    bytes_per_s = max(1, round(deployment.kv_transfer_gb_per_s * BYTES_PER_GB))
    latency_ps = round(deployment.kv_transfer_latency_ms * PS_PER_MS)
    size = kv_bytes_per_token(deployment)
    return [Link(bytes_per_s, size, latency_ps) for _ in range(deployment.replicas)]


def prefill_table(workload: Workload, max_model_len: int, cache_tokens: int) -> RequestTable:
    """The prefill pool's own table: every request has one output token."""
    ones = np.ones(len(workload), dtype=np.int64)
    table = RequestTable(replace(workload, output_tokens=ones))
    table.reject_longer(max_model_len, cache_tokens)
    return table


def reject_with(table: RequestTable, prefill: RequestTable) -> None:
    """What the prefill pool could not serve is rejected too."""
    outcome = np.frombuffer(prefill.outcome, dtype=np.int8)
    for index in np.flatnonzero(outcome == REJECTED).tolist():
        table.outcome[index] = REJECTED
