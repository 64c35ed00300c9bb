"""Any plan of a run, front or not, as something that can be simulated again."""

from __future__ import annotations

from dataclasses import replace
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
