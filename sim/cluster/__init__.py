"""Many replicas on one clock: admission, flow control, routing, snapshots. Policies are small classes."""

from sim.cluster.flow_control import FlowControlPolicy
from sim.cluster.policies import (
    AdmissionPolicy,
    DisaggregationPolicy,
    ReplicaView,
    ReplicaViews,
    RequestView,
    RoutingPolicy,
)
from sim.cluster.registry import check_policy, make_policy, policy_class, policy_defaults, policy_names

__all__ = [
    "AdmissionPolicy",
    "DisaggregationPolicy",
    "FlowControlPolicy",
    "ReplicaView",
    "ReplicaViews",
    "RequestView",
    "RoutingPolicy",
    "check_policy",
    "make_policy",
    "policy_class",
    "policy_defaults",
    "policy_names",
]
