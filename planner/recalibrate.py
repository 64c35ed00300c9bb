"""`planner calibrate --from-validation`: a coefficient set fitted to the user's own measurements."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import yaml

from planner.calibration.assemble import copied
from planner.calibration.coefficient_file import get_path, set_path, write_coefficients
from planner.evaluate import load_named_model, priced_gpus
from planner.fidelity import predicted_metrics
from planner.measurements import MeasuredRun
from planner.parameters import to_deployment
from planner.plan import Plan, make_workload, parse_plan, simulate_plan
from planner.report import names
from sim.errors import InputError
from sim.latency import parse_coefficients
from sim.simulate import simulate

if TYPE_CHECKING:
    from planner.store import Run

FITTED = ("ttft_mean", "tpot_mean", "e2e_mean", "output_tokens_per_s")
ROUNDS = 4
TPOT_OFF = 0.005  # a share of TPOT below which it is not worth a change of the GPU's table
# What differs between machines with the same GPU (hosts, images, networks), within what has been seen of it.
LAYER_US = (0.0, 25.0)
WAY_IN_US = (0.0, 300_000.0)
BANDWIDTH = (0.1, 1.0)


def measured_runs(validation: Mapping[str, Any]) -> list[MeasuredRun]:
    """The runs that a validation (`planner validate --json`) holds, stages aside: a stage is a part of its run.

    Raises InputError where there is none.
    """
    try:
        runs = [_measured_run(check) for check in validation["plans"] if check["stage"] is None]
    except (KeyError, TypeError) as error:
        raise InputError("--from-validation", f"is not what `planner validate --json` writes ({error!r})") from None
    runs = [run for run in runs if run.measured]
    if not runs:
        raise InputError("--from-validation", "holds no mean latency of a whole run to fit to")
    return runs


def _measured_run(check: Mapping[str, Any]) -> MeasuredRun:
    plan = parse_plan(check["plan"], Path.cwd())
    model = load_named_model(plan.model, plan.folder)
    gpu = plan.deployment["gpu"]
    metrics = {name.removesuffix("_ms"): float(values["measured"]) for name, values in check["metrics"].items()}
    return MeasuredRun(
        id=str(check["id"]),
        source="validation",
        regime="open loop",
        gpu=gpu,
        model=plan.model,
        precision="",
        deployment=to_deployment(plan.deployment, model, priced_gpus((gpu,), plan.prices)),
        workload=partial(_workload, plan),
        measured={name: metrics[name] for name in FITTED if name in metrics},
    )


def _workload(plan: Plan, seed: int) -> Any:
    return make_workload(plan.workload, plan.folder, plan.seed)


def start_document(start: str | None) -> dict[str, Any]:
    """The coefficient document to begin with: the file `start`, or the shipped set."""
    if start is None:
        text = (resources.files("sim.latency") / "coefficients" / "default.yaml").read_text(encoding="utf-8")
    elif Path(start).is_file():
        text = Path(start).read_text(encoding="utf-8")
    else:
        raise InputError("--start", f"no such file: {start}")
    document = yaml.safe_load(text)
    parse_coefficients(document, "start")
    return dict(document)


@dataclass(slots=True)
class Refit:
    """What recalibrating did: values by path, and median absolute errors by metric (percent)."""

    before: dict[str, float]
    after: dict[str, float]
    values: dict[str, tuple[float, float]]  # path -> (before, after)


def recalibrate(document: Mapping[str, Any], runs: Sequence[MeasuredRun]) -> tuple[dict[str, Any], Refit]:
    """The document fitted to the runs, and what changed.

    Each coefficient is moved by what it alone explains, round after round. What TPOT differs by is the host's work a
    layer (`engine.layer_us`), and beyond what a host can take, the share of the memory bandwidth that the weights are
    read with; what mean TTFT then differs by is the way to the engine, or through the gateway. Two or three numbers
    out of as many measured ones: nothing else is touched, and kernels keep their tables.
    """
    start, fitted = copied(document), copied(document)
    paths: dict[str, None] = {}
    for _ in range(ROUNDS):
        left = _fit_layers(fitted, runs, paths)
        if left:
            fitted = _fit_bandwidth(fitted, runs, paths)
        _fit_way_in(fitted, runs, paths)
    errors = [_medians(predictions(each, runs), runs) for each in (start, fitted)]
    values = {path: (_value(start, path), get_path(fitted, path)) for path in paths}
    fitted["provenance"] = dict(fitted.get("provenance") or {}) | {
        "validation": {"runs": [run.id for run in runs], "before": errors[0], "after": errors[1]}
    }
    parse_coefficients(fitted, "fitted")
    return fitted, Refit(errors[0], errors[1], values)


def predictions(document: Mapping[str, Any], runs: Sequence[MeasuredRun]) -> list[dict[str, float]]:
    """The metrics of each run, simulated under a coefficient document."""
    coefficients = parse_coefficients(document, "candidate")
    return [
        predicted_metrics(simulate(run.deployment, run.workload(0), coefficients=coefficients), run.statistics)
        for run in runs
    ]


def _medians(predicted: Sequence[Mapping[str, float]], runs: Sequence[MeasuredRun]) -> dict[str, float]:
    found = {}
    for metric in FITTED:
        pairs = [
            (p[metric], run.measured[metric]) for p, run in zip(predicted, runs, strict=True) if metric in run.measured
        ]
        if pairs:
            found[metric] = round(100 * median(abs(value / measured - 1) for value, measured in pairs), 2)
    return found


def _missing(document: Mapping[str, Any], runs: Sequence[MeasuredRun], metric: str) -> list[tuple[MeasuredRun, float]]:
    """(run, measured - predicted in ms) of the runs that have the metric."""
    predicted = predictions(document, runs)
    return [
        (run, run.measured[metric] - p[metric])
        for run, p in zip(runs, predicted, strict=True)
        if metric in run.measured and metric in p
    ]


def _move(document: dict[str, Any], path: str, by: float, bounds: tuple[float, float]) -> bool:
    """Move a coefficient as far as its bounds allow; whether they stopped it."""
    wanted = get_path(document, path) + by
    allowed = min(max(wanted, bounds[0]), bounds[1])
    set_path(document, path, float(f"{allowed:.6g}"))
    return abs(allowed - wanted) > 1e-9


def _fit_layers(document: dict[str, Any], runs: Sequence[MeasuredRun], paths: dict[str, None]) -> bool:
    """Give TPOT's difference to the host's work a layer; whether some is left beyond what that can be."""
    missing = _missing(document, runs, "tpot_mean")
    if not missing:
        return False
    paths["engine.layer_us"] = None
    layers = [run.deployment.model.num_layers for run, _ in missing]
    slope = sum(1e3 * ms * n for (_, ms), n in zip(missing, layers, strict=True)) / sum(n * n for n in layers)
    return _move(document, "engine.layer_us", slope, LAYER_US)


def _fit_bandwidth(document: dict[str, Any], runs: Sequence[MeasuredRun], paths: dict[str, None]) -> dict[str, Any]:
    """Give the rest of TPOT's difference to the bandwidth of each GPU's weights, by the slope that it has there."""
    for gpu in dict.fromkeys(run.gpu for run in runs):
        own = [run for run in runs if run.gpu == gpu]
        changed, path = _weights_bandwidth(document, own[0])
        missing = _missing(changed, own, "tpot_mean")
        if path is None or not missing:
            continue
        if abs(median(ms / run.measured["tpot_mean"] for run, ms in missing)) < TPOT_OFF:
            continue
        slower = copied(changed)
        value = get_path(changed, path)
        set_path(slower, path, 0.95 * value)
        gained = median(a - b for (_, a), (_, b) in zip(missing, _missing(slower, own, "tpot_mean"), strict=True))
        if gained <= 0:
            continue
        # TPOT grows with 1 / bandwidth, of which this is the slope.
        inverse = 1 / value + median(ms for _, ms in missing) / gained * (1 / (0.95 * value) - 1 / value)
        aim = 1 / inverse if inverse > 1 else BANDWIDTH[1]
        document = changed
        paths[path] = None
        _move(document, path, aim - value, BANDWIDTH)
    return document


def _fit_way_in(document: dict[str, Any], runs: Sequence[MeasuredRun], paths: dict[str, None]) -> None:
    """Give mean TTFT's difference to what surrounds a request: of the gateway where all runs went through one."""
    missing = _missing(document, runs, "ttft_mean")
    if not missing:
        return
    gateway = all(run.deployment.gateway != "none" for run in runs)
    path = "request.gateway_us" if gateway else "request.before_queue_us"
    paths[path] = None
    _move(document, path, 1e3 * median(ms for _, ms in missing), WAY_IN_US)


