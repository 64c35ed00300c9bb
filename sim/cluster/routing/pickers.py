"""Pickers of the `weighted` routing policy: from the scores to the replica, by llm-d's names."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from sim.cluster.routing.arithmetic import greatest

Picker = Callable[[list[float], Random], int]
"""Takes the candidates' scores and a random stream; returns the position of the one that is picked."""


def max_score(scores: list[float], random: Random) -> int:
    """The greatest score; ties are drawn uniformly."""
    return random.choice(greatest(scores))


def any_of(scores: list[float], random: Random) -> int:
    """Any, whatever its score."""
    return random.randrange(len(scores))


def weighted_random(scores: list[float], random: Random) -> int:
    """Drawn in proportion to the scores: the greatest key U^(1 / score); any of them if all scores are 0."""
    keys = [random.random() ** (1.0 / score) if score > 0 else -random.random() for score in scores]
    return keys.index(max(keys))


PICKERS: dict[str, Picker] = {
    "max-score-picker": max_score,
    "random-picker": any_of,
    "weighted-random-picker": weighted_random,
}
