"""A workload as columns: what arrives when, how long it is, and what it shares."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

PS_PER_S = 1_000_000_000_000
PS_PER_MS = 1_000_000_000

IntColumn = npt.NDArray[np.int64]

Pieces = tuple[tuple[int, int], ...]
"""Shareable leading content of a prompt: (content id, tokens) in order. Equal ids in the same place, behind equal
pieces, are the same tokens; where one is shorter, they agree as far as it goes. What follows the pieces is private."""


@dataclass(slots=True)
class Workload:
    """Requests in order of arrival; every column has one entry a request.

    An open-loop workload has every arrival in `arrival_ps`. In a closed loop (`users` > 0) `arrival_ps` is all zeros:
    user u (0-based) sends request u at time `user_start_ps[u]`, and whoever's answer ends takes the next request of
    the list `think_time_ps` later.
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

    def __len__(self) -> int:
        return len(self.prompt_tokens)
