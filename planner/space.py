"""A search space: what may be deployed, what it must hold, and what makes one plan better than another."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.documents import apply_overrides, check_keys, check_number, describe, load_document
from planner.goals import (
    CAPACITY_METRICS,
    Constraint,
    Objective,
    parse_constraints,
    parse_objectives,
    service_levels,
)
from planner.parameters import DEFAULTS, PARAMETERS, POLICIES, Parameters, check_parameter, policy_spec
from planner.plan import check_prices
from sim.errors import InputError
from sim.names import nearest

MAX_OPTIONS = 100_000
MAX_CANDIDATES = 10**15
MAX_EXHAUSTIVE = 250_000  # each is kept, in some 4 KB of memory
DEFAULT_BUDGET = 5_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class SearchSettings(BaseModel):
    """How to search: the method, the most evaluations it may simulate, the seed of workload and method, under how
    many seeds to try what is found, whether hopeless simulations are ended early, and how long one may take."""

    model_config = ConfigDict(extra="forbid", strict=True)

    method: Literal["auto", "exhaustive", "screening", "random", "nsga2", "nsga3"] = "auto"
    budget: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    seeds: Annotated[int, Field(ge=1, le=1000)] = 1
    executor: Literal["auto", "serial", "processes", "ray"] = "auto"
    early_stop: bool = True
    timeout_s: Annotated[float, Field(gt=0, le=1e9)] = 3600.0


class SpaceFile(BaseModel):
    """The shape of space.yaml; what its values mean is checked afterwards."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1, max_length=100)]
    model: Annotated[str, Field(min_length=1)]
    workload: dict[str, Any]
    slo: list[str] = []
    objectives: Annotated[list[dict[str, str]], Field(min_length=1)]
    space: Annotated[dict[str, Any], Field(min_length=1)]
    search: SearchSettings = SearchSettings()
    prices: dict[str, float] = {}
    coefficients: str | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """A deployment parameter and the values it may take, in order; `ordered` says that nearby values are alike."""

    name: str
    options: tuple[Any, ...]
    ordered: bool
    listed: bool  # the user wrote each value out, rather than a range


@dataclass(frozen=True, slots=True)
class Space:
    """A parsed space.yaml. A candidate is one option of each variable; the other parameters keep their defaults."""

    name: str
    model: str
    workload: dict[str, Any]
    slo: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    objectives: tuple[Objective, ...]
    variables: tuple[Variable, ...]
    method: str
    budget: int | None  # None: as many as an exhaustive search takes, DEFAULT_BUDGET for the others
    seed: int
    seeds: int  # workloads, each of its own seed, that the front is tried under
    executor: str
    early_stop: bool  # of simulations that cannot meet the constraints any more
    timeout_s: float  # of real time, after which a candidate is given up
    prices: dict[str, float]
    coefficients: str | None
    document: dict[str, Any]
    folder: Path  # what relative paths in the document are relative to

    def asks(self, metric: str) -> bool:
        """Whether an objective or a constraint is about `metric`."""
        return metric in {o.metric for o in self.objectives} | {c.metric for c in self.constraints}

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of replicas of which each plan takes the fewest that hold the SLO; empty unless `min_gpus` is
        asked for."""
        if not self.asks("min_gpus"):
            return ()
        return next((variable.options for variable in self.variables if variable.name == "replicas"), ())

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of options of each variable."""
        return tuple(len(variable.options) for variable in self.variables)

    @property
    def size(self) -> int:
        """The number of combinations, the same deployment counted as often as it is written."""
        return math.prod(self.shape)

    def parameters(self, choice: Sequence[int]) -> Parameters:
        """Every deployment parameter of the combination that takes option choice[i] of variable i."""
        values = {v.name: v.options[int(i)] for v, i in zip(self.variables, choice, strict=True)}
        return {name: values.get(name, DEFAULTS.get(name)) for name in PARAMETERS}

    def choices(self) -> Iterator[tuple[int, ...]]:
        """Every combination, the last variable fastest."""
        return itertools.product(*(range(count) for count in self.shape))


def load_space(path: Path, overrides: Sequence[str] = ()) -> Space:
    """The space in file `path`, with ``path=value`` overrides applied first. Raises InputError."""
    document = load_document(path)
    apply_overrides(document, overrides)
    document.setdefault("name", path.stem)
    return parse_space(document, path.parent)


