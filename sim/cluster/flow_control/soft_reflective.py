"""llm-d's soft-reflective ceiling: a less urgent band is not shut at its ceiling, it is opened less and less often."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sim.cluster.flow_control._base import FlowControlPolicy


@dataclass(slots=True)
class SoftReflective(FlowControlPolicy):
    """Band 0 is open while the saturation s is below 1. Band i of N is open while s < 1 - i s / (N - 1), closed from
    s = 1 on, and in between open in every max(1, round(s / (1 - s)))-th cycle: below s of 0.6 nothing is held back.
    """

    def opens_every(self, band: int, bands: int, saturation: float) -> int:
        if saturation >= 1.0:
            return 0
        if bands == 1 or saturation < 1.0 - band * saturation / (bands - 1):
            return 1
        return max(1, math.floor(saturation / (1.0 - saturation) + 0.5))
