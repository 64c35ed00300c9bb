"""What an exporter gets and gives: one simulated plan in, the text of its files out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from planner.parameters import policy_name, prefill_parameters
from sim.catalog import load_gpu
from sim.errors import InputError
from sim.text_files import expanded, is_there

if TYPE_CHECKING:
    from planner.plan import Plan
    from sim.catalog import ModelSpec
    from sim.workload import Workload, WorkloadSpec


@dataclass(frozen=True)
class SimulatedPlan:
    """A plan of a run, with what its simulation said."""

    id: str
    rank: int  # 1: the recommended one
    run_name: str
    plan: Plan
    metrics: Mapping[str, float]
    text: str  # of its plan.yaml

    @property
    def deployment(self) -> dict[str, Any]:
        """Every deployment parameter, resolved."""
        return self.plan.deployment

    @cached_property
    def model(self) -> ModelSpec:
        """The plan's model."""
        from planner.evaluate import load_named_model

        return load_named_model(self.plan.model, self.plan.folder)

    @property
    def served_model(self) -> str:
        """What ``vllm serve`` loads: the repository's id, or the folder of the user's config.json."""
        path = self.plan.folder / expanded(self.plan.model)
        if not is_there(path):
            return self.model.name
        return str((path if path.is_dir() else path.parent).resolve())

    @cached_property
    def workload_spec(self) -> WorkloadSpec:
        """The plan's workload, checked."""
        from sim.workload import parse_workload

        return parse_workload(self.plan.workload)

    @cached_property
    def workload(self) -> Workload:
        """The plan's requests, the same as in its simulation."""
        from planner.plan import make_workload

        return make_workload(self.plan.workload, self.plan.folder, self.plan.seed)

    @cached_property
    def max_model_len(self) -> int:
        """The simulated context length: the plan's, or the model's cut to what the KV cache holds."""
        given = self.deployment["max_model_len"]
        if given is not None:
            return int(given)
        from planner.evaluate import priced_gpus
        from planner.parameters import to_deployment
        from sim.memory import kv_capacity

        gpus = priced_gpus((self.deployment["gpu"],), self.plan.prices)
        return kv_capacity(to_deployment(self.deployment, self.model, gpus)).max_model_len

    @property
    def gpus_per_node(self) -> int:
        """GPUs of one machine."""
        return load_gpu(self.deployment["gpu"]).max_gpus_per_node

    @property
    def prefill_pool(self) -> SimulatedPlan | None:
        """The plan's prefill pool, as if it were all of it; None if it has none."""
        if not self.deployment["prefill_replicas"]:
            return None
        return replace(self, plan=replace(self.plan, deployment=prefill_parameters(self.deployment)))

    def must_be_one_pool(self, target: str) -> None:
        """Raises InputError if the plan has a prefill pool, between which and the decode pool something must route."""
        if self.deployment["prefill_replicas"]:
            raise self.refuse("prefill_replicas", f"{target} routes between no pools; the target llm-d does")

    def policy(self, kind: str) -> str:
        """The name of the plan's policy of that kind (scheduling, preemption, routing, admission)."""
        return policy_name(self.deployment[kind])

    def policy_parameters(self, kind: str) -> dict[str, Any]:
        """The parameters that the plan gives to its policy of that kind."""
        value = self.deployment[kind]
        return {key: item for key, item in value.items() if key != "name"} if isinstance(value, Mapping) else {}

    def refuse(self, parameter: str, reason: str) -> InputError:
        """The error that says why this plan cannot be exported; `parameter` is the one without a counterpart."""
        return InputError(f"plan {self.id}: deployment.{parameter}", reason)


class Exporter:
    """Writes a plan down for one target. A target is a subclass in a file of its own, named in `TARGETS`."""

    name: str

    def files(self, plan: SimulatedPlan) -> dict[str, str]:
        """The files of `plan` by name; those that end in .sh are made executable.

        Raises InputError where the plan uses what the target does not have.
        """
        raise NotImplementedError

    def together(self, plans: Sequence[SimulatedPlan]) -> dict[str, str]:
        """Files about all the exported plans, which come to lie above their folders; most targets have none."""
        return {}
