"""NSGA-II (Deb et al. 2002) over mixed variables, by pymoo: ordered ones as integers, the others as choices."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from planner.search._base import Choice, Costs

WORST = 1e30  # for what has no value; finite, since pymoo's crowding distances divide by the range
ENUMERABLE = 1_000_000  # spaces up to here are listed when draws no longer find what was not asked for


class NSGA2:
    """Constraint-dominated NSGA-II; a generation is one `ask`. The same seed asks for the same combinations.

    A generation that would bring nothing new is replaced by combinations drawn at random from those not asked for yet,
    so that a population that has converged still spends its budget.
    """

    name = "nsga2"
    learns_from_violations = True

    def __init__(
        self, shape: Sequence[int], ordered: Sequence[bool], objectives: int, seed: int, population: int
    ) -> None:
        self._shape = tuple(shape)
        self._size = math.prod(shape)
        self._population = population
        self._random = random.Random(seed)
        self._problem = _problem(shape, ordered, objectives)
        self._algorithm = self._make_algorithm(population, objectives)
        self._algorithm.setup(self._problem, seed=seed % 2**32, verbose=False)
        self._seen: set[Choice] = set()
        self._asked: Any = None

    def _make_algorithm(self, population: int, objectives: int) -> Any:
        from pymoo.algorithms.moo.nsga2 import NSGA2 as PymooNSGA2
        from pymoo.algorithms.moo.nsga2 import binary_tournament

        return PymooNSGA2(**mixed_operators(population, binary_tournament))

    def ask(self) -> list[Choice]:
        """The next generation; empty once every combination was asked for."""
        if len(self._seen) == self._size:
            return []
        self._asked = self._algorithm.ask()
        choices = [] if self._asked is None else [self._choice(x) for x in self._asked.get("X")]
        if not set(choices) - self._seen:
            choices = self._immigrants()
            self._asked = _population(choices)
        self._seen.update(choices)
        return choices

    def _choice(self, x: dict[str, Any]) -> Choice:
        return tuple(int(x[f"x{i}"]) for i in range(len(self._shape)))

    def _immigrants(self) -> list[Choice]:
        """Up to a population of random combinations that were not asked for."""
        drawn: dict[Choice, None] = {}
        for _ in range(50 * self._population):
            choice = tuple(self._random.randrange(count) for count in self._shape)
            if choice not in self._seen:
                drawn[choice] = None
            if len(drawn) == self._population:
                break
        if not drawn and self._size <= ENUMERABLE:
            every = itertools.product(*(range(count) for count in self._shape))
            drawn = dict.fromkeys(itertools.islice((c for c in every if c not in self._seen), self._population))
        return list(drawn)

    def tell(self, choices: Sequence[Choice], costs: Costs, violations: Costs) -> None:
        """Select the survivors of this generation and the last."""
        from pymoo.core.evaluator import Evaluator
        from pymoo.problems.static import StaticProblem

        finite = np.nan_to_num(costs, nan=WORST, posinf=WORST, neginf=-WORST)
        excess = np.nan_to_num(violations, nan=WORST, posinf=WORST)
        static = StaticProblem(self._problem, F=finite, G=excess[:, None])
        Evaluator().eval(static, self._asked)
        self._algorithm.tell(infills=self._asked)


def _problem(shape: Sequence[int], ordered: Sequence[bool], objectives: int) -> Any:
    from pymoo.core.problem import Problem
    from pymoo.core.variable import Choice as ChoiceVariable
    from pymoo.core.variable import Integer

    variables = {
        f"x{i}": Integer(bounds=(0, count - 1)) if is_ordered and count > 1 else ChoiceVariable(options=range(count))
        for i, (count, is_ordered) in enumerate(zip(shape, ordered, strict=True))
    }
    return Problem(vars=variables, n_obj=objectives, n_ieq_constr=1)


def _population(choices: Sequence[Choice]) -> Any:
    from pymoo.core.population import Population

    return Population.new(X=np.array([{f"x{i}": v for i, v in enumerate(c)} for c in choices], dtype=object))


def mixed_operators(population: int, tournament: Any) -> dict[str, Any]:
    """pymoo's operators for integers and choices together, for an algorithm of `population` individuals."""
    from pymoo.config import Config

    Config.warnings["not_compiled"] = False
    from pymoo.core.mixed import (
        MixedVariableDuplicateElimination,
        MixedVariableMating,
        MixedVariableSampling,
    )
    from pymoo.core.termination import NoTermination
    from pymoo.operators.selection.tournament import TournamentSelection

    distinct = MixedVariableDuplicateElimination()
    return {
        "pop_size": population,
        "sampling": MixedVariableSampling(),
        "mating": MixedVariableMating(
            selection=TournamentSelection(func_comp=tournament), eliminate_duplicates=distinct
        ),
        "eliminate_duplicates": distinct,
        "termination": NoTermination(),
    }
