"""When requests arrive: renewal processes, evenly spaced load, and inference-perf's normalised Poisson load."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sim.errors import InputError
from sim.random_streams import random_stream
from sim.workload._spec import MAX_REQUESTS, Arrival
from sim.workload._types import NS_PER_S, PS_PER_NS, IntColumn
from sim.workload._validation import MAX_SECONDS

Seconds = npt.NDArray[np.float64]


def weibull_shape(cv: float) -> float:
    """Shape k of a Weibull whose sd / mean is `cv`: cv^2 = G(1 + 2/k) / G(1 + 1/k)^2 - 1, solved by bisection.

    Deterministic, exact to double precision; `cv` between 0.01 and 100.
    """
    target = math.log1p(cv * cv)
    low, high = math.log(0.05), math.log(1e3)  # of k: cv falls as k grows, from 3.7e5 to 1.3e-3
    for _ in range(200):
        middle = (low + high) / 2
        k = math.exp(middle)
        if math.lgamma(1 + 2 / k) - 2 * math.lgamma(1 + 1 / k) > target:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def _unit_gaps(arrival: Arrival, rng: np.random.Generator, n: int) -> Seconds:
    """`n` gaps of mean 1 and the process's coefficient of variation."""
    if arrival.process == "gamma":
        assert arrival.cv is not None
        shape = arrival.cv**-2
        return rng.standard_gamma(shape, n) / shape
    if arrival.process == "weibull":
        assert arrival.cv is not None
        shape = weibull_shape(arrival.cv)
        return rng.weibull(shape, n) / math.gamma(1 + 1 / shape)
    return rng.standard_exponential(n)


def _fixed_count(rate_rps: float, duration_s: float) -> int:
    # inference-perf takes int(rate * duration); the small term keeps 0.29 * 100 at 29.
    return int(rate_rps * duration_s + 1e-9)


def renewal_times(unit_gaps: Callable[[int], Seconds], rate_rps: float, duration_s: float) -> Seconds:
    """Every arrival before `duration_s` of the renewal process whose next n gaps, of mean 1, are `unit_gaps(n)`."""
    expected = rate_rps * duration_s
    chunk = int(expected + 4 * math.sqrt(expected)) + 16
    times = np.cumsum(unit_gaps(chunk)) / rate_rps
    while times[-1] < duration_s:
        times = np.concatenate([times, times[-1] + np.cumsum(unit_gaps(chunk)) / rate_rps])
    return times[: int(np.searchsorted(times, duration_s, side="left"))]


def _stage_times(
    arrival: Arrival, rng: np.random.Generator, rate_rps: float, count: int | None, duration_s: float | None
) -> Seconds:
    """Arrival times in seconds from the start of a stage that ends by `count` or by `duration_s`."""
    if arrival.process in ("constant", "normalized-poisson"):
        if count is None:
            assert duration_s is not None
            count = _fixed_count(rate_rps, duration_s)
        if arrival.process == "constant":
            return np.arange(count) / rate_rps
        # As inference-perf's "constant" load: the last request arrives as the stage ends.
        times = np.cumsum(rng.standard_exponential(count))
        span_s = duration_s if duration_s is not None else count / rate_rps
        return times * (span_s / times[-1]) if count else times
    if count is not None:
        return np.cumsum(_unit_gaps(arrival, rng, count)) / rate_rps
    assert duration_s is not None
    return renewal_times(lambda n: _unit_gaps(arrival, rng, n), rate_rps, duration_s)


def to_ps(times_s: Seconds, field: str) -> IntColumn:
    """Whole nanoseconds, in picoseconds. Raises InputError for times past what an int64 clock holds."""
    if len(times_s) and not times_s[-1] <= MAX_SECONDS:
        raise InputError(
            field, f"arrivals last {times_s[-1]:.3g} s, more than the {MAX_SECONDS:,} s that can be simulated"
        )
    return np.rint(times_s * NS_PER_S).astype(np.int64) * PS_PER_NS


def open_loop(
    arrival: Arrival, num_requests: int | None, duration_s: float | None, seed: int, scope: str, field: str
) -> tuple[IntColumn, IntColumn | None]:
    """Arrival times in ps, sorted, and the load stage of each request (None where no stages were given).

    Every stage draws from a stream of its own, so the length of one does not shift the arrivals of the next. Raises
    InputError when no request arrives at all, or too many.
    """
    plan: list[tuple[float, int | None, float | None]]
    shape = arrival.shape
    if shape is not None and (duration_s is not None or num_requests is None):
        # Over its operational time the process has one rate; what arrives there goes through `shape.times` below.
        duration_s = shape.operational(min(math.inf if duration_s is None else duration_s, shape.end_s))
    if arrival.stages is not None:
        plan = [(stage.rate_rps, None, stage.duration_s) for stage in arrival.stages]
    else:
        assert arrival.rate_rps is not None
        plan = [(arrival.rate_rps, num_requests, duration_s)]
    expected = math.fsum(rate * duration for rate, count, duration in plan if count is None and duration is not None)
    if expected > MAX_REQUESTS:
        raise InputError(field, f"would send about {expected:.3g} requests; at most {MAX_REQUESTS:,} can be simulated")
    parts, stages, start_s = [], [], 0.0
    for i, (rate, count, duration) in enumerate(plan):
        with np.errstate(over="ignore"):  # endless gaps are found by `to_ps`
            times = _stage_times(arrival, random_stream(seed, f"{scope}arrival/{i}"), rate, count, duration)
        parts.append(start_s + times if shape is None else shape.times(times))
        stages.append(np.full(len(times), i, np.int64))
        start_s += duration or 0.0
    all_s = np.concatenate(parts)
    if len(all_s) == 0:
        raise InputError(field, "no request arrives: the rate is too low for the duration")
    return to_ps(all_s, field), np.concatenate(stages) if arrival.stages is not None else None
