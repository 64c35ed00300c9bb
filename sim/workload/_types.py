"""A workload as columns: what arrives when, how long it is, and what it shares."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

PS_PER_S = 1_000_000_000_000
PS_PER_MS = 1_000_000_000
PS_PER_NS = 1_000
NS_PER_S = 1_000_000_000

IntColumn = npt.NDArray[np.int64]

Pieces = tuple[tuple[int, int], ...]
"""Shareable leading content of a request, its prompt and then its answer: (content id, tokens) in order. Equal ids in
the same place, behind equal pieces, are the same tokens; where one is shorter, they agree as far as it goes. What
follows the pieces is private; what of them lies beyond the request's last token does not count, so that all turns of
a session can have the content of the whole."""


@dataclass(slots=True)
class Workload:
    """Requests in order of arrival; every column has one entry a request.

    An open-loop workload has every arrival in `arrival_ps`. In a closed loop (`users` > 0) `arrival_ps` is all zeros:
    user u (0-based) sends request u at time `user_start_ps[u]`, and whoever's answer ends takes the next request of
    the list `think_time_ps` later.

    A request that `follows` another one (an earlier entry, which no third request follows) arrives when that one has
    ended, answered or refused, and its `arrival_ps` holds the think time from then on; in a closed loop a user takes
    the next request that follows nobody when nothing follows the one that has ended. With them the order of the
    requests is one in which each comes after the one it follows.
    """

    name: str
    arrival_ps: IntColumn
    prompt_tokens: IntColumn
    output_tokens: IntColumn
    content: IntColumn  # index into `contents`
    contents: list[Pieces] = field(default_factory=lambda: [()])  # entry 0 shares nothing
    priority: IntColumn | None = None  # lower is more urgent, as in vLLM; None: all 0
    slo_class: IntColumn | None = None  # index into `slo_classes`; None: all 0
    slo_classes: list[str] = field(default_factory=lambda: ["standard"])
    stage: IntColumn | None = None  # load stage of each request; None: all 0
    stage_duration_s: list[float] = field(default_factory=list)  # of each stage, where stages were given
    users: int = 0
    think_time_ps: int = 0
    user_start_ps: IntColumn | None = None  # None: all users start at 0
    tenant: IntColumn | None = None  # index into `tenants`; None: the workload names no tenants
    tenants: list[str] = field(default_factory=list)
    time_limit_ps: int = 0  # 0: none; else the run ends here and what is unfinished is counted
    session: IntColumn | None = None  # number of each request's session, -1 where it has none; None: none has one
    follows: IntColumn | None = None  # the request whose end each one awaits, -1: none; None: none awaits any
    _answers_shared: bool | None = field(default=None, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def answers_bring_requests(self) -> bool:
        """Whether the arrival of some requests depends on when others are answered."""
        return self.users > 0 or self.follows is not None

    @property
    def answers_shared(self) -> bool:
        """Whether the shareable content of some request goes beyond its prompt."""
        if self._answers_shared is None:
            tokens = content_tokens(self.contents)
            self._answers_shared = bool((tokens[self.content] > self.prompt_tokens).any())
        return self._answers_shared

    def earliest_ps(self) -> IntColumn:
        """When each request would arrive if no answer took any time, int64: a lower bound on when it does."""
        if self.follows is None:
            return self.arrival_ps
        return sums_along(self.follows, self.arrival_ps)


def content_tokens(contents: list[Pieces]) -> IntColumn:
    """Tokens of each content, int64."""
    return np.array([sum(tokens for _, tokens in pieces) for pieces in contents], np.int64)


def sums_along(follows: IntColumn, values: IntColumn) -> IntColumn:
    """Of each request the sum of `values` over itself and all those before it that it follows, one after the other."""
    sums, before = values.copy(), follows.copy()
    while True:
        rows = np.flatnonzero(before >= 0)
        if len(rows) == 0:
            return sums
        sums[rows] += sums[before[rows]]  # the right side is read before any is written
        before[rows] = before[before[rows]]
