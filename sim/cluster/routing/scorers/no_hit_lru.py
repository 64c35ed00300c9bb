"""llm-d's no-hit-lru-scorer: prompts that nobody has cached are spread over the replicas in turn."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import ClassVar

from sim.cluster.routing.candidates import Candidates, Scorer


@dataclass(slots=True)
class NoHitLruScorer(Scorer):
    """0.5 for all where any has a hit. Else the i-th that never got a cold prompt 1 - i / (N - 1), and then the others,
    least recently used first.
    """

    lru_size: int = 1024
    reads_prefix: ClassVar[bool] = True
    _used: OrderedDict[int, None] = field(default_factory=OrderedDict, init=False)
    _by_rank: list[float] = field(default_factory=list, init=False)

    def scores(self, candidates: Candidates) -> list[float]:
        ids = candidates.ids
        if any(candidates.prefix_tokens):
            return [0.5] * len(ids)
        if len(ids) == 1:
            return [1.0]
        here, used = set(ids), self._used
        ranked = [i for i in used if i in here]
        if len(ranked) < len(ids):
            ranked = [i for i in ids if i not in used] + ranked
        if len(self._by_rank) != len(ids):
            self._by_rank = [1.0 - rank / (len(ids) - 1) for rank in range(len(ids))]
        score = dict(zip(ranked, self._by_rank, strict=True))
        return list(map(score.__getitem__, ids))

    def routed(self, candidates: Candidates, chosen: int) -> None:
        if any(candidates.prefix_tokens):
            return
        self._used[chosen] = None
        self._used.move_to_end(chosen)
        if len(self._used) > max(1, self.lru_size):
            self._used.popitem(last=False)
