"""What must wait where requests come faster than any scheduler could serve them. Pure functions on sorted times.

Nothing is assumed of the order of service: all bounds are on the k-th smallest of the times in question.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def finish_floors(arrivals: Array, work: Array, servers: int) -> Array:
    """Lower bounds on the k-th finish: requests arrive at `arrivals` (ascending) and take `work` of one of `servers`
    servers, which may work on any number of them at a time.

    By the k-th finish the k least works are done; and of these k requests, all but i came after arrival i.
    """
    least = np.sort(work)
    whole = arrivals[0] + np.cumsum(least) / servers
    each = least[0] / servers
    steps = np.arange(len(arrivals)) * each
    lindley = np.maximum.accumulate(arrivals - steps) + steps + each
    return np.maximum(whole, lindley)


def start_floors(arrivals: Array, seat_time: Array, seats: int, finishes: Array) -> Array:
    """Lower bounds on the k-th start, where at most `seats` requests are in service at once, each for its `seat_time`
    or longer without a break, and where `finishes` bound the k-th finish.

    When the k-th starts, k - seats have finished: started their seat time ago, and used up seats for the sum of it.
    """
    n = len(arrivals)
    least = np.sort(seat_time)
    rounds = -(-n // seats)
    padded = np.full(rounds * seats, np.inf)
    padded[:n] = arrivals
    shift = np.arange(rounds)[:, None] * least[0]
    starts: Array = (np.maximum.accumulate(padded.reshape(rounds, seats) - shift, axis=0) + shift).ravel()[:n]
    if n > seats:
        used = arrivals[0] + np.cumsum(least)[: n - seats] / seats
        starts[seats:] = np.maximum(starts[seats:], np.maximum(used, finishes[: n - seats]))
    return np.maximum.accumulate(starts)


def waiting_longer(arrivals: Array, starts: Array, wait: float) -> int:
    """How many requests must wait longer than `wait`, given lower bounds on the k-th start: the most that, at one
    moment, have come that long before and not started."""
    # Just before the k-th start, at most k have started (counted from 0).
    came = np.searchsorted(arrivals, starts - wait, side="left")
    return int(max(0, np.max(came - np.arange(len(starts)))))


def wait_floor(arrivals: Array, starts: Array, rank: int) -> float:
    """A lower bound on the wait of rank `rank` in ascending order (0 the shortest)."""
    needed = len(arrivals) - rank
    low, high = 0.0, float(np.max(starts - arrivals))
    if high <= 0 or waiting_longer(arrivals, starts, 0.0) < needed:
        return 0.0
    for _ in range(20):
        middle = (low + high) / 2
        if waiting_longer(arrivals, starts, middle) >= needed:
            low = middle
        else:
            high = middle
    return low
