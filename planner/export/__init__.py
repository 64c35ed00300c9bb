"""Plans as files for real systems. One exporter a file; `TARGETS` names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.export.vllm_serve import parse_serve_command
from sim.errors import InputError
from sim.names import nearest

if TYPE_CHECKING:
    from planner.export._base import Exporter, SimulatedPlan

__all__ = ["TARGETS", "export_plans", "load_exporter", "parse_serve_command"]

TARGETS = {
    "vllm": "planner.export.vllm:VllmExporter",
    "llm-d": "planner.export.llm_d:LlmDExporter",
    "inference-perf": "planner.export.inference_perf:InferencePerfExporter",
    "vllm-sweep": "planner.export.vllm_sweep:VllmSweepExporter",
    "kserve": "planner.export.kserve:KserveExporter",
    "guidellm": "planner.export.guidellm:GuidellmExporter",
    "aiperf": "planner.export.aiperf:AiperfExporter",
}


def load_exporter(target: str) -> Exporter:
    """The exporter of `target`. Raises InputError for an unknown one, naming the nearest."""
    if target not in TARGETS:
        raise InputError("--target", f"must be one of {', '.join(TARGETS)}, got {target!r}{nearest(target, TARGETS)}")
    module, _, name = TARGETS[target].partition(":")
    exporter: Exporter = getattr(import_module(module), name)()
    return exporter


def export_plans(run_dir: str | Path, top_k: int, out_dir: str | Path, target: str = "vllm") -> list[Path]:
    """Write the run's `top_k` best plans for `target`, one folder `N-ID` each under `out_dir`; returns the folders.

    The order is the report's: the recommended plan first. Of plans with the same size, price and objective values the
    first that the target can express stands for all. Where it can express none of them the others are written, and
    then InputError is raised with the reason. InputError also where the run has no feasible plan.
    """
    exporter = load_exporter(target)
    if top_k < 1:
        raise InputError("--top-k", f"must be at least 1, got {top_k}")
    folders, refusals, exported = [], [], []
    for rank, group in enumerate(_best(Path(run_dir), top_k), start=1):
        try:
            plan, files = _first_expressible(exporter, [replace(plan, rank=rank) for plan in group])
        except InputError as error:
            refusals.append(error)
            continue
        folder = Path(out_dir) / f"{rank}-{plan.id}"
        try:
            _write(folder, files)
        except OSError as error:
            raise InputError("--out", f"{folder} cannot be written: {error.strerror or error}") from None
        folders.append(folder)
        exported.append(plan)
    if exported:
        _write(Path(out_dir), exporter.together(exported))
    if refusals:
        first = refusals[0]
        others = f" ({len(refusals) - 1} more likewise)" if len(refusals) > 1 else ""
        written = f"; written: {', '.join(folder.name for folder in folders)}" if folders else ""
        raise InputError(first.field, f"{first.problem}{others}{written}")
    return folders


def _first_expressible(exporter: Exporter, plans: list[SimulatedPlan]) -> tuple[SimulatedPlan, dict[str, str]]:
    refusal: InputError | None = None
    for plan in plans:
        try:
            return plan, exporter.files(plan)
        except InputError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _best(run_dir: Path, count: int) -> list[list[SimulatedPlan]]:
    """The best plans, each with those that have the same figures behind it."""
    from planner.report import verdict
    from planner.store import load_run

    run = load_run(run_dir)
    chosen = verdict.distinct(run, verdict.front(run))[:count]
    if not chosen:
        raise InputError(str(run_dir), "has no feasible plan to export; `planner show` says what comes nearest")
    return [[_read(run_dir, run.name, evaluation) for evaluation in (first, *same)] for first, same in chosen]


def _read(run_dir: Path, run_name: str, evaluation: Mapping[str, Any]) -> SimulatedPlan:
    from planner.documents import parse_yaml
    from planner.export._base import SimulatedPlan
    from planner.plan import parse_plan
    from planner.store import PLANS

    path = run_dir / PLANS / f"{evaluation['id']}.yaml"
    if not path.is_file():
        raise InputError(str(path), "is missing from the run directory; search again with --resume")
    text = path.read_text(encoding="utf-8")
    plan = parse_plan(parse_yaml(text), path.parent)
    return SimulatedPlan(evaluation["id"], 0, run_name, plan, evaluation["metrics"], text)


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / name
        path.write_text(text, encoding="utf-8", newline="\n")
        if name.endswith(".sh"):
            path.chmod(0o755)
