"""Many replicas on one clock: admission, routing, snapshots. Policies are small classes that a user can bring too."""

from sim.cluster.policies import AdmissionPolicy, ReplicaView, RequestView, RoutingPolicy
from sim.cluster.registry import check_policy, make_policy, policy_names

__all__ = [
    "AdmissionPolicy",
    "ReplicaView",
    "RequestView",
    "RoutingPolicy",
    "check_policy",
    "make_policy",
    "policy_names",
]