def _value(document: Mapping[str, Any], path: str) -> float:
    """The number at a path; nan where the document has no such table yet."""
    try:
        return get_path(document, path)
    except KeyError:
        return float("nan")


def _weights_bandwidth(document: dict[str, Any], run: MeasuredRun) -> tuple[dict[str, Any], str | None]:
    """(document, path) of the bandwidth that the run's weights are read with, in a table of the GPU's own.

    A GPU that borrows the table of another gets a copy. None where the table does not tell its weights by one format.
    """
    gpu = run.deployment.gpu
    changed = copied(document)
    if gpu.name not in changed["gpus"]:
        link = "pcie" if gpu.interconnect == "pcie" else "nvlink"
        other = changed["alike"].pop(gpu.name, None)
        changed["gpus"][gpu.name] = copied(changed["gpus"][other] if other else changed["defaults"][link])
    kind = "moe" if run.mixture else "gemm"
    fmt = run.deployment.quantization or run.deployment.model.weight_format or "bf16"
    if fmt not in changed["gpus"][gpu.name][kind]:
        return document, None
    return changed, f"gpus.{gpu.name}.{kind}.{fmt}.bandwidth"


# -- the front again ----------------------------------------------------------------------------------------------


def ranked_again(run: Run, coefficients: str) -> tuple[list[str], list[str], dict[str, dict[str, Any]]]:
    """(front before, front after, metrics after by id): the plans of the run's front simulated under another set.

    "After" is by the report's rule, plans that now break a limit last.
    """
    from planner.goals import metric_values
    from planner.report import verdict
    from planner.run_plans import plan_of_run

    before = [plan for plan, _ in verdict.distinct(run, verdict.front(run))]
    again, feasible = [], {}
    for plan in before:
        summary = simulate_plan(replace(plan_of_run(run, plan["id"]), coefficients=coefficients)).summary()
        flat = metric_values(summary)
        again.append({**plan, "metrics": flat, "saturation": summary["saturation"]})
        feasible[plan["id"]] = not verdict.broken(run, again[-1])
    changed = replace(run, evaluations=again, front=[plan["id"] for plan in again])
    ordered = sorted(verdict.front(changed), key=lambda plan: not feasible[plan["id"]])
    names_after = [f"{plan['id']}{'' if feasible[plan['id']] else ' (breaks the SLO)'}" for plan in ordered]
    return [plan["id"] for plan in before], names_after, {plan["id"]: plan["metrics"] for plan in again}


