"""One plan: a model, a workload and a deployment, as plan.yaml holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from planner.documents import apply_overrides, check_keys, check_number, describe, load_document
from planner.goals import Constraint, check_classes, parse_constraints, request_slo
from planner.parameters import Parameters, check_parameter, resolve, to_deployment
from planner.policy_path import find_policies, policy_folder
from sim.errors import InputError
from sim.text_files import expanded, is_there

if TYPE_CHECKING:
    from sim.result import Result
    from sim.workload import Workload

KEYS = ("model", "workload", "deployment", "seed", "slo", "prices", "coefficients", "policy_folder")


@dataclass(frozen=True, slots=True)
class Plan:
    """What plan.yaml says: everything that a simulation needs to give the same numbers again."""

    model: str
    workload: dict[str, Any]
    deployment: Parameters  # every parameter, resolved
    seed: int = 0
    slo: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    prices: dict[str, float] = field(default_factory=dict)  # dollars per GPU-hour, where not the catalog's
    coefficients: str | None = None  # a coefficient set's name or path; None: the shipped one
    folder: Path = Path()  # what relative paths are relative to


def load_plan(path: Path, overrides: Sequence[str] = ()) -> Plan:
    """The plan in file `path`, with ``path=value`` overrides applied first. Raises InputError."""
    document = load_document(path)
    apply_overrides(document, overrides)
    return parse_plan(document, path.parent)


def parse_plan(document: Mapping[str, Any], folder: Path) -> Plan:
    """The plan that `document` describes. Raises InputError naming the field."""
    check_keys(document, KEYS)
    for key in ("model", "workload", "deployment"):
        if key not in document:
            raise InputError(key, "is missing")
    for key in ("workload", "deployment", "prices"):
        if not isinstance(document.get(key, {}), Mapping):
            raise InputError(key, f"must be a mapping, got {describe(document[key])}")
    for key in ("model", "coefficients", "policy_folder"):
        if not isinstance(document.get(key, ""), str):
            raise InputError(key, f"must be a name or a path, got {describe(document[key])}")
    slo = document.get("slo", [])
    if not isinstance(slo, list):
        raise InputError("slo", f"must be a list of constraints, got {describe(slo)}")
    if "policy_folder" in document:
        find_policies(folder / expanded(document["policy_folder"]))
    return Plan(
        model=document["model"],
        workload=dict(document["workload"]),
        deployment=resolve(document["deployment"]),
        seed=check_number(document.get("seed", 0), "seed", whole=True, minimum=0, maximum=2**63 - 1),
        slo=tuple(slo),
        constraints=parse_constraints(slo),
        prices=check_prices(document.get("prices", {})),
        coefficients=document.get("coefficients"),
        folder=folder,
    )


def check_prices(prices: Mapping[str, Any]) -> dict[str, float]:
    """Dollars per GPU-hour by the catalog's name of the GPU. Raises InputError."""
    checked: dict[str, float] = {}
    for name, price in prices.items():
        gpu = check_parameter("gpu", name, f"prices.{name}")
        if gpu in checked:
            raise InputError(f"prices.{name}", f"{gpu} has a price already")
        checked[gpu] = float(check_number(price, f"prices.{name}", minimum=0))
    return checked


def dump_plan(plan: Plan) -> str:
    """The text of plan.yaml. Paths become absolute, so that the file may lie anywhere."""
    gpu = plan.deployment["gpu"]
    document: dict[str, Any] = {
        "model": _anchored_model(plan.model, plan.folder),
        "workload": _anchored_workload(plan.workload, plan.folder),
        "deployment": plan.deployment,
        "seed": plan.seed,
    }
    if plan.slo:
        document["slo"] = list(plan.slo)
    if gpu in plan.prices:
        document["prices"] = {gpu: plan.prices[gpu]}
    if plan.coefficients is not None:
        document["coefficients"] = _anchored_model(plan.coefficients, plan.folder)
    own_policies = policy_folder(plan.deployment)
    if own_policies is not None:
        document["policy_folder"] = str(own_policies)
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Writes what is shared in full rather than as an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def anchored(name: str, folder: Path) -> str:
    """`name` as a path relative to `folder`, if there is such a file; else `name` itself, to be found in a catalog."""
    path = folder / expanded(name)
    return str(path) if is_there(path) else name


def _anchored_model(name: str, folder: Path) -> str:
    found = anchored(name, folder)
    return found if found == name else str(Path(found).resolve())


def _anchored_workload(workload: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """`workload` with the path of every trace, its clients' included, made absolute."""
    absolute = dict(workload)
    if isinstance(absolute.get("trace"), str):
        absolute["trace"] = str((folder / absolute["trace"]).resolve())
    if isinstance(absolute.get("clients"), list):
        absolute["clients"] = [
            _anchored_workload(client, folder) if isinstance(client, Mapping) else client
            for client in absolute["clients"]
        ]
    return absolute


def make_workload(workload: Mapping[str, Any], folder: Path, seed: int) -> Workload:
    """The requests of a `workload` section; its traces are looked up from `folder`. Raises InputError."""
    from sim.workload import build_workload, parse_workload

    return build_workload(parse_workload(workload), seed, folder)


def classes_of(workload: Workload) -> set[str]:
    """The SLO classes that requests of `workload` have; none where it names no classes."""
    if workload.slo_class is None:
        return set()
    return {workload.slo_classes[number] for number in set(workload.slo_class.tolist())}


def simulate_plan(plan: Plan, *, sampled: bool = False) -> Result:
    """Simulate `plan`, `sampled` for its replicas over time. Raises InputError, DoesNotFit included."""
    from planner.evaluate import load_coefficient_set, load_named_model, priced_gpus
    from sim.simulate import simulate

    gpu = plan.deployment["gpu"]
    workload = make_workload(plan.workload, plan.folder, plan.seed)
    check_classes(plan.constraints, (), classes_of(workload))
    model = load_named_model(plan.model, plan.folder)
    deployment = to_deployment(plan.deployment, model, priced_gpus((gpu,), plan.prices))
    return simulate(
        deployment,
        workload,
        plan.seed,
        coefficients=load_coefficient_set(plan.coefficients, plan.folder),
        request_slo=request_slo(plan.constraints) or None,
        sampled=sampled,
    )
