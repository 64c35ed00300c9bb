"""What the command line shows of a workload's description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from planner.report.layout import line, table
from planner.report.names import number, percent

if TYPE_CHECKING:
    from rich.console import Console

    from sim.workload.describe import Description, Group

MAX_TENANTS = 10


def print_description(console: Console, found: Description, users: int) -> None:
    """Requests and rates, lengths, sharing, and the classes and tenants that are named; `users` is of a closed loop."""
    for text in (_arrivals(found, users), _burstiness(found), _sharing(found)):
        if text:
            line(console, text)
    console.print()
    _print_lengths(console, found)
    for title, groups in (("SLO class", found.classes), ("tenant", found.tenants)):
        if len(groups) > 1 or (groups and "standard" not in groups):  # a reader's default says nothing
            console.print()
            _print_groups(console, title, groups, found.requests)


def _arrivals(found: Description, users: int) -> str:
    requests = f"{number(found.requests)} request{'' if found.requests == 1 else 's'}"
    if found.sessions is not None and found.turns is not None:
        requests += f" in {number(found.sessions)} sessions (mean {_figure(found.turns.mean)}, max {found.turns.max})"
    if found.rate_rps is None:
        together = f" of {number(users)} users in a closed loop" if users > 1 else ""
        return f"{requests}{together}; when they come is not known beforehand."
    assert found.peak_rate_rps is not None
    assert found.window_s is not None
    busiest = f"{_figure(found.peak_rate_rps)} in the busiest {_figure(found.window_s)} s"
    if found.rates_of_sessions:
        return f"{requests}; they begin in {_figure(found.span_s)} s: {_figure(found.rate_rps)} sessions/s, {busiest}."
    return f"{requests} in {_figure(found.span_s)} s: {_figure(found.rate_rps)} requests/s, {busiest}."


def _burstiness(found: Description) -> str:
    if found.gap_cv is None:
        return ""
    counts = "" if found.dispersion is None else f", dispersion of the counts {_figure(found.dispersion)}"
    return f"Burstiness: CV of the gaps {_figure(found.gap_cv)}{counts} (both are 1 for a Poisson process)."


def _sharing(found: Description) -> str:
    if not found.shared_fraction:
        return "No two prompts begin alike: prefix caches cannot hit."
    return (
        f"Of the prompt tokens {percent(found.shared_fraction)} stand in a beginning that several requests share, and "
        f"{percent(found.reusable_fraction)} came in an earlier request: the hit rate of an endless prefix cache."
    )


def _print_lengths(console: Console, found: Description) -> None:
    grid = table()
    grid.add_column("tokens")
    for title in ("mean", *found.prompt_tokens.quantiles, "max"):
        grid.add_column(title, justify="right")
    for title, lengths in (("prompt", found.prompt_tokens), ("output", found.output_tokens)):
        values = (lengths.mean, *lengths.quantiles.values(), lengths.max)
        grid.add_row(title, *(f"{value:,.0f}" for value in values))
    console.print(grid)


def _print_groups(console: Console, title: str, groups: Mapping[str, Group], requests: int) -> None:
    """The largest groups first; what is left out is counted."""
    ranked = sorted(groups.items(), key=lambda item: (-item[1].requests, item[0]))
    grid = table()
    grid.add_column(title, overflow="fold")
    for heading in ("requests", "share", "prompt mean", "output mean"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for name, group in ranked[:MAX_TENANTS]:
        means = (f"{group.prompt_tokens_mean:,.0f}", f"{group.output_tokens_mean:,.0f}")
        grid.add_row(name, number(group.requests), percent(group.requests / requests), *means)
    console.print(grid)
    if len(ranked) > MAX_TENANTS:
        line(console, f"and {number(len(ranked) - MAX_TENANTS)} more")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
