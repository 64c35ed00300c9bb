"""What a search has around it: who watches, who keeps, who knows; and what it leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from planner.evaluate import Outcome, Trial
from planner.parameters import Parameters

Evaluation = dict[str, Any]


@dataclass(slots=True)
class Progress:
    """How far a search is."""

    done: int = 0  # simulated, taken over from an earlier run, or found not to run
    stopped_early: int = 0  # of these, the simulations that were ended early
    refused: int = 0  # of these, the plans that no engine would start
    ruled_out: int = 0  # by their parameters or bounds alone
    expected: int | None = None  # simulations in all, where that is known; else the most there can be
    feasible: int = 0
    front: int = 0
    elapsed_s: float = 0.0
    workers: int = 1


class Keeper(Protocol):
    """Where evaluations go as they end."""

    def append(self, evaluations: Sequence[Evaluation]) -> None:
        """Keep them."""
        ...


class Reuse(Protocol):
    """What earlier searches found of the same candidates."""

    def get(self, candidates: Mapping[str, Parameters | Trial], may_stop: bool) -> dict[str, Outcome]:
        """The outcomes that are known, by plan id; `may_stop`: as of a search that ends hopeless simulations early."""
        ...

    def put(self, candidate: Parameters | Trial, outcome: Outcome, may_stop: bool) -> None:
        """Keep an outcome for later searches."""
        ...


@dataclass(slots=True)
class Found:
    """What a search found: evaluations in the order asked for, and whether it saw all there is."""

    evaluations: list[Evaluation]
    exact: bool
    interrupted: bool
    method: str
