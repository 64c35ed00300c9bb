"""The kinds of policies that a deployment names, and the shipped ones of each."""

from __future__ import annotations

from typing import Any

from sim.cluster.admission import ADMISSION
from sim.cluster.disaggregation import DISAGGREGATION
from sim.cluster.flow_control import FLOW_CONTROL, FlowControlPolicy
from sim.cluster.plugins import make_plugin, parameters_of
from sim.cluster.policies import AdmissionPolicy, DisaggregationPolicy, RoutingPolicy
from sim.cluster.routing import ROUTING
from sim.deployment import PolicySpec
from sim.engine.preemption import PreemptionPolicy, PreemptLast, PreemptLeastUrgent
from sim.engine.scheduling import Fcfs, PriorityScheduling, SchedulingPolicy, ShortestJobFirst
from sim.offload import NoOffload, OffloadPolicy, TieredOffload

_SHIPPED: dict[str, dict[str, type]] = {
    "scheduling": {"fcfs": Fcfs, "priority": PriorityScheduling, "sjf": ShortestJobFirst},
    "preemption": {"fcfs": PreemptLast, "priority": PreemptLeastUrgent},
    "routing": dict(ROUTING),
    "admission": dict(ADMISSION),
    "flow_control": dict(FLOW_CONTROL),
    "kv_offload": {"none": NoOffload, "tiered": TieredOffload},
    "disaggregation": dict(DISAGGREGATION),
    "prefill_routing": dict(ROUTING),
}
_BASES: dict[str, type] = {
    "scheduling": SchedulingPolicy,
    "preemption": PreemptionPolicy,
    "routing": RoutingPolicy,
    "admission": AdmissionPolicy,
    "flow_control": FlowControlPolicy,
    "kv_offload": OffloadPolicy,
    "disaggregation": DisaggregationPolicy,
    "prefill_routing": RoutingPolicy,
}


def policy_names(kind: str) -> list[str]:
    """The shipped policies of a kind, which is a deployment's parameter: scheduling, routing and so on."""
    return list(_SHIPPED[kind])


def policy_class(kind: str, name: str) -> type:
    """The class of a shipped policy; its docstring says what it does."""
    return _SHIPPED[kind][name]


def policy_defaults(kind: str, name: str) -> dict[str, object]:
    """The parameters of a shipped policy with their defaults, None where there is none; empty for a user's own."""
    return parameters_of(_SHIPPED[kind][name]) if name in _SHIPPED[kind] else {}


def check_policy(kind: str, spec: PolicySpec, field: str) -> None:
    """Raise InputError unless `spec` names a policy of `kind` and its parameters suit it."""
    make_policy(kind, spec, field)


def make_policy(kind: str, spec: PolicySpec, field: str) -> Any:
    """A fresh policy object. Raises InputError for an unknown name, class or parameter."""
    return make_plugin(f"{kind} policy", _SHIPPED[kind], _BASES[kind], spec, field)
