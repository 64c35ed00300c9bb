"""Whether a deployment keeps up: the trend of the requests that wait for their first step, against its noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_WARM_UP = 0.2  # share of the arrivals that the trend leaves out
_BATCHES = 20
_SIGMAS = 2.0
_LEAST_SHARE = 0.02  # a backlog that grows by less of what arrives is not worth a verdict
_LEAST_REQUESTS = 10.0
_ABSORBED = 0.2  # of the highest level: a backlog that has fallen below it has been worked off

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BacklogTrend:
    """By how much the backlog grows for each request that arrives, and the standard error of that."""

    growth: float
    noise: float
    requests: float  # that arrived while it was watched
    left: float = 1.0  # level of the last batch, as a share of the highest

    @property
    def is_growing(self) -> bool:
        """Whether the growth stands out of the noise, matters, and is not that of a burst that has been worked off."""
        total = self.growth * self.requests
        return (
            self.left > _ABSORBED
            and self.growth > _SIGMAS * self.noise
            and self.growth > _LEAST_SHARE
            and total > _LEAST_REQUESTS
        )


def backlog_trend(arrival: Floats, start: Floats) -> BacklogTrend:
    """The trend of the backlog that arriving requests see, from when they arrive and start (inf: never within the run).

    A straight line through the means of 20 batches of arrivals, the first fifth left out. A queue that just keeps up
    wanders like a random walk: the standard error is that of the mean step from batch to batch, not that of residuals
    around the line, which a walk keeps small.
    """
    order = np.argsort(arrival, kind="stable")
    arrival, start = arrival[order], start[order]
    n = len(arrival)
    waiting = np.arange(n) - np.searchsorted(np.sort(start), arrival, side="right")
    first = int(n * _WARM_UP)
    batches = min(_BATCHES, (n - first) // 2)
    if batches < 4:
        return BacklogTrend(0.0, math.inf, 0.0)
    edges = np.linspace(first, n, batches + 1).astype(np.int64)
    sums = np.add.reduceat(waiting[first:], edges[:-1] - first)
    level = sums / np.diff(edges)
    middle = (edges[:-1] + edges[1:]) / 2
    centred = middle - middle.mean()
    spread = float((centred**2).sum())
    growth = float((centred * (level - level.mean())).sum()) / spread
    steps = np.diff(level)
    per_batch = (n - first) / batches
    noise = float(steps.std(ddof=1)) / math.sqrt(len(steps)) / per_batch
    highest = float(level.max())
    return BacklogTrend(growth, noise, float(n - first), float(level[-1]) / highest if highest else 1.0)
