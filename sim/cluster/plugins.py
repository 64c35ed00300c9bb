"""Makes policies and their parts by name: the shipped ones, and a user's own as ``my_module:MyPolicy``."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
from collections.abc import Mapping
from typing import Any

from sim.deployment import PolicySpec
from sim.errors import InputError
from sim.names import nearest

# Of a parameter's value, by how its name ends: times are counted in picoseconds, of which a simulation has 8,000,000 s.
_MOST = (("_per_s", 1e15), ("_ms", 8e9), ("_s", 8e6), ("", 1e15))


def spec_of(value: Any, field: str) -> PolicySpec:
    """The policy that a parameter names: ``fcfs``, or a mapping of `name` and parameters."""
    if isinstance(value, str) and value:
        return PolicySpec(value)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return PolicySpec(value["name"], {key: item for key, item in value.items() if key != "name"})
    raise InputError(field, f"must be a name, or a mapping of name and parameters, got {value!r}")


def make_plugin(kind: str, shipped: Mapping[str, type], base: type, spec: PolicySpec, field: str) -> Any:
    """A fresh object. Raises InputError for an unknown name, class or parameter."""
    plugin_class = _class_of(kind, shipped, base, spec.name, field)
    parameters, whole = parameters_of(plugin_class), _whole_numbers(plugin_class)
    given = dict(spec.parameters)
    for name, value in given.items():
        if name not in parameters:
            problem = f"unknown parameter of {spec.name}{nearest(name, parameters)}"
            raise InputError(f"{field}.{name}", f"{problem}; it takes {', '.join(parameters) or 'none'}")
        check_value(0 if parameters[name] is None and name in whole else parameters[name], value, f"{field}.{name}")
        if name in whole and isinstance(value, float):
            if not value.is_integer():
                raise InputError(f"{field}.{name}", f"must be a whole number, got {value!r}")
            given[name] = int(value)
    try:
        return plugin_class(**given)
    except InputError as error:
        raise InputError(f"{field}.{error.field}" if error.field else field, error.problem) from None
    except Exception as error:
        raise InputError(field, f"{spec.name} cannot be made: {error}") from error


def check_value(default: object, value: object, field: str) -> None:
    """Numbers must be finite and not negative where the default is a number."""
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise InputError(field, f"must be true or false, got {value!r}")
        return
    if not isinstance(default, int | float):
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InputError(field, f"must be a finite number of at least 0, got {value!r}")
    most = next((most for ending, most in _MOST if field.endswith(ending)))
    if value > most:
        raise InputError(field, f"must be at most {most:,.0f}, got {str(value)[:40]}")
    if value == 0 and field.endswith("_threshold"):
        raise InputError(field, "must be greater than 0")


def must_be_positive(owner: object, *names: str) -> None:
    """Raise InputError for the first field of `owner` of these names that is not greater than 0."""
    for name in names:
        value = getattr(owner, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise InputError(name, f"must be greater than 0, got {value!r}")


def parameters_of(plugin_class: type) -> dict[str, object]:
    """The constructor's parameters by name, with their defaults (None where there is none)."""
    if dataclasses.is_dataclass(plugin_class) and "__init__" in vars(plugin_class):
        return {f.name: _default_of(f) for f in dataclasses.fields(plugin_class) if f.init}
    found = {}
    for name, parameter in inspect.signature(plugin_class).parameters.items():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            found[name] = None if parameter.default is parameter.empty else parameter.default
    return found


def _whole_numbers(plugin_class: type) -> set[str]:
    """The parameters of a dataclass that are declared to be whole numbers."""
    if not dataclasses.is_dataclass(plugin_class):
        return set()
    return {f.name for f in dataclasses.fields(plugin_class) if f.init and f.type in (int, "int")}


def _default_of(field: dataclasses.Field[Any]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _class_of(kind: str, shipped: Mapping[str, type], base: type, name: str, field: str) -> type:
    if name in shipped:
        return shipped[name]
    if ":" not in name:
        problem = f"unknown {kind} {name!r}{nearest(name, shipped)}"
        raise InputError(field, f"{problem}; known: {', '.join(shipped)}; or name your own as my_module:MyPolicy")
    module_name, _, class_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InputError(field, f"cannot import {module_name!r}: {error}") from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type) or not issubclass(found, base):
        raise InputError(field, f"{name!r} is not a subclass of {base.__name__}")
    return found
