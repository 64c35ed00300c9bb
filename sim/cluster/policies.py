"""What routing and admission policies are, and what they may know. Subclass one to bring your own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

from sim.engine.requests import RequestTable
from sim.workload import Pieces


class RequestView:
    """What the gateway knows of a request. Valid while the policy is asked."""

    __slots__ = ("_table", "index")

    def __init__(self, table: RequestTable, index: int) -> None:
        self._table = table
        self.index = index

    @property
    def prompt_tokens(self) -> int:
        return self._table.prompt_tokens[self.index]

    @property
    def content(self) -> Pieces:
        """The shareable leading content of the prompt."""
        return self._table.contents[self._table.content[self.index]]

    @property
    def priority(self) -> int:
        """Lower is more urgent, as in vLLM."""
        return 0 if self._table.priority is None else self._table.priority[self.index]

    @property
    def slo_class(self) -> str:
        return self._table.class_name(self.index)


@dataclass(slots=True)
class ReplicaView:
    """What the router knows of a replica. The first three are as old as the last scrape (`snapshot_interval_ms`)."""

    waiting: int = 0  # requests queued
    running: int = 0  # requests with a seat
    kv_usage: float = 0.0  # share of the KV blocks held, 0 to 1
    in_flight: int = 0  # requests routed there and not finished: the router's own count, live
    routed: int = 0  # requests ever routed there
    unseen: int = 0  # of them not yet in its queue at the last scrape
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
