"""What a flow-control policy is: when each priority band may send a request to the replicas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sim.cluster.flow_control.fairness import FairnessPolicy, GlobalStrict, make_fairness
from sim.cluster.flow_control.ordering import FcfsOrdering, OrderingPolicy, make_ordering
from sim.cluster.plugins import must_be_positive
from sim.cluster.policies import Policy
from sim.cluster.saturation import SaturationDetector, UtilizationDetector, make_detector

PS_PER_MS = 1_000_000_000
PS_PER_S = 1_000_000_000_000


@dataclass(slots=True)
class FlowControlPolicy(Policy):
    """Requests wait at the gateway, in one band a priority, until their band may send. Subclass it for your own rule.

    `detector` tells the saturation, `ordering` and `fairness` who of a band is next; a request that has waited for
    `ttl_s` expires, one that finds `max_requests` in its band is shed, and every `cycle_ms` one may be sent.
    """

    detector: Any = "utilization-detector"
    ordering: Any = "fcfs"
    fairness: Any = "global-strict"
    ttl_s: float = 60.0
    max_requests: int = 5000
    cycle_ms: float = 1.0
    saturation: SaturationDetector = field(default_factory=UtilizationDetector, init=False)
    order: OrderingPolicy = field(default_factory=FcfsOrdering, init=False)
    fair: FairnessPolicy = field(default_factory=GlobalStrict, init=False)

    def __post_init__(self) -> None:
        must_be_positive(self, "ttl_s", "max_requests", "cycle_ms")
        self.saturation = make_detector(self.detector, "detector")
        self.order = make_ordering(self.ordering, "ordering")
        self.fair = make_fairness(self.fairness, "fairness")

    def opens_every(self, band: int, bands: int, saturation: float) -> int:
        """How often `band` (0 is the most urgent of `bands`) is open at this saturation: in every k-th cycle; 1 is
        always, 0 never.
        """
        raise NotImplementedError

    @property
    def ttl_ps(self) -> int:
        return max(1, round(self.ttl_s * PS_PER_S))

    @property
    def cycle_ps(self) -> int:
        return max(1, round(self.cycle_ms * PS_PER_MS))
