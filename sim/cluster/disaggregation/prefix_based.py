"""llm-d's prefix-based-pd-decider: a prompt is prefilled elsewhere if enough of it is not cached where it decodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from sim.cluster.policies import DisaggregationPolicy, ReplicaViews, RequestView
from sim.cluster.prefix_index import ApproximateIndex, PrefixIndex, make_index


@dataclass(slots=True)
class PrefixBased(DisaggregationPolicy):
    """A request of which `non_cached_tokens` prompt tokens or more are not believed cached at its decode replica; none
    if that is 0, as in llm-d. `prefix_index` is approximate or precise, as in routing policy `weighted`.
    """

    non_cached_tokens: int = field(kw_only=True)
    prefix_index: Any = field(default="approximate", kw_only=True)
    reads_replicas: ClassVar[bool] = False  # of what is scraped, nothing
    _index: PrefixIndex = field(default_factory=ApproximateIndex, init=False)

    def __post_init__(self) -> None:
        self._index = make_index(self.prefix_index, "prefix_index")

    def disaggregate(self, request: RequestView, replicas: ReplicaViews, chosen: int, now_s: float) -> bool:
        tokens, _ = self._index.matches(request, replicas)
        self._index.routed(request, chosen)
        return 0 < self.non_cached_tokens <= request.prompt_tokens - tokens[chosen]
