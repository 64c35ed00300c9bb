"""Cache-aware routing in the manner of SGLang's router: by prefix while the load is balanced, else by load."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.cluster.plugins import must_be_positive
from sim.cluster.policies import ReplicaViews, RequestView, RoutingPolicy
from sim.cluster.prefix_index import BelievedCaches


@dataclass(slots=True)
class CacheAware(RoutingPolicy):
    """The least loaded (requests in flight) while the loads differ by more than `balance_abs_threshold` and by more
    than a factor of `balance_rel_threshold`. Else the replica that was sent the longest prefix of the prompt, if that
    is more than `cache_threshold` of it; else the one that was sent the fewest distinct tokens. The router's tree
    remembers `max_tree_tokens` a replica, token by token.
    """

    cache_threshold: float = 0.5
    balance_abs_threshold: float = 64.0
    balance_rel_threshold: float = 1.5
    max_tree_tokens: int = 16_777_216
    _tree: BelievedCaches | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        must_be_positive(self, "max_tree_tokens")

    def route(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> int:
        if self._tree is None:
            self._tree = BelievedCaches([int(self.max_tree_tokens)] * len(replicas), 1)
        loads = [replica.in_flight for replica in replicas]
        least, most = min(loads), max(loads)
        if most - least > self.balance_abs_threshold and most > least * self.balance_rel_threshold:
            chosen = loads.index(least)
        else:
            chosen = self._by_prefix(request, self._tree)
        self._tree.touch(request.content, request.prompt_tokens, chosen)
        return chosen

    def _by_prefix(self, request: RequestView, tree: BelievedCaches) -> int:
        matched, total = tree.matches(request.content, request.prompt_tokens)
        if matched:
            best = max(matched, key=lambda replica: (matched[replica], -replica))
            if matched[best] > self.cache_threshold * total:
                return best
        return tree.entries.index(min(tree.entries))
