"""Who of a flow is next, by llm-d's names. An ordering needs only a `key`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sim.cluster.plugins import check_value, make_plugin, spec_of
from sim.cluster.policies import RequestView
from sim.errors import InputError


class OrderingPolicy:
    """Orders the requests of a flow by `key`, smallest first, ties as they came. Subclass it to bring your own."""

    __slots__ = ()

    def key(self, request: RequestView, ttl_ps: int) -> float:
        """Smaller is sooner; `ttl_ps` is how long the request may wait at the gateway."""
        raise NotImplementedError


class FcfsOrdering(OrderingPolicy):
    """As they came."""

    __slots__ = ()

    def key(self, request: RequestView, ttl_ps: int) -> float:
        return 0.0


class EarliestDeadlineFirst(OrderingPolicy):
    """The one that expires first."""

    __slots__ = ()

    def key(self, request: RequestView, ttl_ps: int) -> float:
        return request.arrival_ps + ttl_ps


@dataclass(slots=True)
class SLODeadline(OrderingPolicy):
    """The one whose TTFT limit comes first: `ttft_ms` after its arrival, `by` tenant or SLO class where it has one."""

    ttft_ms: float = 1000.0
    by: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.by, Mapping):
            raise InputError("by", f"must be a mapping from tenants or classes to ttft_ms, got {self.by!r}")
        for name, value in self.by.items():
            check_value(0.0, value, f"by.{name}")

    def key(self, request: RequestView, ttl_ps: int) -> float:
        limit_ms: float = self.by.get(request.tenant, self.by.get(request.slo_class, self.ttft_ms))
        return request.arrival_ps + limit_ms * 1e9


ORDERINGS: dict[str, type[OrderingPolicy]] = {
    "fcfs": FcfsOrdering,
    "edf": EarliestDeadlineFirst,
    "slo-deadline": SLODeadline,
}


def make_ordering(value: object, field_path: str) -> OrderingPolicy:
    """The ordering that a parameter names. Raises InputError."""
    found: OrderingPolicy = make_plugin("ordering", ORDERINGS, OrderingPolicy, spec_of(value, field_path), field_path)
    return found
