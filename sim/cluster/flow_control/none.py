"""No flow control: what is admitted is routed at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sim.cluster.flow_control._base import FlowControlPolicy


@dataclass(slots=True)
class NoFlowControl(FlowControlPolicy):
    """Nothing waits at the gateway."""

    reads_replicas: ClassVar[bool] = False

    def opens_every(self, band: int, bands: int, saturation: float) -> int:
        return 1
