"""Candidates that turn out to be the same: what a run never used cannot have mattered to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from planner.evaluate import Outcome
from planner.parameters import Parameters, content_id, policy_name

if TYPE_CHECKING:
    from sim.workload import Workload


class Twins:
    """Finds candidates that differ only in policies that never had a say, and the outcomes that hold for all of them.

    A policy that chooses whom to preempt is never asked in a run without preemptions. And a scheduling policy to
    which all requests look alike (`alike`: shortest first, where all prompts are equally long) admits them in order of
    arrival, as `fcfs` does, as long as none is preempted and queues again. So one run without preemptions gives, bit
    for bit, the outcome of the same candidate with any other preemption policy and, without a
    prefill pool, tiers and flow control, any of these scheduling policies.
    """

    def __init__(self, alike: Collection[str] = ()) -> None:
        self._alike = frozenset(alike)
        self._outcomes: dict[str, Outcome] = {}

    def key(self, parameters: Mapping[str, Any]) -> str:
        """Equal for twins, and only for them."""
        shared = {name: value for name, value in parameters.items() if name != "preemption"}
        # What waits for its KV to come over is served apart, and flow control may send two requests on at one moment:
        # the order in which they came may then not be that of keys.
        plain = all(policy_name(shared[kind]) == "none" for kind in ("flow_control", "kv_offload"))
        if shared["scheduling"] in self._alike and plain and not shared["prefill_replicas"]:
            shared["scheduling"] = "fcfs"
        return content_id(shared)

    def learn(self, parameters: Parameters, outcome: Outcome) -> bool:
        """Remember an outcome if it holds for the candidate's twins too; whether it does."""
        holds = speaks_for_twins(outcome)
        if holds:
            self._outcomes[self.key(parameters)] = outcome
        return holds

    def outcome(self, parameters: Parameters) -> Outcome | None:
        """The outcome of a twin that holds for this candidate too, if there is one."""
        return self._outcomes.get(self.key(parameters))


def speaks_for_twins(outcome: Outcome) -> bool:
    """Whether the outcome of one candidate is that of its twins too."""
    seen = outcome.metrics if outcome.stopped is None else outcome.stopped.bounds
    return outcome.failed is None and (outcome.refused is not None or seen.get("preemptions") == 0)


def alike_schedulings(workload: Workload) -> set[str]:
    """The scheduling policies, beside fcfs, to which every request of `workload` looks like every other."""
    alike = set()
    if len(workload) and (workload.prompt_tokens == workload.prompt_tokens[0]).all():
        alike.add("sjf")
    if workload.priority is None or (workload.priority == workload.priority[0]).all():
        alike.add("priority")
    return alike
