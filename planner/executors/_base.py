"""The interface of an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from planner.evaluate import Outcome, Trial
from planner.parameters import Parameters

Evaluate = Callable[[Parameters | Trial], Outcome]


class Executor(Protocol):
    """Evaluates candidates, in any order."""

    @property
    def name(self) -> str:
        """What it is called: serial, ray."""
        ...

    @property
    def workers(self) -> int:
        """How many candidates it evaluates at a time."""
        ...

    def run(self, candidates: Sequence[Parameters | Trial], expected: int) -> Iterator[tuple[int, Outcome]]:
        """Yield (position, outcome) of each candidate as it ends. `expected` is how many evaluations the whole
        search may still need, these included."""
        ...

    def close(self) -> None:
        """End its workers."""
        ...
