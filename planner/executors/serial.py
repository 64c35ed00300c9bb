"""One candidate after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.evaluate import Outcome, Trial
from planner.executors._base import Evaluate
from planner.parameters import Parameters


class SerialExecutor:
    """Evaluates in the calling thread."""

    name = "serial"
    workers = 1

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate

    def run(self, candidates: Sequence[Parameters | Trial], expected: int) -> Iterator[tuple[int, Outcome]]:
        """Yield (position, outcome), in order."""
        for position, candidate in enumerate(candidates):
            yield position, self._evaluate(candidate)

    def close(self) -> None:
        """Nothing to end."""
