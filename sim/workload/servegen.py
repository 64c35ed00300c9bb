"""Requests drawn from ServeGen's published clients: windows of bursty arrivals, and histograms of lengths.

A folder holds, for each client N, `chunk-N-trace.csv` (window start s, rate, cv, process, shape, scale; no header) and
`chunk-N-dataset.json` (window start -> `input_tokens`, `output_tokens`, each a histogram as text). Source: ServeGen
(arXiv 2505.09999).
"""

from __future__ import annotations

import csv
import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.errors import InputError
from sim.random_streams import random_stream
from sim.workload._spec import MAX_REQUESTS
from sim.workload._types import NS_PER_S, IntColumn
from sim.workload.arrivals import renewal_times
from sim.workload.distributions import Empirical, sample_lengths
from sim.workload.traces import Trace

_PROCESSES = ("Gamma", "Weibull")


@dataclass(frozen=True, slots=True)
class _Window:
    """Load of one client from `start_s` to `end_s`: gaps of the process and shape, scaled to the rate."""

    start_s: float
    end_s: float
    rate_rps: float
    process: str
    shape: float

    def clipped(self, start_s: float, end_s: float) -> _Window:
        return _Window(max(self.start_s, start_s), min(self.end_s, end_s), self.rate_rps, self.process, self.shape)

    @property
    def expected(self) -> float:
        return self.rate_rps * max(0.0, self.end_s - self.start_s)

    def unit_gaps(self, rng: np.random.Generator, n: int) -> Any:
        if self.process == "Gamma":
            return rng.standard_gamma(self.shape, n) / self.shape
        return rng.weibull(self.shape, n) / math.gamma(1 + 1 / self.shape)


@dataclass(slots=True)
class _Client:
    name: str
    windows: list[_Window]  # busy ones only, in order
    lengths_from_s: list[float]
    lengths: list[tuple[Empirical, Empirical]]

    def lengths_at(self, time_s: float) -> tuple[Empirical, Empirical]:
        """Histograms of the last window of lengths that began by then, else of the first there is."""
        return self.lengths[max(0, bisect_right(self.lengths_from_s, time_s) - 1)]


def draw_servegen(
    folder: Path, seed: int, scope: str, start_s: float | None, span_s: float | None, field: str
) -> Trace:
    """Requests of all clients in `folder` from `start_s` (default: the first busy window) for `span_s` (default: all).

    Times count from the start. Each window of each client draws from streams of its own, so a window's requests do not
    depend on the clients beside it. The client is the tenant. Raises InputError for broken files, naming the line.
    """
    clients = [_read_client(path, field) for path in _client_files(folder, field)]
    busy = [window.start_s for client in clients for window in client.windows]
    start = start_s if start_s is not None else min(busy, default=0.0)
    end = math.inf if span_s is None else start + span_s
    work = [
        (client, part)
        for client in clients
        for window in client.windows
        if (part := window.clipped(start, end)).end_s > part.start_s
    ]
    expected = math.fsum(window.expected for _, window in work)
    if expected > MAX_REQUESTS:
        raise InputError(field, f"holds about {expected:.3g} requests, at most {MAX_REQUESTS:,}: give duration_s")
    columns: tuple[list[IntColumn], ...] = ([], [], [])
    tenants: list[str] = []
    for client, window in work:
        drawn = _draw_window(client, window, start, seed, f"{scope}servegen/{client.name}/{window.start_s:.9g}/")
        for column, values in zip(columns, drawn, strict=True):
            column.append(values)
        tenants += [client.name] * len(drawn[0])
    if not tenants:
        raise InputError(field, f"{folder.name}: no request arrives between {start:g} s and {end:g} s")
    times, prompt, output = (np.concatenate(column) for column in columns)
    order = np.argsort(times, kind="stable")
    nothing = np.zeros(len(order), np.int64)
    tenant = [tenants[i] for i in order.tolist()]
    return Trace(times[order], prompt[order], output[order], [()], nothing, tenant=tenant)


