"""One measured run: how it was deployed, what was sent, and what came out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sim.deployment import Deployment
from sim.workload import Workload

METRICS = ("ttft_mean", "ttft_p90", "ttft_p99", "tpot_mean", "e2e_mean", "e2e_p90", "e2e_p99", "output_tokens_per_s")


@dataclass(slots=True)
class MeasuredRun:
    """A run with what is needed to simulate it.

    `measured` maps metrics (`METRICS`; milliseconds, tokens/s) to values; `statistics` names the statistic where a
    mean was not recorded and the median stands for it. `workload` builds the requests (seed in).
    """

    id: str
    source: str
    regime: str  # open loop | closed loop | replay
    gpu: str
    model: str
    precision: str
    deployment: Deployment
    workload: Callable[[int], Workload]
    measured: dict[str, float]
    statistics: dict[str, str] = field(default_factory=dict)
    quality: str = "ok"
    greedy: bool = False  # the client asked for temperature 0
    assumptions: tuple[str, ...] = ()

    @property
    def mixture(self) -> bool:
        """Whether the model is a mixture of experts."""
        return self.deployment.model.num_moe_layers > 0


@dataclass(frozen=True, slots=True)
class Skipped:
    """A run that cannot be simulated as it was measured, and why."""

    id: str
    source: str
    reason: str
