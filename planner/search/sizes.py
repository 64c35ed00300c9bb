"""Candidates whose number of replicas is open: what is allowed, what is possible, and what bounds say of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.evaluate import Evaluator
from planner.goals import STATIC_METRICS, judge
from planner.search.pruning import Bounding, broken_by_bounds
from planner.space import Space


class Sizes:
    """The numbers of replicas of a space in which the fewest are asked for; as `Bounding`, the bounds of a candidate
    at its best number of them."""

    def __init__(self, space: Space, evaluator: Evaluator, bounds: Bounding | None) -> None:
        self._options = space.sizes
        self._static = tuple(c for c in space.constraints if c.metric in STATIC_METRICS)
        self._constraints = space.constraints
        self._evaluator = evaluator
        self._bounds = bounds

    def allowed(self, parameters: Mapping[str, Any]) -> list[int]:
        """Those within what may be bought, ascending."""
        static = self._evaluator.static_metrics
        return [n for n in self._options if judge(self._static, static({**parameters, "replicas": n}))[1] is None]

    def possible(self, parameters: Mapping[str, Any]) -> list[int]:
        """Of those, the ones that bounds do not rule out: all from some number on, as more are no slower."""
        options = self.allowed(parameters)
        if self._bounds is None:
            return options
        low, high = 0, len(options)
        while low < high:
            middle = (low + high) // 2
            bounds = self._bounds.of({**parameters, "replicas": options[middle]})
            if broken_by_bounds(self._constraints, bounds)[1] is None:
                high = middle
            else:
                low = middle + 1
        return options[low:]

    def of(self, parameters: Mapping[str, Any]) -> Mapping[str, float]:
        """Rates and latencies of the most replicas that are allowed, sizes and prices of the fewest possible."""
        allowed = self.allowed(parameters)
        if not allowed or self._bounds is None:
            return {}
        found = dict(self._bounds.of({**parameters, "replicas": allowed[-1]}))
        possible = self.possible(parameters)
        fewest = self._evaluator.static_metrics({**parameters, "replicas": (possible or allowed)[0]})
        found.pop("cost_per_million_output_tokens", None)  # the one that is not best with the most replicas
        return found | fewest | {"min_gpus": fewest["gpus"]}

    def work_ceiling_rps(self, parameters: Mapping[str, Any]) -> float:
        """That of the most replicas."""
        return (
            self._bounds.work_ceiling_rps({**parameters, "replicas": self._options[-1]}) if self._bounds else math.inf
        )
