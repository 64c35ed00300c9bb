"""llm-d's rule without flow control: requests of negative priority are refused while the replicas are saturated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sim.cluster.policies import AdmissionPolicy, ReplicaViews, RequestView
from sim.cluster.saturation import SaturationDetector, UtilizationDetector, make_detector


@dataclass(slots=True)
class RejectNegative(AdmissionPolicy):
    """Sheds a sheddable request while the `detector` says 1 or more."""

    detector: Any = "utilization-detector"
    _detector: SaturationDetector = field(default_factory=UtilizationDetector, init=False)

    def __post_init__(self) -> None:
        self._detector = make_detector(self.detector, "detector")

    def admit(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> bool:
        return not request.sheddable or self._detector.saturation(replicas) < 1.0
