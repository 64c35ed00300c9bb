"""A run that is still going on: what its final metrics cannot be better than, whatever comes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sim.engine.requests import EXPIRED, REJECTED, SERVED, SHED, RequestTable
from sim.latency import RequestOverhead
from sim.metrics import DISTRIBUTIONS, METRICS, PS_PER_MS, PS_PER_S, STATISTICS, distribution, flat_name
from sim.workload import Workload

LOOKS = 32  # ticks while the requests arrive, of many
LEAST_BETWEEN, MOST_BETWEEN = 32, 4096  # events between two ticks

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_LATENCIES = {flat_name(name, statistic): (name, statistic) for name in DISTRIBUTIONS for statistic in STATISTICS}
_RATES = ("completed", "requests_per_s", "output_tokens_per_s", "total_tokens_per_s", "goodput_rps", "slo_attainment")
_COUNTS = {"shed": (SHED,), "expired": (EXPIRED,), "shed_rate": (SHED, EXPIRED), "rejected": (REJECTED,)}


class SoFar:
    """A run at `now_ps`: every request that is queued in an engine will be served, all others may come to nothing.

    With a prefill pool (`prefill` is its table) the engines are those of the decode pool.
    """

    def __init__(
        self,
        table: RequestTable,
        workload: Workload,
        overhead: RequestOverhead,
        request_slo: Mapping[str, float],
        now_ps: int,
        prefill: RequestTable | None = None,
    ) -> None:
        self._table = table
        self._prefill = prefill
        self._workload = workload
        self._overhead = overhead
        self._request_slo = request_slo
        self._limit = float(workload.time_limit_ps) or np.inf
        self._now = min(float(now_ps), self._limit)
        self._outcome = np.frombuffer(table.outcome, dtype=np.int8)
        arrival = np.frombuffer(table.arrival_ps, dtype=np.int64)
        self._arrival = arrival.astype(np.float64)
        self._late = self._arrival > self._limit  # never offered; one whose time is not known yet (-1) may be
        self._offered = (arrival >= 0) & ~self._late
        self._entered = (np.frombuffer(table.queue_ps, dtype=np.int64) >= 0) & (self._outcome == SERVED)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def reached(self) -> int:
        """Requests whose fate is known or being decided: in an engine, or turned away."""
        return int((self._entered | (self._outcome != SERVED)).sum())

    def bounds(self, names: Collection[str]) -> dict[str, float]:
        """Bounds by flat metric, of those in `names` that have one: from below for what is better low, from above for
        what is better high. The run's own metrics will be no better, to the rounding of floats."""
        found = {}
        for name in names:
            group, _, metric = name.rpartition(".")
            mask = self._members(group)
            value = None if mask is None else self._bound(metric, mask, class_only=bool(group))
            if value is not None and np.isfinite(value):
                found[name] = float(value)
        return found

    def _members(self, group: str) -> Mask | None:
        """The requests of an SLO class, all for ""; None where the workload has no such class."""
        if not group:
            return np.ones(len(self._table), dtype=bool)
        workload = self._workload
        if workload.slo_class is None or group not in workload.slo_classes:
            return None
        members: Mask = workload.slo_class == workload.slo_classes.index(group)
        return members

    def _bound(self, metric: str, mask: Mask, class_only: bool) -> float | None:
        if metric in _LATENCIES:
            name, statistic = _LATENCIES[metric]
            floors = self._floors(name)
            return None if floors is None else distribution(floors[mask])[statistic]
        if metric in _COUNTS:
            count = float(np.isin(self._outcome[mask & self._offered], _COUNTS[metric]).sum())
            return count / max(1, int((mask & ~self._late).sum())) if metric == "shed_rate" else count
        if metric == "preemptions" and not class_only:
            tables = [self._table] if self._prefill is None else [self._table, self._prefill]
            return float(sum(int(np.frombuffer(table.preemptions, dtype=np.int32).sum()) for table in tables))
        if metric == "duration_s":
            return self._duration_s
        return self._rate(metric, mask) if metric in _RATES else None

    # -- latencies ---------------------------------------------------------------------------------------------------

    def _floors(self, name: str) -> Floats | None:
        """Floors of a latency in ms, one a request: 0 where nothing is known, nan where it surely has none."""
        if name == "ttft_ms":
            return self._ttft_ms
        if name == "e2e_ms":
            return self._e2e_ms
        if name == "tpot_ms":
            output = self._workload.output_tokens
            decode = (self._finish - self._arrival) - (self._first - self._arrival)
            tpot = np.nan_to_num(decode) / np.maximum(output - 1, 1) / PS_PER_MS
            return self._of_those_served(np.where(output > 1, tpot, np.nan))
        return None

    def _times(self, column: Collection[int], overhead_ps: int) -> Floats:
        """A column as the client sees it, nan where it has not happened or comes after the end of the run."""
        values = np.frombuffer(column, dtype=np.int64)  # type: ignore[call-overload]
        times = np.where(values < 0, np.nan, values.astype(np.float64)) + overhead_ps
        times[times > self._limit] = np.nan
        return times

    @cached_property
    def _first(self) -> Floats:
        return self._times(self._table.first_token_ps, self._overhead.first_token_ps)

    @cached_property
    def _finish(self) -> Floats:
        return self._times(self._table.finish_ps, self._overhead.last_token_ps)

    def _since_arrival(self) -> Floats:
        """How long each request in an engine has waited by now, or by the end of the run; 0 of the others."""
        return np.where(self._entered, np.maximum(self._now - self._arrival, 0.0), 0.0)

    @cached_property
    def _ttft_ms(self) -> Floats:
        ttft = self._first - self._arrival
        return self._of_those_served(np.where(np.isnan(ttft), self._since_arrival(), ttft) / PS_PER_MS)

    @cached_property
    def _e2e_ms(self) -> Floats:
        e2e = self._finish - self._arrival
        # What the end of the run cuts off has no end-to-end latency at all.
        waited = self._since_arrival() if self._limit == np.inf else 0.0
        return self._of_those_served(np.where(np.isnan(e2e), waited, e2e) / PS_PER_MS)

    def _of_those_served(self, floors: Floats) -> Floats:
        """nan for requests that were turned away, or come too late: distributions leave them out. Who else may yet be
        left out counts as 0, which makes no mean or quantile larger."""
        return np.where((self._outcome != SERVED) | self._late, np.nan, floors)

    # -- rates -------------------------------------------------------------------------------------------------------

    @cached_property
    def _duration_s(self) -> float:
        """The run lasts at least this long: from the first arrival to an answer there was, or one that is to come."""
        arrived = self._arrival[self._arrival >= 0]
        if not len(arrived):
            return 0.0
        last = float(np.nanmax(self._finish)) if not np.isnan(self._finish).all() else 0.0
        if (self._entered & np.isnan(self._finish)).any():
            last = max(last, self._now)
        return max(0.0, last - float(arrived.min())) / PS_PER_S

    @cached_property
    def _bad(self) -> Mask:
        """Requests that can meet no SLO: turned away, or beyond a limit already."""
        bad: Mask = self._outcome != SERVED
        for name, limit in self._request_slo.items():
            floors = self._floors(name)
            if floors is not None:
                bad = bad | (np.nan_to_num(floors) > limit)
        return bad

    def _rate(self, metric: str, mask: Mask) -> float:
        """What is better high: all that may yet be served, over the least time that it takes."""
        possible = mask & ~self._late
        if metric == "slo_attainment":
            return 1.0 - int((self._bad & mask & self._offered).sum()) / max(1, int(possible.sum()))
        served = possible & (self._outcome == SERVED)
        if metric == "completed":
            return float(served.sum())
        if metric == "goodput_rps":
            amount = int((served & ~self._bad).sum())
        elif metric == "requests_per_s":
            amount = int(served.sum())
        else:
            amount = int(self._workload.output_tokens[served].sum())
            if metric == "total_tokens_per_s":
                amount += int(self._workload.prompt_tokens[served].sum())
        return amount / self._duration_s if self._duration_s > 0 else float("inf")


