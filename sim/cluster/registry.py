"""Policies by name: the shipped ones, and a user's own as ``my_module:MyPolicy``."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import math
from typing import Any

from sim.cluster.admission import ADMISSION
from sim.cluster.policies import AdmissionPolicy, RoutingPolicy
from sim.cluster.routing import ROUTING
from sim.deployment import PolicySpec
from sim.engine.preemption import PreemptionPolicy, PreemptLast, PreemptLeastUrgent
from sim.engine.scheduling import Fcfs, PriorityScheduling, SchedulingPolicy, ShortestJobFirst
from sim.errors import InputError

_SHIPPED: dict[str, dict[str, type]] = {
    "scheduling": {"fcfs": Fcfs, "priority": PriorityScheduling, "sjf": ShortestJobFirst},
    "preemption": {"fcfs": PreemptLast, "priority": PreemptLeastUrgent},
    "routing": dict(ROUTING),
    "admission": dict(ADMISSION),
}
_BASES: dict[str, type] = {
    "scheduling": SchedulingPolicy,
    "preemption": PreemptionPolicy,
    "routing": RoutingPolicy,
    "admission": AdmissionPolicy,
}


def policy_names(kind: str) -> list[str]:
    """The shipped policies of a kind: scheduling, preemption, routing or admission."""
    return list(_SHIPPED[kind])


def check_policy(kind: str, spec: PolicySpec, field: str) -> None:
    """Raise InputError unless `spec` names a policy of `kind` and its parameters suit it."""
    make_policy(kind, spec, field)


def make_policy(kind: str, spec: PolicySpec, field: str) -> Any:
    """A fresh policy object. Raises InputError for an unknown name, class or parameter."""
    policy_class = _class_of(kind, spec.name, field)
    parameters = _parameters_of(policy_class)
    for name, value in spec.parameters.items():
        if name not in parameters:
            raise InputError(f"{field}.{name}", f"unknown parameter of {spec.name}{_nearest(name, list(parameters))}")
        _check_value(parameters[name], value, f"{field}.{name}")
    try:
        return policy_class(**spec.parameters)
    except Exception as error:
        raise InputError(field, f"{spec.name} cannot be made: {error}") from error


def _parameters_of(policy_class: type) -> dict[str, object]:
    """The constructor's parameters by name, with their defaults (None where there is none)."""
    if dataclasses.is_dataclass(policy_class) and "__init__" in vars(policy_class):
        return {
            f.name: None if f.default is dataclasses.MISSING else f.default
            for f in dataclasses.fields(policy_class)
            if f.init
        }
    found = {}
    for name, parameter in inspect.signature(policy_class).parameters.items():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            found[name] = None if parameter.default is parameter.empty else parameter.default
    return found


def _check_value(default: object, value: object, field: str) -> None:
    """Numbers must be finite and not negative where the default is a number."""
    if isinstance(default, bool) or not isinstance(default, int | float):
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InputError(field, f"must be a finite number of at least 0, got {value!r}")
    if value == 0 and field.endswith("_threshold"):
        raise InputError(field, "must be greater than 0")


def _class_of(kind: str, name: str, field: str) -> type:
    shipped = _SHIPPED[kind]
    if name in shipped:
        return shipped[name]
    if ":" not in name:
        raise InputError(
            field,
            f"unknown {kind} policy {name!r}{_nearest(name, list(shipped))}; or name your own as my_module:MyPolicy",
        )
    module_name, _, class_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InputError(field, f"cannot import {module_name!r}: {error}") from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type) or not issubclass(found, _BASES[kind]):
        raise InputError(field, f"{name!r} is not a subclass of {_BASES[kind].__name__}")
    return found


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(known)}" if known else "; it takes none"
