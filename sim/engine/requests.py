"""The requests of a run as columns: what the engine reads of them and what it writes down."""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np

from sim.workload import Workload

SERVED: Final = 0  # or on the way to it
REJECTED: Final = 1  # longer than max_model_len, or than the KV cache
SHED: Final = 2  # by admission, or by a full band of flow control
EXPIRED: Final = 3  # waited in flow control for longer than its TTL


class RequestTable:
    """One entry a request in every column; times in picoseconds, -1 where it has not happened."""

    def __init__(self, workload: Workload) -> None:
        n = len(workload)
        self.prompt_tokens: array[int] = array("q", workload.prompt_tokens.tobytes())
        self.output_tokens: array[int] = array("q", workload.output_tokens.tobytes())
        self.priority: array[int] | None = (
            None if workload.priority is None else array("q", workload.priority.tobytes())
        )
        self.slo_class = workload.slo_class
        self.slo_classes = workload.slo_classes
        self.tenant = workload.tenant
        self.tenants = workload.tenants
        self.session = workload.session
        self.content: array[int] = array("q", workload.content.tobytes())
        self.contents = workload.contents
        self.answers_shared: bool = workload.answers_shared
        self.arrival_ps: array[int] = array("q", workload.arrival_ps.tobytes())
        self.queue_ps: array[int] = array("q", [-1]) * n
        self.scheduled_ps: array[int] = array("q", [-1]) * n
        self.first_token_ps: array[int] = array("q", [-1]) * n
        self.finish_ps: array[int] = array("q", [-1]) * n
        self.cached_tokens: array[int] = array("i", [0]) * n
        self.tier_tokens: list[array[int]] = []  # of its prompt, loaded from each tier at its first admission
        self.preemptions: array[int] = array("i", [0]) * n
        self.replica: array[int] = array("i", [-1]) * n
        self.outcome: array[int] = array("b", [SERVED]) * n
        if workload.users:  # closed loop: they arrive when they arrive
            self.arrival_ps = array("q", [-1]) * n
        elif workload.follows is not None:
            self.arrival_ps = array("q", np.where(workload.follows < 0, workload.arrival_ps, -1).tobytes())

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def note_tiers(self, number: int) -> None:
        """Make a column of loaded tokens for each tier of the replicas."""
        while len(self.tier_tokens) < number:
            self.tier_tokens.append(array("q", [0]) * len(self))

    def loaded(self, index: int, level: int, tokens: int) -> None:
        """A request has loaded tokens from a tier, counted from 1; 0, from elsewhere, is not noted."""
        if level:
            self.tier_tokens[level - 1][index] += tokens

    def reject_longer(self, max_model_len: int, cache_tokens: int) -> None:
        """Mark as rejected what no replica can serve: prompt and output beyond max_model_len or the whole KV cache."""
        prompt = np.frombuffer(self.prompt_tokens, dtype=np.int64)
        total = prompt + np.frombuffer(self.output_tokens, dtype=np.int64)
        for index in np.flatnonzero((total > max_model_len) | (total - 1 > cache_tokens)).tolist():
            self.outcome[index] = REJECTED

    def class_name(self, index: int) -> str:
        """The SLO class of a request."""
        return self.slo_classes[0 if self.slo_class is None else int(self.slo_class[index])]

    def tenant_name(self, index: int) -> str:
        """The tenant of a request; empty where the workload names none."""
        return "" if self.tenant is None else self.tenants[int(self.tenant[index])]

    def session_of(self, index: int) -> int | str | None:
        """What tells clients apart: the session of a request, else its tenant; None where it has neither."""
        if self.session is not None and self.session[index] >= 0:
            return int(self.session[index])
        return self.tenant_name(index) or None
