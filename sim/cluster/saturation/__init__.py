"""Saturation detectors, one file each, by llm-d's names; `DETECTORS` lists them."""

from __future__ import annotations

from sim.cluster.plugins import make_plugin, spec_of
from sim.cluster.saturation._base import SaturationDetector, mean_utilization
from sim.cluster.saturation.concurrency import ConcurrencyDetector
from sim.cluster.saturation.utilization import UtilizationDetector

DETECTORS: dict[str, type[SaturationDetector]] = {
    "utilization-detector": UtilizationDetector,
    "concurrency-detector": ConcurrencyDetector,
}


def make_detector(value: object, field: str) -> SaturationDetector:
    """The detector that a parameter names. Raises InputError."""
    detector: SaturationDetector = make_plugin(
        "saturation detector", DETECTORS, SaturationDetector, spec_of(value, field), field
    )
    return detector


__all__ = [
    "DETECTORS",
    "ConcurrencyDetector",
    "SaturationDetector",
    "UtilizationDetector",
    "make_detector",
    "mean_utilization",
]