def parse_space(document: Mapping[str, Any], folder: Path) -> Space:
    """The space that `document` describes. Raises InputError naming the field."""
    raw = {key: document[key] for key in document}
    if isinstance(raw.get("prices"), dict):
        raw["prices"] = check_prices(raw["prices"])
    shape = _check_shape(raw)
    if not _NAME.fullmatch(shape.name):
        raise InputError("name", f"must be letters, digits, dots, hyphens and underscores, got {shape.name!r}")
    variables = _parse_variables(shape.space)
    size = math.prod(len(variable.options) for variable in variables)
    if size > MAX_CANDIDATES:
        raise InputError("space", f"has {size:.1e} combinations; at most {MAX_CANDIDATES:.0e} are searched")
    if shape.search.method == "exhaustive" and size > MAX_EXHAUSTIVE and shape.search.budget is None:
        problem = f"would try {size:.1e} combinations, more than {MAX_EXHAUSTIVE:,}; set search.budget, or use nsga2"
        raise InputError("search.method", problem)
    space = Space(
        name=shape.name,
        model=shape.model,
        workload=shape.workload,
        slo=tuple(shape.slo),
        constraints=parse_constraints(shape.slo),
        objectives=parse_objectives(shape.objectives),
        variables=variables,
        method=shape.search.method,
        budget=shape.search.budget,
        seed=shape.search.seed,
        seeds=shape.search.seeds,
        executor=shape.search.executor,
        early_stop=shape.search.early_stop,
        timeout_s=shape.search.timeout_s,
        prices=shape.prices,
        coefficients=shape.coefficients,
        document=dict(document),
        folder=folder,
    )
    _check_capacities(space)
    return space


def _check_capacities(space: Space) -> None:
    """Raise InputError where a capacity is asked for and what it needs is not there."""
    asked = [metric for metric in CAPACITY_METRICS if space.asks(metric)]
    if not asked:
        return
    if not service_levels(space.constraints):
        raise InputError("slo", f"needs a service level for {asked[0]} to be found at, as ttft_p99_ms <= 500")
    if "min_gpus" in asked and len(space.sizes) < 2:
        raise InputError(
            "space.replicas", "is what min_gpus varies; give the numbers to choose from, as {min: 1, max: 16}"
        )
    if space.method == "screening":
        problem = f"screening looks at windows, on which {asked[0]} has no value; use auto, exhaustive or nsga2"
        raise InputError("search.method", problem)


# -- the shape, by pydantic -------------------------------------------------------------------------------------


def _check_shape(document: Mapping[str, Any]) -> SpaceFile:
    try:
        return SpaceFile.model_validate(dict(document))
    except ValidationError as errors:
        # Unknown keys first: a misspelt key is also a missing one, and its own name is the better hint.
        first = min(errors.errors(), key=lambda error: error["type"] != "extra_forbidden")
        raise InputError(_path(first["loc"]), _problem(first)) from None


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


_NEEDED = {
    "model": "give a model's name (`planner models` lists them) or the path of its config.json",
    "workload": "give a mapping, as `kind: preset` with `preset: chatbot`",
    "objectives": "give a list of `maximize: metric` and `minimize: metric`",
    "space": "give deployment parameters and their choices, as `tensor_parallel_size: [1, 2]`",
}
_EXPECTED = {
    "string_type": "must be text",
    "dict_type": "must be a mapping",
    "list_type": "must be a list",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "model_type": "must be a mapping",
}


def _problem(error: Any) -> str:
    kind, given, context = error["type"], error.get("input"), error.get("ctx", {})
    if kind == "extra_forbidden":
        known = list(SpaceFile.model_fields if len(error["loc"]) == 1 else SearchSettings.model_fields)
        return f"unknown key{nearest(error['loc'][-1], known)}; allowed: {', '.join(known)}"
    if kind == "missing":
        return f"is missing; {_NEEDED.get(str(error['loc'][-1]), 'it is required')}"
    if kind in ("too_short", "string_too_short"):
        return f"is empty; {_NEEDED.get(str(error['loc'][-1]), 'give one')}"
    if kind == "literal_error":
        expected = context["expected"].replace("'", "").replace(" or ", ", ")
        hint = nearest(given, expected.split(", ")) if isinstance(given, str) else ""
        return f"must be one of {expected}, got {describe(given)}{hint}"
    if kind == "greater_than":
        return f"must be a number above {context['gt']:g}, got {describe(given)}"
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = "at least" if kind.startswith("greater") else "at most"
        whole = "" if isinstance(given, float) else "whole "
        return f"must be a {whole}number {bound} {context.get('ge', context.get('le'))}, got {describe(given)}"
    return f"{_EXPECTED.get(kind, error['msg'])}, got {describe(given)}"


# -- the variables ----------------------------------------------------------------------------------------------


