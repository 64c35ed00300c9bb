"""The log of a run's evaluations: a line each, checked, so that what a crash or a bad disk left of it is known."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

EVALUATIONS = "evaluations.jsonl"
_CHECK = re.compile(r',"check":"([0-9a-f]{8})"}\s*$')


def read_evaluations(path: Path, warn: Callable[[str], None] = lambda text: None) -> list[dict[str, Any]]:
    """Every whole evaluation kept in run directory `path`, in order; of equal ids the last counts.

    Lines whose checksum does not match are left out, and so are those without one in a file where others have one;
    `warn` hears how many. A last line that a crash cut short is no damage.
    """
    kept: dict[str, tuple[bool, dict[str, Any]]] = {}
    damaged = 0
    file = path / EVALUATIONS
    if not file.exists():
        return []
    with file.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in lines:
            evaluation = parse_evaluation(line)
            if evaluation is not None:
                kept[evaluation["id"]] = _CHECK.search(line) is not None, evaluation
            elif line.endswith("\n") and line.strip():
                damaged += 1
    whole = [evaluation for checked, evaluation in kept.values() if checked]
    if whole:
        damaged += len(kept) - len(whole)
    if damaged:
        warn(f"{file}: {damaged} damaged evaluations are passed over")
    return whole or [evaluation for _, evaluation in kept.values()]


def parse_evaluation(line: str) -> dict[str, Any] | None:
    """The evaluation in a line of `evaluations.jsonl`; None where the line is not whole, or its checksum does not
    match."""
    mark = _CHECK.search(line)
    if mark is not None and int(mark[1], 16) != zlib.crc32(line[: mark.start()].encode()):
        return None
    try:
        evaluation = json.loads(line)
        evaluation.pop("check", None)
        evaluation["metrics"] = {
            name: math.nan if value is None else float(value) for name, value in evaluation["metrics"].items()
        }
        if evaluation["violation"] is None:
            evaluation["violation"] = math.inf
        evaluation["parameters"].items()
        hash(evaluation["id"]), evaluation["simulated"], evaluation["feasible"], evaluation["why_not"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return dict(evaluation)


def to_line(evaluation: Mapping[str, Any]) -> str:
    """One line of `evaluations.jsonl`; nan and infinity become null, since JSON has neither. Its last key, `check`, is
    the CRC-32 of what stands before it."""
    text = json.dumps(finite(evaluation), separators=(",", ":"), allow_nan=False)[:-1]
    return f'{text},"check":"{zlib.crc32(text.encode()):08x}"}}\n'


def finite(value: Any) -> Any:
    """`value` with null for what is nan or infinite in it, since JSON has neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
