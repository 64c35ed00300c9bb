"""llm-d's static usage limit: one ceiling for all bands."""

from __future__ import annotations

from dataclasses import dataclass

from sim.cluster.flow_control._base import FlowControlPolicy


@dataclass(slots=True)
class StaticLimit(FlowControlPolicy):
    """Every band is open while the saturation is below `ceiling`."""

    ceiling: float = 1.0

    def opens_every(self, band: int, bands: int, saturation: float) -> int:
        return 1 if saturation < self.ceiling else 0
