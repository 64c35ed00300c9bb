"""The requests of a run as columns: what the engine reads of them and what it writes down."""

from __future__ import annotations

from array import array

from sim.workload._types import Workload


class RequestTable:
    """One entry a request in every column; times in picoseconds, -1 where it has not happened."""

    def __init__(self, workload: Workload) -> None:
        n = len(workload)
        self.prompt_tokens: array[int] = array("q", workload.prompt_tokens.tolist())
        self.output_tokens: array[int] = array("q", workload.output_tokens.tolist())
        self.priority: array[int] | None = (
            None if workload.priority is None else array("q", workload.priority.tolist())
        )
        self.content: array[int] = array("q", workload.content.tolist())
        self.contents = workload.contents
        self.arrival_ps: array[int] = array("q", workload.arrival_ps.tolist())
        self.queue_ps: array[int] = array("q", [-1]) * n
        self.scheduled_ps: array[int] = array("q", [-1]) * n
        self.first_token_ps: array[int] = array("q", [-1]) * n
        self.finish_ps: array[int] = array("q", [-1]) * n
        self.cached_tokens: array[int] = array("i", [0]) * n
        self.preemptions: array[int] = array("i", [0]) * n
        self.replica: array[int] = array("i", [-1]) * n

    def __len__(self) -> int:
        return len(self.prompt_tokens)
