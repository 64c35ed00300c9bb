"""The simulations of a search: each candidate once, and none that a twin or an earlier search speaks for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from planner.evaluate import Evaluator, Outcome, Trial
from planner.executors import Executor
from planner.interrupts import Interrupts
from planner.parameters import Parameters
from planner.search.surroundings import Reuse
from planner.search.twins import Twins, speaks_for_twins


class Simulations:
    """Simulates candidates on `executor`, and counts what that took."""

    def __init__(
        self, evaluator: Evaluator, executor: Executor, interrupts: Interrupts, twins: Twins, reuse: Reuse | None
    ) -> None:
        self._evaluator = evaluator
        self._executor = executor
        self._interrupts = interrupts
        self._reuse = reuse
        self.twins = twins
        self.may_stop = False  # once they are hopeless
        self.later = 0  # evaluations that are expected after those asked for now
        self.run = 0  # neither taken over nor known from a twin
        self.reused = 0  # by an earlier search
        self.trials_run = self.trial_requests = 0  # windows, other seeds, rates

    @property
    def workers(self) -> int:
        """Simulations at a time."""
        return self._executor.workers

    def outcomes(self, todo: dict[str, Parameters]) -> Iterator[tuple[str, Outcome]]:
        """(id, outcome) of each candidate as it ends; of twins one is simulated first, for it may speak for all."""
        first: dict[str, Parameters] = {}
        others: dict[str, list[str]] = {}  # of the first of twins -> the others
        leader: dict[str, str] = {}
        for plan, parameters in todo.items():
            outcome = self.twins.outcome(parameters)
            if outcome is not None and (self.may_stop or outcome.stopped is None):
                yield plan, outcome
                continue
            head = leader.setdefault(self.twins.key(parameters), plan)
            if head == plan:
                first[plan] = parameters
            else:
                others.setdefault(head, []).append(plan)
        for plan, outcome in self._simulated(first):
            yield plan, outcome
            if self.twins.learn(todo[plan], outcome):
                yield from ((other, outcome) for other in others.pop(plan, []))
        yield from self._simulated({other: todo[other] for rest in others.values() for other in rest})

    def trials(self, trials: Mapping[str, Trial]) -> dict[str, Outcome]:
        """The outcomes of trials, by plan id."""
        return dict(self._simulated(trials))

    def probe(self, candidates: Mapping[str, Parameters | Trial]) -> dict[str, Outcome]:
        """The outcomes of candidates or trials, by plan id; of twins, one is simulated where it speaks for all."""
        first: dict[tuple[str, Any], str] = {}
        leader = {}
        for plan, candidate in candidates.items():
            trial = candidate if isinstance(candidate, Trial) else Trial(candidate)
            what = dataclasses.astuple(dataclasses.replace(trial, parameters={}))[1:]
            leader[plan] = first.setdefault((self.twins.key(trial.parameters), what), plan)
        found = dict(self._simulated({plan: candidates[plan] for plan in first.values()}))
        alone = [p for p, head in leader.items() if p != head and not speaks_for_twins(found[head])]
        found |= self._simulated({plan: candidates[plan] for plan in alone})
        return {plan: found[plan] if plan in found else found[head] for plan, head in leader.items()}

    def _simulated(self, todo: Mapping[str, Parameters | Trial]) -> Iterator[tuple[str, Outcome]]:
        if not todo:
            return
        reused = self._reuse.get(todo, self.may_stop) if self._reuse is not None else {}
        self.reused += len(reused)
        yield from reused.items()
        ids = [plan for plan in todo if plan not in reused]
        if not ids:
            return
        outcomes = self._executor.run([self._sent(todo[plan]) for plan in ids], len(ids) + self.later)
        while True:
            with self._interrupts.allowed():
                item = next(outcomes, None)
            if item is None:
                return
            plan, outcome = ids[item[0]], item[1]
            self._count(todo[plan])
            if self._reuse is not None:
                self._reuse.put(todo[plan], outcome, self.may_stop)
            yield plan, outcome

    def _count(self, candidate: Parameters | Trial) -> None:
        if isinstance(candidate, Trial):
            self.trials_run += 1
            self.trial_requests += candidate.requests or len(self._evaluator.workload)
        else:
            self.run += 1

    def _sent(self, candidate: Parameters | Trial) -> Parameters | Trial:
        """A candidate as the evaluator gets it."""
        if self.may_stop and not isinstance(candidate, Trial):
            return Trial(candidate, may_stop=True)
        return candidate
