"""What a workload is like: rates, burstiness, lengths, classes, and what of its prompts an endless cache would hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.workload._types import PS_PER_S, IntColumn, Workload

FloatColumn = npt.NDArray[np.float64]

QUANTILES = (0.5, 0.9, 0.95, 0.99)
WINDOWS, REQUESTS_A_WINDOW = 100, 20
"""Rates are counted in so many windows of the span, in fewer where they would hold too few requests to tell a rate."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Token lengths: their mean, their greatest, and quantiles by name (`p50`)."""

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
    span_s: float  # from the start to the last arrival
    rate_rps: float | None  # requests a second over the span
    peak_rate_rps: float | None  # in the busiest window
    window_s: float | None  # length of those windows
    gap_cv: float | None  # sd / mean of the gaps; 1 for Poisson
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
    span_s = float(workload.arrival_ps[-1]) / PS_PER_S
    counts = np.histogram(workload.arrival_ps, windows, (0, int(workload.arrival_ps[-1])))[0] if timed else np.zeros(1)
    gaps = np.diff(workload.arrival_ps)
    window_s = span_s / windows
    prompt = int(workload.prompt_tokens.sum())
    shared = np.array([sum(tokens for _, tokens in pieces) for pieces in workload.contents], np.int64)
    return Description(
        requests=len(workload),
        span_s=span_s,
        rate_rps=len(workload) / span_s if timed else None,
        peak_rate_rps=float(counts.max()) / window_s if timed else None,
        window_s=window_s if timed else None,
        gap_cv=float(gaps.std() / gaps.mean()) if timed else None,
        dispersion=float(counts.var() / counts.mean()) if timed and windows > 1 else None,
        prompt_tokens=_lengths(workload.prompt_tokens),
        output_tokens=_lengths(workload.output_tokens),
        shared_fraction=int(shared[workload.content].sum()) / prompt,
        reusable_fraction=int(reusable_tokens(workload).sum()) / prompt,
        classes=_groups(workload, workload.slo_classes, workload.slo_class),
        tenants=_groups(workload, workload.tenants, workload.tenant),
    )


def has_times(workload: Workload) -> bool:
    """Whether the requests' arrivals are known before it runs: not in a closed loop, nor where all come at once."""
    return not workload.users and int(workload.arrival_ps[-1]) > 0


def default_windows(workload: Workload) -> int:
    """Windows in which its rates can be counted."""
    return min(WINDOWS, max(1, len(workload) // REQUESTS_A_WINDOW))


def course(workload: Workload, windows: int | None = None) -> Course:
    """Rates of `workload`, which must have times, over its span in `windows` equal windows (None: up to WINDOWS)."""
    windows = windows or default_windows(workload)
    times, end_ps = workload.arrival_ps, int(workload.arrival_ps[-1])
    edges_s = np.linspace(0.0, end_ps / PS_PER_S, windows + 1)
    width_s = end_ps / PS_PER_S / windows
    columns = (np.ones(len(workload), np.int64), workload.prompt_tokens, reusable_tokens(workload))
    rates = [np.histogram(times, windows, (0, end_ps), weights=column)[0] / width_s for column in columns]
    return Course(edges_s, *rates)


def reusable_tokens(workload: Workload) -> IntColumn:
    """Leading prompt tokens of each request that some earlier request had, int64: its hits in an endless cache."""
    node_of: dict[tuple[int, int], int] = {}
    seen = [0]  # tokens of each piece that have come by
    reused = np.zeros(len(workload), np.int64)
    for request, content in enumerate(workload.content.tolist()):
        node, hit, known = 0, 0, True
        for piece, tokens in workload.contents[content]:
            node = node_of.setdefault((node, piece), len(seen))
            if node == len(seen):
                seen.append(0)
            if known:
                hit += min(tokens, seen[node])
                known = seen[node] >= tokens
            seen[node] = max(seen[node], tokens)
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
