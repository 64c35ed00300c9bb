"""How an arrival rate changes over time: diurnal, a spike, a drain. Any renewal process is shaped by a change of time.

A shape gives the rate as a multiple of `rate_rps`. Its integral turns time into operational time, in which the process
runs at its constant rate; arrivals go back through the inverse (Daley and Vere-Jones, An Introduction to the Theory of
Point Processes, 7.4). So a Poisson process stays one, of the changing rate, and evenly spaced requests are spaced by
equal integrals of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Discriminator, Field, Tag

from sim.errors import InputError
from sim.workload._validation import MAX_SECONDS, TAG, Positive, Seconds, StrictModel, one_of

Times = npt.NDArray[np.float64]

_Length = Annotated[float, Field(gt=0, le=MAX_SECONDS)]


class Diurnal(StrictModel):
    """A sine of period `period_s` that begins in its trough; `rate_rps` is its mean, and the peak is `peak_to_trough`
    times the trough.
    """

    kind: Literal["diurnal"] = "diurnal"
    peak_to_trough: float = Field(ge=1, le=1e6)
    period_s: float = Field(ge=1e-3, le=MAX_SECONDS)

    @property
    def end_s(self) -> float:
        """From when on nothing arrives."""
        return math.inf

    @property
    def _swing(self) -> float:
        return (self.peak_to_trough - 1) / (self.peak_to_trough + 1)

    def operational(self, time_s: float) -> float:
        """The integral of the rate's multiple up to `time_s`, in seconds."""
        turns, rest = divmod(time_s, self.period_s)
        per_radian = self.period_s / (2 * math.pi)
        return turns * self.period_s + rest - self._swing * per_radian * math.sin(rest / per_radian)

    def times(self, operational: Times) -> Times:
        """Its inverse: x - swing sin x = y (Kepler's equation), by Newton's method within a shrinking bracket."""
        turns = np.floor(operational / self.period_s)
        per_radian = self.period_s / (2 * math.pi)
        y = (operational - turns * self.period_s) / per_radian
        low, high = np.maximum(y - self._swing, 0.0), y + self._swing
        x = y.copy()
        for _ in range(100):
            excess = x - self._swing * np.sin(x) - y
            low, high = np.where(excess < 0, x, low), np.where(excess > 0, x, high)
            # The slope is at least 1 - swing, which is above 0.
            step = x - excess / (1 - self._swing * np.cos(x))
            following = np.where((step >= low) & (step <= high), step, (low + high) / 2)
            if np.all(np.abs(following - x) <= 1e-15 * np.maximum(1.0, x)):
                break
            x = following
        return turns * self.period_s + x * per_radian


class Spike(StrictModel):
    """`rate_rps`, but `factor` times that from `start_s` on for `length_s`."""

    kind: Literal["spike"] = "spike"
    factor: Positive
    start_s: Seconds
    length_s: _Length

    @property
    def end_s(self) -> float:
        """From when on nothing arrives."""
        return math.inf

    def operational(self, time_s: float) -> float:
        """The integral of the rate's multiple up to `time_s`, in seconds."""
        inside = min(max(0.0, time_s - self.start_s), self.length_s)
        return time_s + (self.factor - 1) * inside

    def times(self, operational: Times) -> Times:
        """Its inverse."""
        inside: Times = np.clip(operational - self.start_s, 0.0, self.factor * self.length_s)
        return operational - inside + inside / self.factor


class Drain(StrictModel):
    """`rate_rps` until `start_s`, then falling in a straight line to nothing within `length_s` (0: at once). It ends
    the workload; what has queued up is then served.
    """

    kind: Literal["drain"] = "drain"
    start_s: Seconds
    length_s: Seconds = 0.0

    @property
    def end_s(self) -> float:
        """From when on nothing arrives."""
        return self.start_s + self.length_s

    def operational(self, time_s: float) -> float:
        """The integral of the rate's multiple up to `time_s`, in seconds."""
        inside = min(max(0.0, time_s - self.start_s), self.length_s)
        return min(time_s, self.start_s) + (inside - inside * inside / (2 * self.length_s) if inside else 0.0)

    def times(self, operational: Times) -> Times:
        """Its inverse, of what lies before the end."""
        if not self.length_s:
            return operational
        inside = np.clip(operational - self.start_s, 0.0, self.length_s / 2)
        fallen: Times = 2 * inside / (1 + np.sqrt(1 - 2 * inside / self.length_s))
        return np.minimum(operational, self.start_s) + fallen


_KINDS = ("diurnal", "spike", "drain")


def _known(raw: Any) -> Any:
    if isinstance(raw, Mapping):
        if "kind" not in raw:
            raise InputError("kind", f"is required: one of {', '.join(_KINDS)}")
        if raw["kind"] not in _KINDS:
            raise InputError("kind", one_of(raw["kind"], _KINDS))
        if raw["kind"] == "diurnal" and "peak_rps" in raw:
            mean = "the mean, peak x (1 + 1 / peak_to_trough) / 2"
            raise InputError("peak_rps", f"is no field of a shape: give rate_rps of the arrival, {mean}")
    elif not isinstance(raw, StrictModel):
        raise InputError("", f"must be a mapping with kind, got {raw!r}")
    return raw


def _tag(raw: Any) -> str:
    return TAG + str(raw["kind"] if isinstance(raw, Mapping) else raw.kind)


Shape = Annotated[
    Annotated[Diurnal, Tag(TAG + "diurnal")]
    | Annotated[Spike, Tag(TAG + "spike")]
    | Annotated[Drain, Tag(TAG + "drain")],
    Discriminator(_tag),
    BeforeValidator(_known),
]
"""A shape in a spec."""
