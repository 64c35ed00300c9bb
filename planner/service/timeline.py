"""A simulated plan over time and as distributions, in as many numbers as a picture can show."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from planner.report.timelines import in_progress, moments
from sim.simulate import Result

SPANS = 100
POINTS = 200  # of a distribution
MOST_REPLICAS = 64

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def distributions(result: Result) -> dict[str, dict[str, list[float]]]:
    """Of each latency (ms) its empirical distribution: values `x`, and the share `p` of requests at or below them."""
    found = {}
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms"):
        values = np.sort(getattr(result.records, name))
        values = values[np.isfinite(values)]
        n = len(values)
        at = np.unique(np.linspace(0, n - 1, min(n, POINTS)).round().astype(np.int64)) if n else np.zeros(0, np.int64)
        found[name] = {"x": _rounded(values[at]), "p": _rounded((at + 1) / n if n else values)}
    return found


def timeline(result: Result) -> dict[str, Any]:
    """Means over `SPANS` equal spans of the run, of each replica and of all: requests waiting and running, tokens in
    the contexts of those that run, and the share of prompt tokens that came from the prefix cache."""
    records = result.records
    queued, started, ended = moments(result)
    last = np.nanmax(np.concatenate([ended, started, queued, [0.0]]))
    edges = np.linspace(0.0, max(float(last), 1e-9), SPANS + 1)
    replicas = len(result.replicas)
    shown = min(replicas, MOST_REPLICAS)
    everybody = np.ones(len(records.arrival_ms), dtype=bool)
    series = _Series(result, edges, queued, started, ended)
    return {
        "edges_s": _rounded(edges),
        "kv_capacity_tokens": result.capacity.tokens,
        "max_num_seqs": result.deployment.max_num_seqs,
        "replicas": [series.of(records.replica == index) for index in range(shown)],
        "replicas_left_out": replicas - shown,
        "all": series.of(everybody),
    }


class _Series:
    """The levels of a group of requests over the spans of one time axis."""

    def __init__(self, result: Result, edges: Floats, queued: Floats, started: Floats, ended: Floats) -> None:
        self._records = result.records
        self._edges = edges
        self._queued, self._started, self._ended = queued, started, ended
        self._first = queued + result.records.ttft_ms / 1e3

    def of(self, group: Mask) -> dict[str, list[float | None]]:
        """What the requests of `group` do."""
        queued, started, ended = (np.where(group, each, np.nan) for each in (self._queued, self._started, self._ended))
        return {
            "waiting": _rounded(self._level(queued, started)),
            "running": _rounded(self._level(started, ended)),
            "context_tokens": _rounded(self._context(group)),
            "hit_rate": _shares(*self._hits(group)),
        }

    def _level(self, begin: Floats, end: Floats) -> Floats:
        """The mean number of intervals that are open in each span."""
        at, level = in_progress(begin, end)
        if not len(at):
            return np.zeros(SPANS)
        begins, total = self._edges[0], self._edges[-1]
        at = np.concatenate([[min(begins, at[0])], at, [max(total, at[-1])]])
        level = np.concatenate([[0.0], level, level[-1:]])
        return _means(at, level, self._edges)

    def _context(self, group: Mask) -> Floats:
        """Tokens that running requests have in context: the prompt from the first step on, then one a token."""
        records = self._records
        known = group & np.isfinite(self._started) & np.isfinite(self._ended)
        total = np.zeros(SPANS)
        if not known.any():
            return total
        start, end = self._started[known], self._ended[known]
        first = np.where(np.isfinite(self._first[known]), self._first[known], start)
        prompt, output = records.prompt_tokens[known].astype(float), records.output_tokens[known].astype(float)
        growth = output / np.maximum(end - first, 1e-9)
        # The integral of a ramp from `first` to `end`, and of the prompt from `start` to `end`, up to each edge.
        areas = np.zeros(SPANS + 1)
        for index, edge in enumerate(self._edges):
            held = np.clip(edge, start, end) - start
            ramp = np.clip(edge, first, end) - first
            areas[index] = float((prompt * held + 0.5 * growth * ramp**2).sum())
        return np.diff(areas) / np.diff(self._edges)

    def _hits(self, group: Mask) -> tuple[Floats, Floats]:
        """(cached tokens, prompt tokens) of the requests that start in each span."""
        known = group & np.isfinite(self._started)
        span = np.clip(np.searchsorted(self._edges, self._started[known], side="right") - 1, 0, SPANS - 1)
        cached, prompt = self._records.cached_tokens[known], self._records.prompt_tokens[known]
        return np.bincount(span, cached, SPANS), np.bincount(span, prompt, SPANS)


def _means(at: Floats, level: Floats, edges: Floats) -> Floats:
    """A step function's mean over each span."""
    area = np.concatenate([[0.0], np.cumsum(np.diff(at) * level[:-1])])
    return np.diff(np.interp(edges, at, area)) / np.diff(edges)


def _rounded(values: Floats) -> list[float]:
    """To six significant digits: more than a picture shows, in half the text."""
    return [float(f"{value:.6g}") for value in values.tolist()]


def _shares(part: Floats, whole: Floats) -> list[float | None]:
    return [round(a / b, 4) if b else None for a, b in zip(part.tolist(), whole.tolist(), strict=True)]
