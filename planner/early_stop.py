"""Ends a simulation that has nothing left to say: it cannot meet its SLO any more, or it takes too long."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

from planner.goals import NEAR, Constraint
from planner.search.pruning import broken_by_bounds

if TYPE_CHECKING:
    from sim.so_far import SoFar


class Hopeless(Exception):
    """A run whose constraints are broken beyond `NEAR`, whatever the rest of it does."""

    def __init__(self, after: str, bounds: dict[str, float]) -> None:
        super().__init__(after)
        self.after = after  # how many requests of how many
        self.bounds = bounds


class TimedOut(BaseException):
    """A run that took longer than it may. No ordinary exception: a user's policy must not swallow it."""


def hopeless(constraints: Iterable[Constraint], bounds: Mapping[str, float]) -> bool:
    """Whether metrics that are no better than `bounds` break the constraints by more than `NEAR` in sum."""
    return broken_by_bounds(constraints, bounds)[0] > NEAR


@dataclass(slots=True)
class EarlyStop:
    """Watches one run: raises Hopeless once `constraints` are broken for sure, and TimedOut at `deadline`.

    A plan that misses its constraints by no more than `NEAR` in sum runs to its end: how near it came is of interest,
    and another seed may turn it.
    """

    constraints: Sequence[Constraint]
    deadline: float | None = None  # of time.monotonic
    _metrics: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._metrics = ("preemptions", *(constraint.metric for constraint in self.constraints))

    def tick(self) -> None:
        """Whether there is time left."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise TimedOut

    def look(self, so_far: SoFar) -> None:
        """Whether there is hope left."""
        if not self.constraints:
            return
        bounds = so_far.bounds(self._metrics)
        if hopeless(self.constraints, bounds):
            raise Hopeless(f"after {so_far.reached:,} of {len(so_far):,} requests", bounds)


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimedOut inside once it has taken `seconds`, again each second until it has ended.

    Only what runs Python code in the main thread can be interrupted, and only where there is SIGALRM: for the rest
    there is `EarlyStop.tick`, and the pools end a worker that does not come back.
    """
    main = threading.current_thread() is threading.main_thread()
    if seconds is None or not main or not hasattr(signal, "setitimer"):
        yield
        return
    handler = signal.signal(signal.SIGALRM, _time_is_up)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, handler)


def _time_is_up(number: int, frame: FrameType | None) -> None:
    raise TimedOut
