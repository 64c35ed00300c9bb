"""What changed from the front of one run to that of another, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from planner.parameters import policy_name
from planner.report.names import pools
from planner.search.pruning import Cost, dominates
from planner.store import Run


def differences(a: Run, b: Run) -> Iterator[str]:
    """Settings that differ; plans that joined and left the front and why; what changed in the plans that stayed."""
    before, after = dict(_flat(a.space)), dict(_flat(b.space))
    for field in sorted(before.keys() | after.keys()):
        if before.get(field) != after.get(field) and field != "name":
            yield f"{field}: {_shown(before.get(field))} -> {_shown(after.get(field))}"
    fronts = [{_key(e["parameters"]): e for e in run.front_evaluations()} for run in (a, b)]
    for plan in sorted(fronts[0].keys() - fronts[1].keys()):
        yield f"- {_label(fronts[0][plan])}: {_why_not_on_front(plan, b)}"
    for plan in sorted(fronts[1].keys() - fronts[0].keys()):
        yield f"+ {_label(fronts[1][plan])}: before, {_why_not_on_front(plan, a)}"
    metrics = [metric for metric, _ in b.objectives]
    for plan in sorted(fronts[0].keys() & fronts[1].keys()):
        old, new = fronts[0][plan]["metrics"], fronts[1][plan]["metrics"]
        changes = [f"{m} {old[m]:.5g} -> {new[m]:.5g}" for m in metrics if m in old and m in new and old[m] != new[m]]
        if changes:
            yield f"= {_label(fronts[1][plan])}: {', '.join(changes)}"
    if fronts[0].keys() == fronts[1].keys():
        yield f"The fronts hold the same {len(fronts[0])} plans."


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, json.dumps(value, default=str)


def _shown(value: str | None) -> str:
    return "not given" if value is None else value


def _key(parameters: Mapping[str, Any]) -> str:
    return json.dumps(parameters, sort_keys=True)


def _label(evaluation: Mapping[str, Any]) -> str:
    p = evaluation["parameters"]
    return f"{pools(p)} {p['gpu']}, {p['max_num_seqs']} seats, {policy_name(p['routing'])} ({evaluation['id']})"


def _costs(run: Run, evaluation: Mapping[str, Any]) -> Cost:
    signs = {"max": -1.0, "min": 1.0}
    return tuple(signs[sense] * evaluation["metrics"][metric] for metric, sense in run.objectives)


def _why_not_on_front(plan: str, run: Run) -> str:
    found = next((e for e in run.evaluations if _key(e["parameters"]) == plan), None)
    if found is None:
        return "not among the candidates"
    if found["why_not"] is not None:
        return str(found["why_not"])
    mine = _costs(run, found)
    for other in run.front_evaluations():
        theirs = _costs(run, other)
        if dominates(theirs, mine):
            pairs = zip(run.objectives, theirs, mine, strict=True)
            values = [f"{metric} {abs(t):.5g} against {abs(m):.5g}" for (metric, _), t, m in pairs]
            return f"dominated by {_label(other)}: {', '.join(values)}"
    return "not on the front"
