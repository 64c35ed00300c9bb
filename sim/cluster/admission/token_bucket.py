"""A bucket that refills at a fixed rate; a request takes as many tokens as its prompt has, or one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from sim.cluster.policies import AdmissionPolicy, ReplicaViews, RequestView
from sim.errors import InputError

COSTS = ("prompt_tokens", "requests")


@dataclass(slots=True)
class TokenBucket(AdmissionPolicy):
    """Admits while the bucket holds what the request costs: its prompt tokens, or 1. Defaults are BLIS's."""

    capacity_tokens: float = 10_000.0
    refill_tokens_per_s: float = 1_000.0
    cost: str = "prompt_tokens"
    reads_replicas: ClassVar[bool] = False
    _level: float = field(default=-1.0, init=False)
    _at_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        if self.cost not in COSTS:
            raise InputError("cost", f"must be one of {', '.join(COSTS)}, got {self.cost!r}")

    def admit(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> bool:
        if self._level < 0:
            self._level = self.capacity_tokens
        self._level = min(self.capacity_tokens, self._level + (now_s - self._at_s) * self.refill_tokens_per_s)
        self._at_s = now_s
        cost = 1 if self.cost == "requests" else request.prompt_tokens
        if cost > self._level:
            return False
        self._level -= cost
        return True
