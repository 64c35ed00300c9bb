"""No flow control: what is admitted is routed at once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from sim.cluster.flow_control._base import FlowControlPolicy
from sim.errors import InputError


@dataclass(slots=True)
class NoFlowControl(FlowControlPolicy):
    """Nothing waits at the gateway."""

    reads_replicas: ClassVar[bool] = False

    def __post_init__(self) -> None:
        FlowControlPolicy.__post_init__(self)
        for parameter in fields(self):
            if parameter.init and getattr(self, parameter.name) != parameter.default:
                raise InputError(parameter.name, "has no meaning without flow control")

    def opens_every(self, band: int, bands: int, saturation: float) -> int:
        return 1