def _parse_variables(space: Mapping[str, Any]) -> tuple[Variable, ...]:
    check_keys(space, PARAMETERS, "space")
    if "gpu" not in space:
        raise InputError("space.gpu", "is missing; give GPU names (`planner hardware` lists them)")
    return tuple(_parse_variable(name, space[name], f"space.{name}") for name in PARAMETERS if name in space)


def _parse_variable(name: str, given: Any, field: str) -> Variable:
    """A list is a choice, {min, max, step | scale} a range, anything else one fixed value."""
    is_policy = name in POLICIES
    if isinstance(given, Mapping) and not is_policy:
        options: list[Any] = _parse_range(given, field)
        return Variable(name, _distinct([check_parameter(name, o, field) for o in options], field), True, False)
    listed = isinstance(given, list)
    if listed and not given:
        raise InputError(field, "is an empty list; give at least one value")
    options = []
    for position, item in enumerate(given if listed else [given]):
        path = f"{field}[{position}]" if listed else field
        concrete = _expand_policy(item, path) if is_policy else [item]
        options += [check_parameter(name, option, path) for option in concrete]
        if len(options) > MAX_OPTIONS:
            raise InputError(field, f"has more than {MAX_OPTIONS:,} options")
    ordered = all(isinstance(o, int | float) and not isinstance(o, bool) for o in options)
    if ordered:
        options.sort()  # so that neighbours in the search are neighbours in value
    return Variable(name, _distinct(options, field), ordered, listed)


def _distinct(options: list[Any], field: str) -> tuple[Any, ...]:
    seen = set()
    for option in options:
        form = json.dumps(option, sort_keys=True, default=str)
        if form in seen:
            raise InputError(field, f"has {describe(option)} twice; give each value once")
        seen.add(form)
    return tuple(options)


def _expand_policy(item: Any, field: str) -> list[Any]:
    """The policies that one entry stands for: each combination of its parameters' choices."""
    spec = policy_spec(item, field)
    return [{"name": spec.name, **parameters} for parameters in _combinations(spec.parameters, field)]


def _combinations(parameters: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    """Each combination of the choices in a mapping, those of mappings inside it included."""
    axes = []
    for key, value in parameters.items():
        path = f"{field}.{key}"
        if isinstance(value, list):
            if not value:
                raise InputError(path, "is an empty list; give at least one value")
            axes.append(list(_distinct(value, path)))
        elif isinstance(value, Mapping):
            axes.append(_parse_range(value, path) if {"min", "max"} <= set(value) else _combinations(value, path))
        else:
            axes.append([value])
    if math.prod(len(axis) for axis in axes) > MAX_OPTIONS:
        raise InputError(field, f"stands for more than {MAX_OPTIONS:,} policies")
    return [dict(zip(parameters, choice, strict=True)) for choice in itertools.product(*axes)]


def _parse_range(given: Mapping[str, Any], field: str) -> list[int | float]:
    """The values of {min, max, step} (step 1 if left out) or {min, max, scale: log2}: from min, max included."""
    check_keys(given, ("min", "max", "step", "scale"), field)
    for key in ("min", "max"):
        if key not in given:
            raise InputError(f"{field}.{key}", "is missing; a range is {min, max, step} or {min, max, scale: log2}")
    low = check_number(given["min"], f"{field}.min")
    high = check_number(given["max"], f"{field}.max")
    if high < low:
        raise InputError(f"{field}.max", f"must be at least min ({low:g}), got {high:g}")
    if "scale" in given:
        if "step" in given:
            raise InputError(f"{field}.step", "does not go with scale: log2, which doubles; leave one out")
        return _doubling(low, high, given["scale"], field)
    if "step" not in given and not (isinstance(low, int) and isinstance(high, int)):
        raise InputError(f"{field}.step", "is missing; a range of fractions needs one")
    step = check_number(given.get("step", 1), f"{field}.step", above=0)
    count = int((Decimal(str(high)) - Decimal(str(low))) / Decimal(str(step))) + 1
    if count > MAX_OPTIONS:
        raise InputError(field, f"has {count:,} values; at most {MAX_OPTIONS:,} are searched")
    # Decimal, so that 0.1 + 0.2 is 0.3 and names the same plan as 0.3 written out.
    values = [Decimal(str(low)) + i * Decimal(str(step)) for i in range(count)]
    whole = isinstance(low, int) and isinstance(step, int)
    return [int(value) if whole else float(value) for value in values]


def _doubling(low: int | float, high: int | float, scale: Any, field: str) -> list[int | float]:
    if scale != "log2":
        raise InputError(f"{field}.scale", f"must be log2, got {describe(scale)}")
    check_number(low, f"{field}.min", above=0)
    return [low * 2**power for power in range(int(math.log2(high / low) + 1e-9) + 1)]
