"""Combinations drawn uniformly, each at most once."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from planner.search._base import Choice, Costs

CHUNK = 256


class RandomSampling:
    """Asks for distinct combinations in random order, until all were asked for."""

    name = "random"
    learns_from_violations = False

    def __init__(self, shape: Sequence[int], seed: int) -> None:
        self._shape = tuple(shape)
        self._size = math.prod(shape)
        self._random = random.Random(seed)
        self._seen: set[int] = set()

    def ask(self) -> list[Choice]:
        """The next distinct combinations."""
        left = self._size - len(self._seen)
        if left <= CHUNK or left < self._size // 2:  # drawing again and again for the last few takes ever longer
            drawn = [i for i in range(self._size) if i not in self._seen] if self._size <= 10**7 else []
            self._random.shuffle(drawn)
            self._seen.update(drawn)
        else:
            drawn = []
            while len(drawn) < CHUNK:
                index = self._random.randrange(self._size)
                if index not in self._seen:
                    self._seen.add(index)
                    drawn.append(index)
        return [self._choice(index) for index in drawn]

    def _choice(self, index: int) -> Choice:
        digits = []
        for count in reversed(self._shape):
            index, digit = divmod(index, count)
            digits.append(digit)
        return tuple(reversed(digits))

    def tell(self, choices: Sequence[Choice], costs: Costs, violations: Costs) -> None:
        """Nothing to learn: the draw does not depend on what was found."""
