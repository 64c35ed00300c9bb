"""Any plan of a run, front or not, as something that can be simulated again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.parameters import resolve
from planner.plan import Plan, check_prices, load_plan, parse_plan
from sim.errors import InputError
from sim.names import nearest

if TYPE_CHECKING:
    from planner.space import Space
    from planner.store import Run


def evaluation_of(run: Run, plan_id: str, field: str = "PLAN") -> dict[str, Any]:
    """The evaluation of a plan by its id. Raises InputError on `field` for one that the run does not have."""
    by_id = run.by_id()
    if plan_id not in by_id:
        raise InputError(field, f"the run has no plan {plan_id!r}{nearest(plan_id, tuple(by_id))}")
    return by_id[plan_id]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A plan that a path led to: a plan.yaml, or a run directory, whose recommended plan it is then."""

    plan: Plan
    name: str
    metrics: Mapping[str, float]  # that the search found; empty for a plan.yaml
    asked: tuple[str, ...]  # metrics that objectives and constraints are about


def plan_at(path: Path, overrides: Sequence[str] = ()) -> Chosen:
    """The plan at `path`, a plan.yaml or a run directory (its recommended plan). Raises InputError."""
    if not path.is_dir():
        plan = load_plan(path, overrides)
        return Chosen(plan, path.stem, {}, tuple(constraint.metric for constraint in plan.constraints))
    from planner.report import verdict
    from planner.store import load_run

    run = load_run(path)
    recommended = verdict.recommended(run)
    if recommended is None:
        raise InputError(str(path), "has no feasible plan; name a plan.yaml")
    plan_id = str(recommended["id"])
    own = path / "plans" / f"{plan_id}.yaml"
    if overrides and not own.is_file():
        raise InputError("--set", f"needs the plan's own file, and {own} does not exist; end the search with --resume")
    plan = load_plan(own, overrides) if own.is_file() else plan_of_run(run, plan_id)
    return Chosen(plan, f"{run.name} {plan_id}", recommended["metrics"], run.asked())


def space_of_run(run: Run) -> Space:
    """The space of a run, its model and workload as its plans name them, wherever the run was started. Raises
    InputError."""
    from planner.space import parse_space

    document = dict(run.space)
    if run.front:
        plan = plan_of_run(run, run.front[0])
        document |= {"model": plan.model, "workload": plan.workload}
        document |= {"coefficients": plan.coefficients} if plan.coefficients is not None else {}
    return parse_space(document, Path.cwd())


def plan_of_run(run: Run, plan_id: str) -> Plan:
    """The plan `plan_id` of a run that lies in a directory.

    Only plans of the front have a file of their own; the others differ from it in their deployment alone. Where there
    is no front either, the space itself says the rest, and relative paths in it count from here. Raises InputError.
    """
    evaluation = evaluation_of(run, plan_id)
    folder = (run.path or Path()) / "plans"
    own = folder / f"{plan_id}.yaml"
    if own.is_file():
        return load_plan(own)
    other = next((path for front in run.front if (path := folder / f"{front}.yaml").is_file()), None)
    if other is not None:
        prices = check_prices(run.space.get("prices") or {})
        return replace(load_plan(other), deployment=resolve(evaluation["parameters"]), prices=prices)
    kept = ("model", "workload", "slo", "prices", "coefficients")
    document = {name: run.space[name] for name in kept if name in run.space}
    document |= {"deployment": evaluation["parameters"], "seed": int(run.manifest.get("seed", 0))}
    return parse_plan(document, Path.cwd())