def run_from_validation(
    validation: str, start: str | None, out: str, results: str | None, say: Callable[[str], None]
) -> int:
    """Fit, write `out`, say the errors before and after, and rank the front of run `results` again. Returns 0."""
    try:
        document = json.loads(Path(validation).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError("--from-validation", f"{validation} cannot be read as JSON: {error}") from None
    begin = start_document(start)
    runs = measured_runs(document)
    say(f"fitting to {len(runs)} measured run{'s' if len(runs) > 1 else ''}")
    fitted, refit = recalibrate(begin, runs)
    fitted["name"] = Path(out).stem  # so that a run says which set it was simulated with
    write_coefficients(fitted, out)
    for path, (old, new) in refit.values.items():
        say(f"  {path}: {names.number(old)} -> {names.number(new)}")
    if len(runs) == 1 and refit.values:
        say(f"  numbers fitted to one run: {len(refit.values)}; nothing checks them until you measure another")
    for metric, before_percent in refit.before.items():
        say(f"  {metric}: error {before_percent:.1f}% before, {refit.after[metric]:.1f}% after")
    say(f"written: {out}")
    if results is not None:
        from planner.store import load_run

        before, after, _ = ranked_again(load_run(results), out)
        say(f"front before: {', '.join(before)}")
        say(f"front after:  {', '.join(after)}")
    return 0