class Watch(Protocol):
    """Who looks at a run while it goes on. What it raises ends the run, and `simulate` raises it.

    When it is called depends on the requests and the simulated clock alone, so that the same run is seen the same way.
    """

    def tick(self) -> None:
        """Called every few thousand events, and at least some thirty times while requests arrive."""
        ...

    def look(self, so_far: SoFar) -> None:
        """Called a few times: after 1/32, 1/16, 1/8, 1/4, 1/2 and 3/4 of the requests, and while a queue drains; where
        answers bring requests, as often of the events."""
        ...


class Looks:
    """When the run of `table` is looked at by `watch`: rarely enough to cost little of it, however short it is."""

    def __init__(
        self,
        watch: Watch,
        table: RequestTable,
        workload: Workload,
        overhead: RequestOverhead,
        request_slo: Mapping[str, float],
        prefill: RequestTable | None = None,
    ) -> None:
        self._watch = watch
        self._run = (table, workload, overhead, request_slo)
        self._prefill = prefill
        self.every = max(LEAST_BETWEEN, min(MOST_BETWEEN, len(table) // LOOKS))  # events, between ticks
        self._quarter = max(self.every, len(table) // 4)
        self._events = 0
        self._next = max(self.every, len(table) // LOOKS)

    def tick(self, now_ps: int) -> int:
        """`every` events have happened; returns after how many more to tick again."""
        self._events += self.every
        self._watch.tick()
        if self._events >= self._next:
            # Answers and steps may be events too, many more than the requests: the looks get ever rarer.
            self._next = self._events + max(min(self._events, self._quarter), self._events // 4)
            self.look(now_ps)
        return self.every

    def look(self, now_ps: int) -> None:
        """Look at the run as it is, all boundaries strictly before `now_ps` handled."""
        self._watch.look(SoFar(*self._run, now_ps, self._prefill))

    def drains(self, now_ps: int) -> None:
        """The same while requests no longer arrive."""
        self._watch.tick()
        self.look(now_ps)

    def done(self) -> int:
        """How many requests have their answer."""
        return int((np.frombuffer(self._run[0].finish_ps, dtype=np.int64) >= 0).sum())


assert set(_RATES) | set(_COUNTS) | set(_LATENCIES) <= set(METRICS)
