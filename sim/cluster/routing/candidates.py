"""What filters and scorers of the `weighted` routing policy look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sim.cluster.policies import ReplicaView, RequestView


class Candidates:
    """The replicas that a request may go to, and how much of its prompt each is believed to have cached.

    `replicas`, `ids` (their positions in the cluster) and `prefix_tokens` go together; `prefix_total` is the part of
    the prompt that could match.
    """

    __slots__ = ("ids", "prefix_tokens", "prefix_total", "replicas", "request")

    def __init__(
        self,
        request: RequestView,
        replicas: Sequence[ReplicaView],
        ids: Sequence[int],
        prefix_tokens: list[int],
        prefix_total: int,
    ) -> None:
        self.request = request
        self.replicas = replicas
        self.ids = ids
        self.prefix_tokens = prefix_tokens
        self.prefix_total = prefix_total

    def only(self, positions: Sequence[int]) -> Candidates:
        """Those at `positions` of these."""
        return Candidates(
            self.request,
            [self.replicas[i] for i in positions],
            [self.ids[i] for i in positions],
            [self.prefix_tokens[i] for i in positions],
            self.prefix_total,
        )


class Scorer:
    """Scores each candidate from 0 to 1 (what is outside is clamped). Subclass it to bring your own.

    `scraped_only` says that the scores follow from the scraped values (waiting, running, kv_usage) alone;
    `reads_prefix` that they need `prefix_tokens`.
    """

    __slots__ = ()
    scraped_only: ClassVar[bool] = False
    reads_prefix: ClassVar[bool] = False

    def scores(self, candidates: Candidates) -> list[float]:
        """One score a candidate, in their order."""
        raise NotImplementedError

    def routed(self, candidates: Candidates, chosen: int) -> None:
        """The request went to the replica at position `chosen` of the cluster."""


class Filter:
    """Keeps some of the candidates."""

    __slots__ = ()
    reads_prefix: ClassVar[bool] = False

    def keep(self, candidates: Candidates) -> Sequence[int]:
        """The positions of those that stay, at least one."""
        raise NotImplementedError
