"""What changed from the front of one run to that of another, and why."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.parameters import policy_name
from planner.report import names, verdict
from planner.search.pruning import Cost, dominates
from planner.store import Run


@dataclass(slots=True)
class _Change:
    """Plans that came, left or stayed with equal figures, and what there is to say of the first of them."""

    sign: str
    plans: list[Mapping[str, Any]]
    words: str

    def line(self) -> str:
        """The plans on one line, of many the first and how many more."""
        more = f" and {len(self.plans) - 1} more with the same figures" if len(self.plans) > 1 else ""
        return f"{self.sign} {_label(self.plans[0])}{more}: {self.words}"


def differences(a: Run, b: Run) -> Iterator[str]:
    """What changed in one line; settings that differ; plans that joined and left the front and why; what changed in
    the plans that stayed. Plans with equal figures share a line; a difference that is none as displayed is none."""
    fronts = [{_key(e["parameters"]): e for e in run.front_evaluations()} for run in (a, b)]
    left = _grouped("-", [fronts[0][p] for p in sorted(fronts[0].keys() - fronts[1].keys())], a, b)
    came = _grouped("+", [fronts[1][p] for p in sorted(fronts[1].keys() - fronts[0].keys())], b, a)
    stayed = sorted(fronts[0].keys() & fronts[1].keys())
    yield _conclusion(a, b, left, came, len(stayed))
    before, after = dict(_flat(a.space)), dict(_flat(b.space))
    for field in sorted(before.keys() | after.keys()):
        if before.get(field) != after.get(field) and field != "name":
            yield f"{field}: {_shown(before.get(field))} -> {_shown(after.get(field))}"
    yield from (change.line() for change in (*left, *came))
    changed: dict[str, _Change] = {}
    for plan in stayed:
        words = _changes(a, b, fronts[0][plan], fronts[1][plan])
        if words:
            changed.setdefault(words, _Change("=", [], words)).plans.append(fronts[1][plan])
    yield from (change.line() for change in changed.values())


def _conclusion(a: Run, b: Run, left: Sequence[_Change], came: Sequence[_Change], stayed: int) -> str:
    gone, new = (sum(len(change.plans) for change in changes) for changes in (left, came))
    front = f"{gone} plan{'' if gone == 1 else 's'} left the front, {new} came, {stayed} stayed"
    if not gone and not new:
        front = f"the fronts hold the same {stayed} plan{'' if stayed == 1 else 's'}"
    old, recommended = verdict.recommended(a), verdict.recommended(b)
    if old is None or recommended is None:
        sides = [f"no plan is feasible in {name}" for name, one in (("A", old), ("B", recommended)) if one is None]
        return f"{' and '.join(sides).capitalize()}; {front}."
    if _key(old["parameters"]) != _key(recommended["parameters"]):
        return f"The recommended plan was {_label(old)} and is {_label(recommended)}; {front}."
    changes = _changes(a, b, old, recommended)
    label = f"{names.plan_label(recommended['parameters'])} {recommended['parameters'].get('gpu')}"
    return f"The same recommended plan, {label}, {changes or 'with the same figures'}; {front}."


def _grouped(sign: str, plans: Sequence[Mapping[str, Any]], own: Run, other: Run) -> list[_Change]:
    """Plans of the front of `own` that are not on that of `other`, those with equal figures together."""
    groups: dict[tuple[str, ...], _Change] = {}
    for plan in plans:
        words = _why_not_on_front(_key(plan["parameters"]), other)
        parameters = plan["parameters"]
        kind = re.sub(r"dominated by .*?:", "", words)  # by which of several alike does not matter
        figures = [names.measure(metric, plan["metrics"].get(metric)) for metric, _ in own.objectives]
        key = (names.plan_label(parameters), str(parameters.get("gpu")), *figures, kind)
        groups.setdefault(key, _Change(sign, [], f"before, {words}" if sign == "+" else words)).plans.append(plan)
    return list(groups.values())


def _changes(a: Run, b: Run, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What of the objectives and constrained metrics differs as displayed: "mean TTFT 97 ms -> 102 ms"."""
    metrics = dict.fromkeys([*b.asked(), *a.asked()])
    pairs = [(m, *(names.measure(m, plan["metrics"].get(m)) for plan in (old, new))) for m in metrics]
    return ", ".join(f"{names.metric_name(m)} {was} -> {now}" for m, was, now in pairs if was != now)


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
    return f"{names.pools(p)} {p['gpu']}, {p['max_num_seqs']} seats, {policy_name(p['routing'])} ({evaluation['id']})"


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
        if dominates(_costs(run, other), mine):
            pairs = [
                (metric, *(names.measure(metric, plan["metrics"][metric]) for plan in (other, found)))
                for metric, _ in run.objectives
            ]
            values = [
                f"{names.metric_name(metric)} {theirs} against {ours}"
                for metric, theirs, ours in pairs
                if theirs != ours
            ]
            return f"dominated by {_label(other)}: {', '.join(values) or 'by less than is displayed'}"
    return "not on the front"
