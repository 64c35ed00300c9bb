"""Non-dominated filtering: pure functions on arrays of costs, lower is better."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from planner.search._base import Costs


def non_dominated(costs: Costs) -> npt.NDArray[np.bool_]:
    """Which rows of `costs` (points, objectives) no other row dominates.

    A row dominates another that it is nowhere worse than and somewhere better; equal rows are kept together. nan and
    inf count as worst.
    """
    costs = np.where(np.isnan(costs), np.inf, np.asarray(costs, dtype=np.float64))
    keep = np.zeros(len(costs), dtype=bool)
    if not len(costs):
        return keep
    unique, inverse = np.unique(costs, axis=0, return_inverse=True)
    # In lexicographic order a row can only be dominated by an earlier one, and then also by one already kept.
    front = np.empty_like(unique)
    size = 0
    kept = np.zeros(len(unique), dtype=bool)
    for row, point in enumerate(unique):
        if not np.any(np.all(front[:size] <= point, axis=1)):
            front[size] = point
            size += 1
            kept[row] = True
    return kept[np.ravel(inverse)]


def front_order(costs: Costs) -> list[int]:
    """Positions of the non-dominated rows, best first objective first, ties in the order given."""
    positions = np.flatnonzero(non_dominated(costs))
    return sorted((int(p) for p in positions), key=lambda p: (*costs[p], p))
