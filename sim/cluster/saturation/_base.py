"""What a saturation detector is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sim.cluster.policies import ReplicaView, ReplicaViews


class SaturationDetector:
    """Says how full the replicas are: 1 is full. Subclass it to bring your own.

    `reads_in_flight` says that it looks at the router's live counts and not at scraped values alone; `stale_after_ps`
    after a scrape the answer may change without another one (0: it does not).
    """

    __slots__ = ()
    reads_in_flight: ClassVar[bool] = True
    stale_after_ps: int = 0

    def saturation(self, replicas: ReplicaViews) -> float:
        """0 or more; what it means is up to whoever asks."""
        raise NotImplementedError


def mean_utilization(replicas: Sequence[ReplicaView], queue_depth: float, kv_util: float) -> float:
    """The mean over replicas of max(waiting / queue_depth, KV usage / kv_util)."""
    total = 0.0
    for replica in replicas:
        queue, kv = replica.waiting / queue_depth, replica.kv_usage / kv_util
        total += queue if queue > kv else kv
    return total / len(replicas)
