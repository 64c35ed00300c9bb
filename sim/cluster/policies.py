"""What policies of the gateway are, and what they may know. Subclass one to bring your own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        """The shareable leading content of prompt and answer; it may go on beyond the request."""
        return self._table.contents[self._table.content[self.index]]

    @property
    def priority(self) -> int:
        """Lower is more urgent, as in vLLM; llm-d's priority with the sign turned."""
        return 0 if self._table.priority is None else self._table.priority[self.index]

    @property
    def sheddable(self) -> bool:
        """Whether llm-d would refuse it under pressure: its priority there is negative."""
        return self._table.priority is not None and self._table.priority[self.index] > 0

    @property
    def slo_class(self) -> str:
        return self._table.class_name(self.index)

    @property
    def tenant(self) -> str:
        """Whose request it is; empty where the workload names no tenants."""
        return self._table.tenant_name(self.index)

    @property
    def arrival_ps(self) -> int:
        return self._table.arrival_ps[self.index]

    @property
    def session(self) -> int | str | None:
        """What a session-affine router tells clients apart by: the session, else the tenant; None where the workload
        names neither.
        """
        return self._table.session_of(self.index)


def _nothing_cached(index: int) -> int:
    return 0


@dataclass(slots=True)
class ReplicaView:
    """What the router knows of a replica. The first three are as old as the last scrape (`snapshot_interval_ms`)."""

    waiting: int = 0  # requests queued
    running: int = 0  # requests with a seat
    kv_usage: float = 0.0  # share of the KV blocks held, 0 to 1
    in_flight: int = 0  # requests routed there and not finished: the router's own count, live
    in_flight_tokens: int = 0  # their prompt tokens, live
    routed: int = 0  # requests ever routed there
    unseen: int = 0  # of them not yet in its queue at the last scrape
    num_blocks: int = 0  # KV blocks that it has
    block_size: int = 16
    look_up: Callable[[int], int] = field(default=_nothing_cached, repr=False, compare=False)

    def cached_tokens(self, request: RequestView) -> int:
        """Leading prompt tokens that the replica's prefix cache holds now: what a router knows from KV events."""
        return self.look_up(request.index)


class ReplicaViews(list[ReplicaView]):
    """The replicas, with the time: `now_ps`, `scraped_ps` of the last scrape, and how many there were."""

    def __init__(self, views: Sequence[ReplicaView] = ()) -> None:
        super().__init__(views)
        self.now_ps = 0
        self.scraped_ps = 0
        self.scrapes = 0  # policies may keep what follows from the scraped values until it changes
        self.look_up_all: Callable[[int], list[int]] | None = None  # the replicas' `look_up` in one call

    def cached_tokens(self, request: RequestView) -> list[int]:
        """Of each replica, the leading prompt tokens that its prefix cache holds now."""
        if self.look_up_all is not None:
            return self.look_up_all(request.index)
        return [replica.look_up(request.index) for replica in self]


@dataclass(slots=True)
class Policy:
    """Common to all policies of the gateway. `random` is a stream of the policy's own.

    `reads_replicas` says whether it looks at `ReplicaView`s at all; a cluster whose policies do not is simulated
    faster.
    """

    random: Random = field(default_factory=Random, init=False, repr=False)
    reads_replicas: ClassVar[bool] = True


class RoutingPolicy(Policy):
    """Chooses a replica for each admitted request."""

    def route(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> int:
        """The position in `replicas` of the one that gets the request."""
        raise NotImplementedError


class AdmissionPolicy(Policy):
    """Admits a request, or sheds it."""

    def admit(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> bool:
        """Whether the request may enter."""
        raise NotImplementedError


class DisaggregationPolicy(Policy):
    """Decides of each routed request whether its prompt is prefilled in the prefill pool."""

    def disaggregate(self, request: RequestView, replicas: ReplicaViews, chosen: int, now_s: float) -> bool:
        """Whether a prefill replica computes the prompt; else the one of the decode pool at position `chosen` of
        `replicas`, where the request decodes, does.
        """
        raise NotImplementedError
