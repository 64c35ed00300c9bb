"""A weighted sum of scores, as llm-d's default scheduling profile: queue, KV-cache usage, prefix cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.cluster.policies import ReplicaView, RequestView, RoutingPolicy
from sim.cluster.prefix_index import PrefixIndex


@dataclass(slots=True)
class Weighted(RoutingPolicy):
    """The greatest `queue` x queue score + `kv` x KV score + `prefix` x prefix score; ties are drawn at random.

    Queue score: (max waiting - waiting) / (max - min), 1 if all are equal. KV score: 1 - usage. Prefix score: the
    share of the prompt that the router believes cached there. Weights default to llm-d's.
    """

    queue: float = 2.0
    kv: float = 2.0
    prefix: float = 3.0
    _index: PrefixIndex | None = field(default=None, init=False)

    def route(self, request: RequestView, replicas: Sequence[ReplicaView], now_s: float) -> int:
        waiting = [replica.waiting for replica in replicas]
        longest, spread = max(waiting), max(waiting) - min(waiting)
        scores = [
            self.queue * ((longest - replica.waiting) / spread if spread else 1.0)
            + self.kv * (1.0 - min(1.0, replica.kv_usage))
            for replica in replicas
        ]
        if self.prefix:
            if self._index is None:
                self._index = PrefixIndex([replica.num_blocks for replica in replicas])
            matches = self._index.matches(request)
            scores = [score + self.prefix * match for score, match in zip(scores, matches, strict=True)]
        best = max(scores)
        chosen = self.random.choice([i for i, score in enumerate(scores) if score == best])
        if self._index is not None:
            self._index.routed(request, chosen)
        return chosen
