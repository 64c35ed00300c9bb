"""The interface of a search method: it asks for combinations, and is told how good they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

Choice = tuple[int, ...]
"""A combination: for each variable of the space, the position of the option taken."""

Costs = npt.NDArray[np.float64]


class Method(Protocol):
    """A search method. It knows the numbers of options and nothing of what they mean."""

    name: str
    learns_from_violations: bool  # by how much a plan misses its constraints, beside whether it does

    def ask(self) -> list[Choice]:
        """Combinations to evaluate next; empty when there is nothing left to ask."""
        ...

    def tell(self, choices: Sequence[Choice], costs: Costs, violations: Costs) -> None:
        """How the combinations last asked for turned out.

        `costs` is (choices, objectives), lower is better; `violations` is (choices,), 0 where feasible. Both may
        hold inf: a plan that cannot run.
        """
        ...
