"""Everybody enters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sim.cluster.policies import AdmissionPolicy, ReplicaView, RequestView


@dataclass(slots=True)
class AlwaysAdmit(AdmissionPolicy):
    """No request is shed."""

    reads_replicas: ClassVar[bool] = False

    def admit(self, request: RequestView, replicas: Sequence[ReplicaView], now_s: float) -> bool:
        return True
