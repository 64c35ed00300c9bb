"""Candidates in batches: how many at a time, and what is tried again when a worker dies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from planner.evaluate import Outcome, timed_out

BATCH_S = 0.5  # a batch this long makes what it costs to send negligible and still reports often
MAX_BATCH = 64
FIRST_BATCH = 4  # before anything is known of how long a candidate takes
MAX_TRIES = 3
GRACE_S = 10.0  # that a worker has to give up a candidate by itself, before it is ended


@dataclass(slots=True)
class Batch:
    """Positions of candidates that are sent together, and how often a worker died of them."""

    positions: list[int]
    tries: int = 0


class Batches:
    """Deals out the positions 0..n-1 to `workers` workers, once each unless a worker dies of them."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._todo: deque[int] = deque()
        self._again: deque[Batch] = deque()
        self._seconds_each = 0.0

    def start(self, count: int) -> None:
        """From now on deals out `count` positions."""
        self._todo = deque(range(count))
        self._again.clear()

    @property
    def left(self) -> bool:
        """Whether there is something to deal out."""
        return bool(self._todo or self._again)

    def next(self) -> Batch:
        """The next batch: about half a second of work, smaller near the end, lest workers idle."""
        if self._again:
            return self._again.popleft()
        size = FIRST_BATCH if not self._seconds_each else int(BATCH_S / self._seconds_each)
        fair = -(-len(self._todo) // (2 * self._workers))
        size = max(1, min(size, MAX_BATCH, fair))
        return Batch([self._todo.popleft() for _ in range(size)])

    def took(self, seconds_each: float) -> None:
        """A candidate took that long."""
        self._seconds_each = seconds_each

    def died(self, unfinished: Iterable[Batch], too_long_s: float | None = None) -> Iterator[tuple[int, Outcome]]:
        """A worker died that was sent the `unfinished` batches, in this order: of the first one, therefore.

        Its candidates are dealt out again one by one, the other batches as they are; yields the outcome of those
        tried too often, and of one that was alone and took longer than `too_long_s`.
        """
        first = True
        for batch in unfinished:
            if not first:
                self._again.append(batch)
                continue
            first = False
            for position in batch.positions:
                if too_long_s is not None and len(batch.positions) == 1:
                    yield position, timed_out({}, too_long_s)
                elif batch.tries + 1 >= MAX_TRIES:
                    yield position, Outcome({}, failed=f"its worker died {MAX_TRIES} times")
                else:
                    self._again.append(Batch([position], batch.tries + 1))
