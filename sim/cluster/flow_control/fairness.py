"""Which flow (tenant) of a band is next, by llm-d's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sim.cluster.plugins import make_plugin, spec_of


class FairnessPolicy:
    """Chooses among the flows of a band. Subclass it to bring your own."""

    __slots__ = ()

    def choose(self, flows: Sequence[str], heads: Mapping[str, tuple[float, int]], last: str | None) -> str:
        """A flow of `heads`: those with a request waiting, with the (ordering key, number) of their first. `flows` are
        all there were, in order of their first request; `last` is the one chosen before.
        """
        raise NotImplementedError


class GlobalStrict(FairnessPolicy):
    """The first request of all, whosoever it is."""

    __slots__ = ()

    def choose(self, flows: Sequence[str], heads: Mapping[str, tuple[float, int]], last: str | None) -> str:
        return min(heads, key=heads.__getitem__)


class RoundRobinFairness(FairnessPolicy):
    """Each flow in turn."""

    __slots__ = ()

    def choose(self, flows: Sequence[str], heads: Mapping[str, tuple[float, int]], last: str | None) -> str:
        start = 0 if last is None else flows.index(last) + 1
        for offset in range(len(flows)):
            flow = flows[(start + offset) % len(flows)]
            if flow in heads:
                return flow
        raise ValueError("no flow has a request waiting")


FAIRNESS: dict[str, type[FairnessPolicy]] = {"global-strict": GlobalStrict, "round-robin": RoundRobinFairness}


def make_fairness(value: object, field: str) -> FairnessPolicy:
    """The fairness policy that a parameter names. Raises InputError."""
    found: FairnessPolicy = make_plugin("fairness policy", FAIRNESS, FairnessPolicy, spec_of(value, field), field)
    return found