def _draw_window(
    client: _Client, window: _Window, origin_s: float, seed: int, scope: str
) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Arrivals in ns from `origin_s`, prompt tokens and output tokens of one client's window."""
    rng = random_stream(seed, scope + "arrival")
    times = renewal_times(lambda n: window.unit_gaps(rng, n), window.rate_rps, window.end_s - window.start_s)
    lengths = client.lengths_at(window.start_s)
    prompt, output = (
        sample_lengths(dist, random_stream(seed, scope + name), len(times))
        for dist, name in zip(lengths, ("input", "output"), strict=True)
    )
    times_ns = np.rint((window.start_s - origin_s + times) * NS_PER_S).astype(np.int64)
    return times_ns, prompt, output


def _client_files(folder: Path, field: str) -> list[Path]:
    def number(path: Path) -> int:
        return int(path.name.split("-")[1])

    files = [path for path in folder.glob("chunk-*-trace.csv") if re.fullmatch(r"chunk-\d+-trace\.csv", path.name)]
    if not files:
        raise InputError(field, f"{folder} holds no chunk-N-trace.csv")
    return sorted(files, key=number)


def _read_client(trace: Path, field: str) -> _Client:
    name = trace.name.removesuffix("-trace.csv")
    starts, lengths = _read_lengths(trace.with_name(f"{name}-dataset.json"), field)
    windows = list(_read_windows(trace, field))
    if windows and not lengths:
        raise InputError(field, f"{name}-dataset.json: holds no lengths, and {trace.name} has busy windows")
    return _Client(name, windows, starts, lengths)


def _text(path: Path, field: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        problem = getattr(failure, "strerror", None) or "not a text file"
        raise InputError(field, f"cannot read {path}: {problem.lower()}") from None


def _read_windows(path: Path, field: str) -> Iterator[_Window]:
    def fail(line: int, problem: str) -> InputError:
        return InputError(field, f"{path.name}: line {line}: {problem}")

    rows: list[tuple[float, float, str, float]] = []
    for line, row in enumerate(csv.reader(_text(path, field).splitlines()), 1):
        if len(row) != 6:
            raise fail(line, f"needs start, rate, cv, process, shape, scale; has {len(row)} fields")
        try:
            start, rate, _, shape = (float(row[i]) for i in (0, 1, 2, 4))
        except ValueError:
            raise fail(line, f"start, rate, cv and shape must be numbers, got {','.join(row)}") from None
        if not (0 <= rate < math.inf and 0 <= start < math.inf) or (rows and start <= rows[-1][0]):
            raise fail(line, "rates must be 0 or more, and windows in order of time")
        if rate > 0 and (row[3] not in _PROCESSES or not 0.01 <= shape < math.inf):
            raise fail(
                line, f"a busy window needs Gamma or Weibull with a shape of at least 0.01, got {row[3]!r} {shape}"
            )
        rows.append((start, rate, row[3], shape))
    width = rows[1][0] - rows[0][0] if len(rows) > 1 else 600.0
    for i, (start, rate, process, shape) in enumerate(rows):
        end = rows[i + 1][0] if i + 1 < len(rows) else start + width
        if rate > 0:
            yield _Window(start, end, rate, process, shape)


def _read_lengths(path: Path, field: str) -> tuple[list[float], list[tuple[Empirical, Empirical]]]:
    text = _text(path, field)
    try:
        raw = json.loads(text)
        windows = sorted((float(start), fields) for start, fields in raw.items())
    except (ValueError, AttributeError, TypeError):
        raise InputError(field, f"{path.name}: must be a JSON object of window start -> lengths") from None
    starts, lengths = [], []
    for start, fields in windows:
        try:
            pair = tuple(_histogram(fields[name]) for name in ("input_tokens", "output_tokens"))
        except (KeyError, TypeError, ValueError):
            raise InputError(
                field, f"{path.name}: window {start:g}: needs histograms input_tokens, output_tokens"
            ) from None
        if pair[0] is not None and pair[1] is not None:
            starts.append(start)
            lengths.append((pair[0], pair[1]))
    return starts, lengths


def _histogram(text: str) -> Empirical | None:
    """``{300: 0.5, 335: 0.5}`` as a distribution; None where it is empty."""
    bins = json.loads(re.sub(r"([{,]\s*)(\d+)\s*:", r'\1"\2":', text))
    return Empirical(histogram={int(length): float(weight) for length, weight in bins.items()}) if bins else None
