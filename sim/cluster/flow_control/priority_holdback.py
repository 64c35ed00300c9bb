"""llm-d's priority-holdback: the less urgent a band, the lower its ceiling."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.cluster.flow_control._base import FlowControlPolicy
from sim.errors import InputError


@dataclass(slots=True)
class PriorityHoldback(FlowControlPolicy):
    """Band i of N is open while the saturation is below max - i (max - min) / (N - 1), of `max_ceiling` and
    `min_ceiling`.
    """

    min_ceiling: float = field(kw_only=True)
    max_ceiling: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        FlowControlPolicy.__post_init__(self)
        value = self.min_ceiling
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= self.max_ceiling:
            allowed = f"a number from 0 to max_ceiling ({self.max_ceiling:g})"
            raise InputError("min_ceiling", f"must be {allowed}, got {value!r}")

    def ceiling(self, band: int, bands: int) -> float:
        """The saturation from which on band `band` of `bands` is closed."""
        return self.max_ceiling - (band * (self.max_ceiling - self.min_ceiling) / (bands - 1) if bands > 1 else 0.0)

    def opens_every(self, band: int, bands: int, saturation: float) -> int:
        return 1 if saturation < self.ceiling(band, bands) else 0
