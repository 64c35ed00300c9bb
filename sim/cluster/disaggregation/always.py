"""llm-d's always-disagg-pd-decider: every prompt is prefilled in the prefill pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sim.cluster.policies import DisaggregationPolicy, ReplicaViews, RequestView


@dataclass(slots=True)
class AlwaysDisaggregate(DisaggregationPolicy):
    """Every request, whatever its length and whatever is cached."""

    reads_replicas: ClassVar[bool] = False

    def disaggregate(self, request: RequestView, replicas: ReplicaViews, chosen: int, now_s: float) -> bool:
        return True
