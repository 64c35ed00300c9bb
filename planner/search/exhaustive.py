"""Every combination, in order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from planner.search._base import Choice, Costs

CHUNK = 2048


class Exhaustive:
    """Asks for every combination of a space with `shape[i]` options of variable i, the last variable fastest."""

    name = "exhaustive"
    learns_from_violations = False

    def __init__(self, shape: Sequence[int]) -> None:
        self._choices = itertools.product(*(range(count) for count in shape))

    def ask(self) -> list[Choice]:
        """The next chunk of combinations."""
        return list(itertools.islice(self._choices, CHUNK))

    def tell(self, choices: Sequence[Choice], costs: Costs, violations: Costs) -> None:
        """Nothing to learn: all are asked for."""


class Screened(Exhaustive):
    """Asks for every combination at once, so that each can be compared with all others before it is simulated."""

    name = "screening"

    def ask(self) -> list[Choice]:
        """All combinations, then none."""
        return list(self._choices)
