"""The live display of a search: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from planner.counts import simulated_words

if TYPE_CHECKING:
    from rich.console import Console

    from planner.search.surroundings import Progress

LINE_EVERY_S = 5.0
REFRESH_PER_S = 8


def duration(seconds: float) -> str:
    """Seconds as 42 s, 3:07 or 1:02:03."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def describe(progress: Progress, rate: float) -> str:
    """One line: simulations, rate, feasible, front size, time left."""
    refused = progress.refused
    of = progress.expected - refused if progress.expected else None
    done = simulated_words(progress.done - refused, progress.stopped_early, refused, of=of)
    parts = [done, f"{rate:,.1f}/s", f"{progress.feasible:,} feasible"]
    parts.append(f"front {progress.front:,}")
    if progress.ruled_out:
        parts.append(f"{progress.ruled_out:,} ruled out")
    if progress.expected and rate > 0 and progress.done < progress.expected:
        parts.append(f"{duration((progress.expected - progress.done) / rate)} left")
    return ", ".join(parts)


class ProgressDisplay:
    """Shows a search's progress on `console` while entered; call it with each new `Progress`."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._live: Any = None
        self._task: Any = None
        self._last: Progress | None = None
        self._shown_at = time.monotonic()

    def __enter__(self) -> ProgressDisplay:
        if not self._quiet and self._console.is_terminal:
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bars

            columns = (BarColumn(bar_width=24), TextColumn("{task.description}"))
            self._live = Bars(*columns, console=self._console, transient=True, refresh_per_second=REFRESH_PER_S)
            self._task = self._live.add_task("loading", total=None)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._unless_nobody_reads():
            if self._live is not None:
                self._live.stop()
            elif not self._quiet and self._last is not None:
                self._print(self._last)

    @contextmanager
    def _unless_nobody_reads(self) -> Iterator[None]:
        """A pipe closed at its other end, or a terminal that has gone, ends the display and not the search."""
        try:
            yield
        except OSError:
            self._quiet = True

    def __call__(self, progress: Progress) -> None:
        with self._unless_nobody_reads():
            self._show(progress)

    def _show(self, progress: Progress) -> None:
        self._last = progress
        now = time.monotonic()
        if self._quiet or now - self._shown_at < (1 / REFRESH_PER_S if self._live is not None else LINE_EVERY_S):
            return
        self._shown_at = now
        if self._live is None:
            self._print(progress)
        else:
            text = describe(progress, _rate(progress))
            self._live.update(self._task, description=text, completed=progress.done, total=progress.expected)

    def _print(self, progress: Progress) -> None:
        self._console.print(describe(progress, _rate(progress)), highlight=False, soft_wrap=True)


def _rate(progress: Progress) -> float:
    return progress.done / progress.elapsed_s if progress.elapsed_s > 0 else 0.0
