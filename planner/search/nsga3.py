"""NSGA-III (Deb and Jain 2014) over mixed variables, by pymoo: for three objectives and more."""

from __future__ import annotations

import math
from typing import Any

from planner.search.nsga2 import NSGA2, mixed_operators


class NSGA3(NSGA2):
    """As NSGA-II, but survivors spread over reference directions rather than by crowding."""

    name = "nsga3"

    def _make_algorithm(self, population: int, objectives: int) -> Any:
        from pymoo.algorithms.moo.nsga3 import NSGA3 as PymooNSGA3
        from pymoo.algorithms.moo.nsga3 import comp_by_cv_then_random
        from pymoo.util.ref_dirs import get_reference_directions

        directions = get_reference_directions("das-dennis", objectives, n_partitions=partitions(population, objectives))
        return PymooNSGA3(directions, **mixed_operators(population, comp_by_cv_then_random))


def partitions(population: int, objectives: int) -> int:
    """The most divisions of each axis whose reference directions (Das and Dennis) a population covers."""
    count = 1
    while objectives > 1 and math.comb(count + objectives, objectives - 1) <= population:
        count += 1
    return count
