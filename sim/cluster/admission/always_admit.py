"""Everybody enters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sim.cluster.policies import AdmissionPolicy, ReplicaViews, RequestView


@dataclass(slots=True)
class AlwaysAdmit(AdmissionPolicy):
    """No request is shed."""

    reads_replicas: ClassVar[bool] = False

    def admit(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> bool:
        return True
