"""Where the prefixes of prompts were found: in the GPU's memory, or in which of the tiers below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.engine.replica import Replica


def tier_names(replicas: Sequence[Replica]) -> list[str]:
    """The tiers of the replicas, nearest first."""
    return [] if replicas[0].tiers is None else [tier.name for tier in replicas[0].tiers.tiers]


def cache_sources(replicas: Sequence[Replica], hits: int, looked_up: int) -> dict[str, Any]:
    """Shares of the `looked_up` prompt tokens of these replicas, `hits` of which lay in the GPU's memory.

    `prefix_hit_rate` is of those, `tier_hit_rate` of those loaded from tiers; `cache_sources` has one share a place.
    """
    names = tier_names(replicas)
    tokens = [sum(replica.stats.tier_tokens[number] for replica in replicas) for number in range(len(names))]
    found = dict(zip(["gpu", *names], [hits, *tokens], strict=True))
    return {
        "prefix_hit_rate": hits / looked_up if looked_up else 0.0,
        "tier_hit_rate": sum(tokens) / looked_up if looked_up else 0.0,
        "cache_sources": {name: count / looked_up if looked_up else 0.0 for name, count in found.items()},
    }
