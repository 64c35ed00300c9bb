"""Sums of the `weighted` routing policy over all candidates: what costs most in a large cluster, hence compiled."""

from __future__ import annotations


def add_scores(sums: list[float], weight: float, scores: list[float]) -> list[float]:
    """`sums` with `weight` times each score added, scores clamped to 0 to 1. Raises ValueError unless as many."""
    if len(scores) != len(sums):
        raise ValueError(f"a scorer gave {len(scores)} scores for {len(sums)} candidates")
    return [
        total + weight * (score if 0.0 <= score <= 1.0 else 1.0 if score > 1.0 else 0.0)
        for total, score in zip(sums, scores)  # noqa: B905, an argument `strict` is slow when compiled
    ]


def greatest(scores: list[float]) -> list[int]:
    """The positions of the greatest score, in order."""
    best = max(scores)
    return [position for position, score in enumerate(scores) if score == best]


def shares(parts: list[int], total: int) -> list[float]:
    """part / total of each."""
    whole = float(total)
    return [float(part) / whole for part in parts]


def busy_scores(counts: list[int], idle: float, most: int, scale: float) -> list[float]:
    """1 where the count is at most `idle`, else (most - count) x scale."""
    return [1.0 if float(count) <= idle else float(most - count) * scale for count in counts]


def token_scores(in_flight: list[int], cached: list[int], prompt_tokens: int, limit: float) -> list[float]:
    """1 - min(x, limit) / limit, x = tokens in flight + those of the prompt that are not cached."""
    return [
        1.0 - float(there + prompt_tokens - held) / limit if float(there + prompt_tokens - held) < limit else 0.0
        for there, held in zip(in_flight, cached)  # noqa: B905, as above
    ]
