"""What routing and admission policies are, and what they may know. Subclass one to bring your own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

from sim.workload import Pieces


@dataclass(slots=True)
class RequestView:
    """What the gateway knows of a request."""

    index: int
    prompt_tokens: int
    content: Pieces  # the shareable leading content
    priority: int = 0  # lower is more urgent, as in vLLM
    slo_class: str = "standard"


@dataclass(slots=True)
class ReplicaView:
    """What the router knows of a replica. The first three are as old as the last scrape (`snapshot_interval_ms`)."""

    waiting: int = 0  # requests queued
    running: int = 0  # requests with a seat
    kv_usage: float = 0.0  # share of the KV blocks held, 0 to 1
    in_flight: int = 0  # requests routed there and not finished: the router's own count, live
    routed: int = 0  # requests ever routed there
    since_scrape: int = 0  # of them since the last scrape
    num_blocks: int = 0  # KV blocks that it has
    block_size: int = 16


@dataclass(slots=True)
class Policy:
    """Common to routing and admission policies. `random` is a stream of the policy's own.

    `reads_replicas` says whether it looks at `ReplicaView`s at all; a cluster whose policies do not is simulated
    faster.
    """

    random: Random = field(default_factory=Random, init=False, repr=False)
    reads_replicas: ClassVar[bool] = True


class RoutingPolicy(Policy):
    """Chooses a replica for each admitted request."""

    def route(self, request: RequestView, replicas: Sequence[ReplicaView], now_s: float) -> int:
        """The position in `replicas` of the one that gets the request."""
        raise NotImplementedError


class AdmissionPolicy(Policy):
    """Admits a request, or sheds it."""

    def admit(self, request: RequestView, replicas: Sequence[ReplicaView], now_s: float) -> bool:
        """Whether the request may enter."""
        raise NotImplementedError
