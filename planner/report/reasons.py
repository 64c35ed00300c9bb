"""Why candidates are not in the answer, counted together by what rules them out, whatever the figure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner.report import names, verdict

if TYPE_CHECKING:
    from planner.store import Run

_BROKEN = re.compile(r"([\w.]+) (?:is .*|has no value.*), must be (<=|>=|<|>) (\S+)")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_BEYOND = {"<=": "above", "<": "at or above", ">=": "below", ">": "at or below"}
_SCREENED = (
    ("behind ", "screened out: behind others in a short window of the load"),
    (" beats it ", "screened out: another plan beats it on the same requests"),
    ("budget", "screened out: the budget went to more promising plans"),
)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why candidates were ruled out: `alone` of the `count` met everything else; None where that is not known."""

    text: str
    count: int
    alone: int | None = None
    example: str = ""


def ruled_out(run: Run) -> tuple[list[Reason], list[Reason]]:
    """Why candidates are not in the answer: (those that were simulated to their end, the others), worst first.

    Of what the engine or a simulation says in its own words, those that differ in their numbers alone count together,
    with one of them as an example.
    """
    simulated = [Reason(text, count, alone) for text, count, alone in verdict.binding(run)]
    groups: dict[tuple[str, str], list[str]] = {}
    for plan in run.evaluations:
        if not plan["simulated"]:
            given = str(plan["why_not"]).rstrip(".")
            text = kind(plan, given)
            own_words = plan.get("refused") or plan.get("failed") or not text
            groups.setdefault((text, _NUMBER.sub("#", given) if own_words else ""), []).append(given)
    refused = [
        Reason(text or given[0], len(given), None, given[0] if key and text else "")
        for (text, key), given in groups.items()
    ]
    return simulated, sorted(refused, key=lambda reason: (-reason.count, reason.text, reason.example))


def kind(plan: Mapping[str, Any], given: str) -> str:
    """What kind of reason it is, in words; empty where it is one of its own."""
    if plan.get("failed"):
        return "the simulation took too long" if plan.get("timed_out_s") is not None else "the simulation failed"
    if plan.get("refused"):
        return "would not start"
    if plan.get("screened"):
        return next((text for sign, text in _SCREENED if sign in given), "")
    if given.startswith("dominated by "):
        return "ruled out: another plan is better, even at their best"
    limits = [_BROKEN.fullmatch(part) for part in given.split("; ")]
    broken = [_beyond(m[1], m[2], float(m[3])) for m in limits if m is not None]
    if len(broken) < len(limits):
        return ""
    if plan.get("stopped_early"):
        return f"stopped early: {' and '.join(broken)} for sure"
    return f"ruled out: {' and '.join(broken)}{' at best' if plan.get('bound') else ''}"


def _beyond(metric: str, operator: str, limit: float) -> str:
    return f"{names.metric_name(metric)} {_BEYOND[operator]} {names.measure(metric, limit)}"


def words(plan: Mapping[str, Any]) -> str:
    """Why a plan that was not simulated to its end is not in the answer: in words, or in the engine's own."""
    given = str(plan["why_not"]).rstrip(".")
    own = plan.get("refused") or plan.get("failed") or plan.get("screened")
    return (given if own else kind(plan, given)) or given


def times_the_limit(margin: verdict.Margin) -> str:
    """How far a broken limit is passed where a percentage would say little: "60 times the limit"; else empty."""
    if margin.headroom > -2 or not margin.limit or not math.isfinite(margin.value):
        return ""
    return f"{names.number(_two_digits(margin.value / margin.limit))} times the limit"


def headroom_cell(margin: verdict.Margin | None) -> str:
    """A margin in a cell of a table: a percentage of the limit, or how many times the limit the value is."""
    if margin is None:
        return "-"
    return times_the_limit(margin).removesuffix(" the limit") or names.percent(margin.headroom)


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")
