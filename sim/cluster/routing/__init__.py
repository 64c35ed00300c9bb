"""Routing policies, one file each; `ROUTING` names them."""

from sim.cluster.policies import RoutingPolicy
from sim.cluster.routing.least_loaded import LeastLoaded
from sim.cluster.routing.random_choice import RandomChoice
from sim.cluster.routing.round_robin import RoundRobin
from sim.cluster.routing.weighted import Weighted

ROUTING: dict[str, type[RoutingPolicy]] = {
    "round-robin": RoundRobin,
    "random": RandomChoice,
    "least-loaded": LeastLoaded,
    "weighted": Weighted,
}
