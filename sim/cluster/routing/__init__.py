"""Routing policies, one file each; `ROUTING` names them."""

from sim.cluster.policies import RoutingPolicy
from sim.cluster.routing.cache_aware import CacheAware
from sim.cluster.routing.least_loaded import LeastLoaded
from sim.cluster.routing.least_outstanding_tokens import LeastOutstandingTokens
from sim.cluster.routing.power_of_two import PowerOfTwo
from sim.cluster.routing.random_choice import RandomChoice
from sim.cluster.routing.round_robin import RoundRobin
from sim.cluster.routing.session_affinity import SessionAffinity
from sim.cluster.routing.vllm_dp import VllmDataParallel
from sim.cluster.routing.weighted import Weighted

ROUTING: dict[str, type[RoutingPolicy]] = {
    "round-robin": RoundRobin,
    "random": RandomChoice,
    "least-loaded": LeastLoaded,
    "least-outstanding-tokens": LeastOutstandingTokens,
    "power-of-two": PowerOfTwo,
    "session-affinity": SessionAffinity,
    "weighted": Weighted,
    "vllm-dp": VllmDataParallel,
    "cache-aware": CacheAware,
}
