"""Scorers of the `weighted` routing policy, one file each, by llm-d's names; `SCORERS` lists them."""

from sim.cluster.routing.candidates import Scorer
from sim.cluster.routing.scorers.active_request import ActiveRequestScorer
from sim.cluster.routing.scorers.kv_cache_utilization import KVCacheUtilizationScorer
from sim.cluster.routing.scorers.load_aware import LoadAwareScorer
from sim.cluster.routing.scorers.no_hit_lru import NoHitLruScorer
from sim.cluster.routing.scorers.prefix_cache import PrefixCacheScorer
from sim.cluster.routing.scorers.queue import QueueScorer
from sim.cluster.routing.scorers.running_requests import RunningRequestsScorer
from sim.cluster.routing.scorers.session_affinity import SessionAffinityScorer
from sim.cluster.routing.scorers.token_load import TokenLoadScorer

SCORERS: dict[str, type[Scorer]] = {
    "queue-scorer": QueueScorer,
    "running-requests-size-scorer": RunningRequestsScorer,
    "kv-cache-utilization-scorer": KVCacheUtilizationScorer,
    "load-aware-scorer": LoadAwareScorer,
    "active-request-scorer": ActiveRequestScorer,
    "token-load-scorer": TokenLoadScorer,
    "prefix-cache-scorer": PrefixCacheScorer,
    "no-hit-lru-scorer": NoHitLruScorer,
    "session-affinity-scorer": SessionAffinityScorer,
}
