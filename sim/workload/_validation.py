"""Turns what pydantic finds wrong into the one-line `InputError` that users read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from sim.errors import InputError
from sim.names import nearest

TAG = "dist:"
"""Marks the tags of a tagged union in an error's location, so that they can be left out of the field path."""


def _integral(value: Any) -> Any:
    # YAML reads 1.0e+4 as a float; it is a whole number all the same.
    return int(value) if isinstance(value, float) and value.is_integer() else value


WholeNumber = Annotated[int, BeforeValidator(_integral)]
LONGEST_TOKENS = 100_000_000
"""No prompt and no output is longer, drawn or read: sums of lengths stay far inside int64."""

Tokens = Annotated[WholeNumber, Field(ge=0, le=LONGEST_TOKENS)]
MeanTokens = Annotated[float, Field(ge=1e-3, le=LONGEST_TOKENS)]
SdTokens = Annotated[float, Field(ge=0, le=LONGEST_TOKENS)]
LogTokens = Annotated[float, Field(ge=-100, le=100)]
SdLogTokens = Annotated[float, Field(ge=0, le=100)]
Count = Annotated[WholeNumber, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
MAX_SECONDS = 8_000_000
"""Simulated time is an int64 count of picoseconds, which ends after 106 days."""

Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
NonNegative = Annotated[float, Field(ge=0)]


class StrictModel(BaseModel):
    """A part of a spec: unknown fields, text for numbers, and NaN are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _only_known_fields(cls, raw: Any) -> Any:
        if isinstance(raw, Mapping):
            for key in raw:
                if key not in cls.model_fields:
                    known = sorted(cls.model_fields)
                    raise InputError(str(key), f"unknown field{nearest(key, known)}; allowed: {', '.join(known)}")
        return raw


def one_of(name: object, allowed: Iterable[str]) -> str:
    """The problem text for a name that is none of `allowed`."""
    names = list(allowed)
    return f"must be one of {', '.join(names)}, got {name!r}{nearest(name, names)}"


def join_path(field: str, location: Iterable[str | int]) -> str:
    """`field` extended by a location: ``workload`` and (``stages``, 0) make ``workload.stages[0]``."""
    path = field
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part and not part.startswith(TAG):
            path += f".{part}" if path else part
    return path


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "bool_type": "true or false",
    "finite_number": "a finite number",
}
_BOUNDS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def _problem(error: Any) -> str:
    kind, ctx, value = error["type"], error.get("ctx", {}), error.get("input")
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        bound = ctx[key]
        shown = f"{bound:,}" if float(bound).is_integer() else f"{bound:g}"
        return f"must be {words} {shown.removesuffix('.0')}, got {_shown(value)}"
    if kind in _TYPES:
        return f"must be {_TYPES[kind]}, got {_shown(value)}"
    if kind == "missing":
        return "is required"
    if kind == "literal_error":
        return one_of(value, [part.strip("' ") for part in ctx["expected"].replace(" or ", ", ").split(",")])
    if kind == "too_short":
        return f"needs at least {ctx['min_length']}, got {ctx['actual_length']}"
    return str(error["msg"])


_M = TypeVar("_M", bound=BaseModel)


def validated(model: type[_M], raw: Any, field: str) -> _M:
    """`raw` as an instance of `model`; raises InputError for the first thing wrong, with its path behind `field`."""
    try:
        return model.model_validate(raw)
    except ValidationError as failure:
        error: Any = failure.errors(include_url=False)[0]
        inner = error.get("ctx", {}).get("error")
        path = join_path(field, error["loc"])
        if isinstance(inner, InputError):
            raise InputError(join_path(path, (inner.field,)), inner.problem) from None
        raise InputError(path, _problem(error)) from None
