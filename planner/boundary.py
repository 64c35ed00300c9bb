"""The last of a row of steps that holds, found with few looks: what capacity searches have in common. Pure.

Steps are whole numbers; a step holds or does not, and one above a step that does not hold is taken not to hold either.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from planner.goals import Constraint

RATE_STEP = 1.0099  # neighbouring rates are at most 1% apart
FARTHEST = 845  # steps: a factor of 4,096


def rate_scale(step: int) -> float:
    """The factor by which step `step` speeds arrivals up. Six digits, lest platforms differ in the last one."""
    return float(f"{RATE_STEP**step:.6g}")


def nearest_step(scale: float) -> int:
    """The step whose factor is nearest to `scale`, as far as there are steps."""
    return max(-FARTHEST, min(FARTHEST, round(math.log(scale) / math.log(RATE_STEP))))


@dataclass(slots=True)
class Boundary:
    """Looks for the highest step from `lowest` to `highest` that holds: `low`, with `high` = `low` + 1 failing.

    Ask `next` which step to try, and `learn` how it went, until there is none. It begins at `hint`, goes on by `width`
    and then ever further until it has tried a step on either side, and closes in by the Illinois rule (Dowell and
    Jarratt 1971) on the excess: how far beyond the limit a step is, negative where it is within.
    """

    lowest: int
    highest: int
    hint: int
    width: int = 8
    low: int | None = None  # None: no step tried holds
    high: int | None = None  # None: every step tried holds
    _low_excess: float = field(default=math.nan, init=False)
    _high_excess: float = field(default=math.nan, init=False)
    _last_held: bool | None = field(default=None, init=False)

    def next(self) -> int | None:
        """The step to try next; None when it is found, or none holds, or all do."""
        low = self.lowest - 1 if self.low is None else self.low
        high = self.highest + 1 if self.high is None else self.high
        if high - low <= 1:
            return None
        if self.low is None and self.high is None:
            step = self.hint
        elif self.high is None:
            step = max(self.hint, low + 1) if self._last_held is None else low + self.width
        elif self.low is None:
            step = high - self.width
        else:
            step = self._between(low, high)
        return max(low + 1, min(high - 1, step))

    def _between(self, low: int, high: int) -> int:
        middle = (low + high) // 2
        if not (self._low_excess < 0 < self._high_excess < math.inf):
            return middle
        margin = (high - low) // 8  # so that each look rules out an eighth at least
        step = low + round((high - low) * self._low_excess / (self._low_excess - self._high_excess))
        return max(low + margin, min(high - margin, step))

    def learn(self, step: int, holds: bool, excess: float = math.nan) -> None:
        """Step `step` was tried, and exceeds the limits by `excess`."""
        if (self.low is None) != (self.high is None) and self._last_held is not None:
            self.width *= 2
        if holds:
            self.low, self._low_excess = step, excess
            if self._last_held is True:
                self._high_excess /= 2
        else:
            self.high, self._high_excess = step, excess
            if self._last_held is False:
                self._low_excess /= 2
        self._last_held = holds

    def given(self, step: int, excess: float = math.nan) -> None:
        """Step `step` is known to hold before the first look."""
        self.low, self._low_excess = step, excess

    def doubt(self, step: int) -> None:
        """That step `step` does not hold is no longer sure: it is looked for again beyond what holds."""
        if self.high == step:
            self.high, self._high_excess = None, math.nan


def excess(constraints: Iterable[Constraint], metrics: Mapping[str, float]) -> float:
    """How far the worst of the constraints is beyond its limit, as the logarithm of their ratio; nan if none tells."""
    worst = math.nan
    for constraint in constraints:
        value = metrics.get(constraint.metric, math.nan)
        if value > 0 and constraint.limit > 0:
            ratio = math.log(value / constraint.limit)
            beyond = ratio if constraint.operator in ("<=", "<") else -ratio
            worst = beyond if math.isnan(worst) else max(worst, beyond)
    return worst
