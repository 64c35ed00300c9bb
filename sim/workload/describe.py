"""What a workload is like: rates, burstiness, lengths, classes, and what of its prompts an endless cache would hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.workload._types import PS_PER_S, IntColumn, Workload, content_tokens

FloatColumn = npt.NDArray[np.float64]

QUANTILES = (0.5, 0.9, 0.95, 0.99)
WINDOWS, REQUESTS_A_WINDOW = 100, 20
"""Rates are counted in so many windows of the span, in fewer where they would hold too few requests to tell a rate."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths, most of them in tokens: their mean, their greatest, and quantiles by name (`p50`)."""

    mean: float
    max: int
    quantiles: dict[str, float]


@dataclass(frozen=True, slots=True)
class Group:
    """The requests of one SLO class or tenant: how many, and their mean lengths."""

    requests: int
    prompt_tokens_mean: float
    output_tokens_mean: float


@dataclass(frozen=True, slots=True)
class Course:
    """A workload over its span, in equal windows; one entry a window, of `edges_s` one more."""

    edges_s: FloatColumn
    requests_per_s: FloatColumn
    prompt_tokens_per_s: FloatColumn
    reusable_tokens_per_s: FloatColumn  # those of them that an earlier request had


@dataclass(frozen=True, slots=True)
class Description:
    """What `describe` says of a workload. Rates and bursts are None where it names no times (a closed loop)."""

    requests: int
    sessions: int | None  # None: it names none
    turns: Lengths | None  # requests of a session
    rates_of_sessions: bool  # turns await answers, so that rates and bursts are those of sessions that begin
    span_s: float  # from the start to the last arrival
    rate_rps: float | None  # requests a second over the span
    peak_rate_rps: float | None  # in the busiest window
    window_s: float | None  # length of those windows
    gap_cv: float | None  # sd / mean of the gaps; 1 for Poisson; None: all come at one moment
    dispersion: float | None  # variance / mean of the counts a window; 1 for Poisson; None: there is one window
    prompt_tokens: Lengths
    output_tokens: Lengths
    shared_fraction: float  # of prompt tokens: what another request has too
    reusable_fraction: float  # of prompt tokens: what an earlier request had, the bound of any prefix cache's hit rate
    classes: dict[str, Group]  # by SLO class; empty where the workload names none
    tenants: dict[str, Group]  # by tenant, alike


def describe(workload: Workload, windows: int | None = None) -> Description:
    """Summary of `workload`; rates are counted in `windows` equal windows of its span (None: up to WINDOWS)."""
    timed = has_times(workload)
    windows = windows or default_windows(workload)
    begun_ps = _begun_ps(workload)
    span_s = float(begun_ps[-1]) / PS_PER_S
    counts = np.histogram(begun_ps, windows, (0, int(begun_ps[-1])))[0] if timed else np.zeros(1)
    gaps = np.diff(begun_ps)
    window_s = span_s / windows
    prompt = int(workload.prompt_tokens.sum())
    shared = np.minimum(content_tokens(workload.contents)[workload.content], workload.prompt_tokens)
    turns = None if workload.session is None else np.bincount(workload.session[workload.session >= 0])
    turns = None if turns is None or not turns.any() else turns[turns > 0]
    return Description(
        requests=len(workload),
        sessions=None if turns is None else len(turns),
        turns=None if turns is None else _lengths(turns),
        rates_of_sessions=workload.follows is not None,
        span_s=span_s,
        rate_rps=len(begun_ps) / span_s if timed else None,
        peak_rate_rps=float(counts.max()) / window_s if timed else None,
        window_s=window_s if timed else None,
        gap_cv=float(gaps.std() / gaps.mean()) if timed and gaps.any() else None,
        dispersion=float(counts.var() / counts.mean()) if timed and windows > 1 else None,
        prompt_tokens=_lengths(workload.prompt_tokens),
        output_tokens=_lengths(workload.output_tokens),
        shared_fraction=int(shared.sum()) / prompt,
        reusable_fraction=int(reusable_tokens(workload).sum()) / prompt,
        classes=_groups(workload, workload.slo_classes, workload.slo_class),
        tenants=_groups(workload, workload.tenants, workload.tenant),
    )


def has_times(workload: Workload) -> bool:
    """Whether the requests' arrivals are known before it runs: not in a closed loop, nor where all come at once."""
    return not workload.users and int(_begun_ps(workload)[-1]) > 0


def _begun_ps(workload: Workload) -> IntColumn:
    """When those arrive that await nobody's answer, in order."""
    return workload.arrival_ps if workload.follows is None else workload.arrival_ps[workload.follows < 0]


def default_windows(workload: Workload) -> int:
    """Windows in which its rates can be counted."""
    return min(WINDOWS, max(1, len(_begun_ps(workload)) // REQUESTS_A_WINDOW))


def course(workload: Workload, windows: int | None = None) -> Course:
    """Rates of `workload`, which must have times, over its span in `windows` equal windows (None: up to WINDOWS).

    Turns that await an answer count when they would come if answers took no time.
    """
    windows = windows or default_windows(workload)
    times = workload.earliest_ps()
    end_ps = int(times[-1])
    edges_s = np.linspace(0.0, end_ps / PS_PER_S, windows + 1)
    width_s = end_ps / PS_PER_S / windows
    columns = (np.ones(len(workload), np.int64), workload.prompt_tokens, reusable_tokens(workload))
    rates = [np.histogram(times, windows, (0, end_ps), weights=column)[0] / width_s for column in columns]
    return Course(edges_s, *rates)


def reusable_tokens(workload: Workload) -> IntColumn:
    """Leading prompt tokens of each request that an earlier request had, or got, int64: hits in an endless cache."""
    node_of: dict[tuple[int, int], int] = {}
    seen = [0]  # tokens of each piece that have come by
    reused = np.zeros(len(workload), np.int64)
    columns = (workload.content, workload.prompt_tokens, workload.output_tokens)
    for request, (content, prompt, output) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        node, start, hit, known = 0, 0, 0, True
        for piece, of_content in workload.contents[content]:
            tokens = min(of_content, prompt + output - start)
            if tokens <= 0:
                break
            node = node_of.setdefault((node, piece), len(seen))
            if node == len(seen):
                seen.append(0)
            if known:
                asked = min(tokens, max(0, prompt - start))
                hit += min(asked, seen[node])
                known = seen[node] >= asked
            seen[node] = max(seen[node], tokens)
            start += tokens
        reused[request] = hit
    return reused


def _lengths(column: IntColumn) -> Lengths:
    values = np.quantile(column, QUANTILES)
    names = (f"p{round(100 * q)}" for q in QUANTILES)
    return Lengths(float(column.mean()), int(column.max()), dict(zip(names, values.tolist(), strict=True)))


def _groups(workload: Workload, names: list[str], column: IntColumn | None) -> dict[str, Group]:
    groups = {}
    for index, name in enumerate(names if column is not None else []):
        mine = column == index
        prompt, output = workload.prompt_tokens[mine], workload.output_tokens[mine]
        if name and len(prompt):
            groups[name] = Group(len(prompt), float(prompt.mean()), float(output.mean()))
    return groups
