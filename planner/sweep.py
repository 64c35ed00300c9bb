"""A plan over arrival rates, from a light load to beyond what it carries, and where its latency turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.capacity import Prober, max_rate

LIGHTEST, HEAVIEST = 0.1, 1.4  # as shares of the highest rate that keeps the SLO


@dataclass(frozen=True, slots=True)
class Point:
    """One rate, simulated in full."""

    rate_rps: float
    holds: bool
    saturation: str | None
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class Sweep:
    """The points by rate, the highest rate that keeps the SLO, and the knee of the latency curve."""

    points: tuple[Point, ...]
    max_rate_rps: float
    knee_rps: float

    def document(self) -> dict[str, Any]:
        """As JSON."""
        points = [
            {"rate_rps": p.rate_rps, "holds": p.holds, "saturation": p.saturation, "metrics": p.metrics}
            for p in self.points
        ]
        return {"max_rate_rps": self.max_rate_rps, "knee_rps": self.knee_rps, "points": points}


def sweep(prober: Prober, count: int) -> Sweep:
    """Simulate `count` evenly spaced rates around what the plan carries."""
    most = max_rate(prober).max_rate_rps
    top = most or prober.base_rps
    points = []
    for rate in np.linspace(LIGHTEST * top, HEAVIEST * top, count):
        probe = prober.at(float(rate), early=False)
        assert probe.outcome is not None
        points.append(Point(float(rate), probe.holds, probe.outcome.saturation, probe.outcome.metrics))
    return Sweep(tuple(points), most, knee([p.rate_rps for p in points], [p.metrics["e2e_mean_ms"] for p in points]))


def knee(loads: Sequence[float], latencies: Sequence[float]) -> float:
    """The load at which latency turns from flat to steep: where load bought the most for the latency it cost.

    Kleinrock's power, load / latency, is largest there.
    """
    power = np.asarray(loads, dtype=np.float64) / np.asarray(latencies, dtype=np.float64)
    return float(loads[int(np.nanargmax(power))])
