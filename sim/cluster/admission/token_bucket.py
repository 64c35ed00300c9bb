"""A bucket of tokens that refills at a fixed rate; a request takes as many as its prompt has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from sim.cluster.policies import AdmissionPolicy, ReplicaView, RequestView


@dataclass(slots=True)
class TokenBucket(AdmissionPolicy):
    """Admits while the bucket holds the request's prompt tokens. Defaults are BLIS's."""

    capacity_tokens: float = 10_000.0
    refill_tokens_per_s: float = 1_000.0
    reads_replicas: ClassVar[bool] = False
    _level: float = field(default=-1.0, init=False)
    _at_s: float = field(default=0.0, init=False)

    def admit(self, request: RequestView, replicas: Sequence[ReplicaView], now_s: float) -> bool:
        if self._level < 0:
            self._level = self.capacity_tokens
        self._level = min(self.capacity_tokens, self._level + (now_s - self._at_s) * self.refill_tokens_per_s)
        self._at_s = now_s
        if request.prompt_tokens > self._level:
            return False
        self._level -= request.prompt_tokens
        return True
