"""Whether a workload lasts long enough to show the load that it stands for.

Sessions that all begin after time 0 are few at first: as many live at once as the arrival rate keeps alive only after
some mean lives of one, and after the last has begun they grow fewer. A run in which they begin for little longer than
one lives measures a rise and a fall, and too few GPUs look like enough.
"""

from __future__ import annotations

import math

import numpy as np

from sim.workload import Workload

LIVES = 5  # for which they must begin; the share of the load still missing after n mean lives is about exp(-n)
PS_PER_S = 1e12


def rising_load(workload: Workload, answer_s: float = 0.0, *, stable: bool = True) -> str | None:
    """One line on why `workload` ends before its load is steady, and what would do; None: it lasts long enough.

    `answer_s` is the mean time that a request takes, as simulated. Without it sessions live for their think times
    alone, and nothing is said of requests that belong to none; nor is it where the plan is not `stable`, so that their
    latency grows with their number.
    """
    answer_s = 0.0 if math.isnan(answer_s) else answer_s
    starts = np.ones(len(workload), bool) if workload.follows is None else workload.follows < 0
    if workload.users:
        return _short_loop(workload.users, int(starts.sum()), "requests" if workload.follows is None else "sessions")
    sessions = workload.follows is not None
    if workload.follows is not None and workload.session is not None:
        mine = workload.session >= 0
        begun_ps = workload.arrival_ps[starts & mine]
        thought_ps = int(workload.arrival_ps[mine & ~starts].sum())
        lasts_s = (thought_ps / PS_PER_S + int(mine.sum()) * answer_s) / max(1, len(begun_ps))
    elif stable:
        begun_ps, lasts_s = workload.arrival_ps[starts], answer_s
    else:
        return None
    if len(begun_ps) < 2:
        return None
    span_s = (int(begun_ps.max()) - int(begun_ps.min())) / PS_PER_S
    if workload.time_limit_ps:
        span_s = min(span_s, workload.time_limit_ps / PS_PER_S)
    if span_s <= 0 or span_s >= LIVES * lasts_s:  # all at once is a burst, and meant to be
        return None
    enough_s = LIVES * lasts_s
    needed = _rounded_up(enough_s * len(begun_ps) / span_s)
    what, at_least = ("sessions", "" if answer_s else "at least ") if sessions else ("requests", "")
    return (
        f"{what} begin for {_seconds(span_s)} and one lasts {at_least or 'about '}{_seconds(lasts_s)}: the load is "
        f"still rising when the last begins, and too few GPUs look like enough; use at least {needed:,} {what} "
        f"({_seconds(enough_s)} of arrivals)"
    )


def _short_loop(users: int, units: int, what: str) -> str | None:
    if units <= users or units >= LIVES * users:  # no more than there are users: a batch, and meant to be
        return None
    return (
        f"{users:,} users share {units:,} {what}, about {units / users:.2g} each: the loop has hardly settled when it "
        f"ends; use at least {LIVES * users:,} {what}"
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def _rounded_up(count: float) -> int:
    """A number of two digits that is not less."""
    step = 10 ** max(0, math.floor(math.log10(count)) - 1)
    return math.ceil(count / step) * step
