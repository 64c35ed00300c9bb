"""llm-d's scheduling profile: filters, then a weighted sum of scores, then a picker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sim.cluster.plugins import check_value, make_plugin, spec_of
from sim.cluster.policies import ReplicaViews, RequestView, RoutingPolicy
from sim.cluster.prefix_index import PrefixIndex, make_index
from sim.cluster.routing.arithmetic import add_scores
from sim.cluster.routing.candidates import Candidates, Filter, Scorer
from sim.cluster.routing.pickers import PICKERS, Picker, max_score
from sim.cluster.routing.prefix_affinity import PrefixCacheAffinityFilter
from sim.cluster.routing.scorers import SCORERS
from sim.deployment import PolicySpec
from sim.errors import InputError

FILTERS: dict[str, type[Filter]] = {"prefix-cache-affinity-filter": PrefixCacheAffinityFilter}
_SHORT = {"queue": "queue-scorer", "kv": "kv-cache-utilization-scorer", "prefix": "prefix-cache-scorer"}


@dataclass(slots=True)
class Weighted(RoutingPolicy):
    """Sends a request where the weighted sum of scores is greatest; ties are drawn at random.

    `queue`, `kv` and `prefix` are the weights of llm-d's default scorers. `scorers` adds others, or gives those
    parameters: a mapping from a scorer's name to its weight, or to `weight` (1) and the scorer's parameters. `filter`
    is a filter or none, `prefix_index` approximate or precise.
    """

    queue: float = 2.0
    kv: float = 2.0
    prefix: float = 3.0
    scorers: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    picker: str = "max-score-picker"
    filter: Any = "none"
    prefix_index: Any = "approximate"
    _scraped: list[tuple[Scorer, float]] = field(default_factory=list, init=False)
    _live: list[tuple[Scorer, float]] = field(default_factory=list, init=False)
    _pick: Picker = field(default=max_score, init=False)
    _filter: Filter | None = field(default=None, init=False)
    _index: PrefixIndex | None = field(default=None, init=False)
    _sums: list[float] = field(default_factory=list, init=False)
    _ids: range = field(default=range(0), init=False)
    _at_scrape: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        weighted = {name: (getattr(self, short), PolicySpec(name)) for short, name in _SHORT.items()}
        if not isinstance(self.scorers, Mapping):
            raise InputError("scorers", f"must be a mapping from a scorer's name to its weight, got {self.scorers!r}")
        for name, given in self.scorers.items():
            weighted[name] = _weight_of(name, given, weighted.get(name, (1.0,))[0])
        for name, (weight, spec) in weighted.items():
            if weight > 0:
                scorer: Scorer = make_plugin("scorer", SCORERS, Scorer, spec, f"scorers.{name}")
                (self._scraped if scorer.scraped_only else self._live).append((scorer, weight))
        if self.picker not in PICKERS:
            raise InputError("picker", f"must be one of {', '.join(PICKERS)}, got {self.picker!r}")
        self._pick = PICKERS[self.picker]
        if self.filter != "none":
            self._filter = make_plugin("filter", FILTERS, Filter, spec_of(self.filter, "filter"), "filter")
        index = make_index(self.prefix_index, "prefix_index")
        reads_prefix = any(scorer.reads_prefix for scorer, _ in self._live)
        if reads_prefix or (self._filter is not None and self._filter.reads_prefix):
            self._index = index

    def route(self, request: RequestView, replicas: ReplicaViews, now_s: float) -> int:
        count = len(replicas)
        if len(self._ids) != count:
            self._ids = range(count)
        tokens, total = ([0] * count, 0) if self._index is None else self._index.matches(request, replicas)
        everybody = candidates = Candidates(request, replicas, self._ids, tokens, total)
        if self._filter is not None:
            kept = self._filter.keep(candidates)
            if len(kept) < count:
                candidates = candidates.only(kept)
        if candidates is everybody:
            if self._at_scrape != replicas.scrapes:
                self._at_scrape = replicas.scrapes
                self._sums = _add([0.0] * count, self._scraped, candidates)
            sums = self._sums
        else:
            sums = _add([0.0] * len(candidates.ids), self._scraped, candidates)
        chosen = candidates.ids[self._pick(_add(sums, self._live, candidates), self.random)]
        if self._index is not None:
            self._index.routed(request, chosen)
        for scorer, _ in self._live:
            scorer.routed(everybody, chosen)
        return chosen


def _add(sums: list[float], scorers: list[tuple[Scorer, float]], candidates: Candidates) -> list[float]:
    """`sums` with each scorer's clamped scores added by its weight."""
    for scorer, weight in scorers:
        scores = scorer.scores(candidates)
        sums = add_scores(sums, weight, scores if type(scores) is list else list(scores))
    return sums


def _weight_of(name: str, given: Any, default: float) -> tuple[float, PolicySpec]:
    """(weight, scorer) of an entry of `scorers`."""
    field_path, parameters = f"scorers.{name}", {}
    if isinstance(given, Mapping):
        parameters = {key: value for key, value in given.items() if key != "weight"}
        given, field_path = given.get("weight", default), f"{field_path}.weight"
    check_value(1.0, given, field_path)
    return float(given), PolicySpec(name, parameters)
