"""From the text that a client sends to a space that may be searched, or to everything that is wrong with it."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from planner.documents import check_mapping, parse_mapping
from planner.evaluate import check_named
from planner.service.confinement import check_confined
from planner.service.errors import FieldProblem
from planner.service.settings import Settings
from planner.service.workload_size import prompts_of, requests_of
from planner.service.yaml_lines import Lines
from planner.space import DEFAULT_BUDGET, MAX_EXHAUSTIVE, Space, parse_space
from sim.errors import InputError
from sim.workload import parse_workload

MOST_PROBLEMS = 10
SHORT = 20_000  # characters; in longer texts one problem at a time is found
SHOWN_OPTIONS = 50
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(slots=True)
class Checked:
    """A submission: its text, and either the space or what is wrong with it."""

    text: str
    space: Space | None = None
    requests: int | None = None  # of the workload, where its text tells
    problems: list[FieldProblem] = field(default_factory=list)


def check(given: str | Mapping[str, Any], settings: Settings, name: str | None = None) -> Checked:
    """Check a space, as YAML or as the mapping it would be, the way `planner search` does, and against the limits.

    `name` replaces the space's own. Nothing is raised: what is wrong is in the answer, with lines of the YAML.
    """
    text = given if isinstance(given, str) else yaml.safe_dump(dict(given), sort_keys=False, allow_unicode=True)
    try:
        document = parse_mapping(text) if isinstance(given, str) else check_mapping(dict(given))
    except InputError as error:
        return Checked(text, problems=[_located(Lines(text), error)])
    if name is not None:
        document["name"] = name
    document.setdefault("name", "space")
    checked = Checked(text)
    try:
        checked.space, checked.requests = _space(document, settings)
    except InputError as error:
        lines = Lines(text)
        checked.problems = [_located(lines, error)]
        if len(text) <= SHORT:
            checked.problems += _further(lines, document, error, settings)
    return checked


def _space(document: dict[str, Any], settings: Settings) -> tuple[Space, int | None]:
    """The space and its number of requests. Raises InputError for what `planner search` refuses before it starts, and
    for what is beyond the service's limits."""
    folder = settings.folder
    check_confined(document, folder, files=settings.files is not None, policies=settings.allow_policies)
    space = parse_space(document, folder)
    check_named(space)
    spec = parse_workload(space.workload)
    requests = requests_of(spec)
    _check_limits(space, requests, prompts_of(spec), settings)
    return space, requests


def _check_limits(space: Space, requests: int | None, prompts: int, settings: Settings) -> None:
    limits = settings.limits
    if space.size > limits.candidates:
        raise InputError("space", f"has {space.size:,} combinations; this service searches {limits.candidates:,}")
    for count, what in ((requests or 0, "requests"), (prompts, "prompts")):
        if count > limits.requests:
            raise InputError("workload", f"has {count:,} {what}; this service simulates at most {limits.requests:,}")
    work = most_simulations(space) * (requests or 0) * space.seeds
    if work > limits.simulated_requests:
        problem = (
            f"up to {most_simulations(space):,} candidates of {requests:,} requests are {work:.2g} simulated requests; "
            f"this service takes {limits.simulated_requests:.2g}: set search.budget, or send fewer requests"
        )
        raise InputError("search.budget", problem)
    if space.executor == "ray":
        raise InputError("search.executor", "ray is not for a service: leave it out")


def most_simulations(space: Space) -> int:
    """The most candidates that a search of `space` may simulate."""
    most = MAX_EXHAUSTIVE if space.method == "exhaustive" else DEFAULT_BUDGET
    return min(space.size, space.budget or most)


def _located(lines: Lines, error: InputError) -> FieldProblem:
    return FieldProblem(field=error.field, problem=error.problem, line=lines.of(error.field, error.problem))


def _further(lines: Lines, document: dict[str, Any], first: InputError, settings: Settings) -> list[FieldProblem]:
    """What else is wrong, found by taking out what is and checking the rest; it ends where a problem may be due to
    what was taken out."""
    found: list[FieldProblem] = []
    rest = copy.deepcopy(document)
    error, removed = first, []
    while len(found) < MOST_PROBLEMS:
        if not _removed(rest, error.field):
            return found
        removed.append(error.field)
        try:
            _space(rest, settings)
        except InputError as next_error:
            error = next_error
            if any(_is_due_to(path, error.field, document) for path in removed):
                return found
            found.append(_located(lines, error))
        else:
            return found
    return found


def _is_due_to(removed: str, field: str, document: dict[str, Any]) -> bool:
    """Whether a problem of `field` may come of what was taken out of the document at `removed`."""
    if field.startswith(removed) or removed.startswith(field):
        return True
    if _list_of(removed) and field.startswith(_list_of(removed)):
        return True  # of a list that lost an entry, later positions are no longer those of the text
    return field.rpartition(".")[0] == removed.rpartition(".")[0] and not _is_there(document, field)


def _list_of(path: str) -> str:
    """The list that a path leads into, with its bracket; empty where there is none."""
    return path[: path.rindex("[") + 1] if "[" in path else ""


def _is_there(document: dict[str, Any], path: str) -> bool:
    node: Any = document
    for key, index in _STEP.findall(path):
        node = _at(node, int(index) if index else key)
    return node is not None


def _removed(document: dict[str, Any], path: str) -> bool:
    """Take what is at `path` out of `document`; False where there is no such thing."""
    node: Any = document
    steps = [int(index) if index else key for key, index in _STEP.findall(path)]
    if not steps:
        return False
    for step in steps[:-1]:
        node = _at(node, step)
    if _at(node, steps[-1]) is None:
        return False
    del node[steps[-1]]
    return True


def _at(node: Any, step: str | int) -> Any:
    if isinstance(node, dict) and isinstance(step, str):
        return node.get(step)
    if isinstance(node, list) and isinstance(step, int) and step < len(node):
        return node[step]
    return None


def facts(space: Space, requests: int | None) -> dict[str, Any]:
    """What a client is told of a valid space."""
    return {
        "name": space.name,
        "model": space.model,
        "combinations": space.size,
        "requests": requests,
        "method": space.method,
        "budget": space.budget,
        "variables": [
            {"name": v.name, "options": list(v.options[:SHOWN_OPTIONS]), "count": len(v.options)}
            for v in space.variables
        ],
        "objectives": [{"metric": o.metric, "sense": o.sense} for o in space.objectives],
        "constraints": [{"metric": c.metric, "operator": c.operator, "limit": c.limit} for c in space.constraints],
        "document": space.document,
    }
