"""The loop on real runs: validate one, recalibrate on it, and see what that does to other runs of the same model.

    python benchmarks/validation_loop.py OPEN_LOOP.json [ID]

OPEN_LOOP.json is a list of measured open-loop runs (as `planner fidelity` reads it). Run ID, or the first one of each
model that has several, is written down as inference-perf would have reported it and treated as the user's benchmark.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from planner.cli import main as planner
from planner.fidelity import compare_run
from planner.measurements import MeasuredRun, read_runs
from sim.latency import load_coefficients

KNOBS = ("tensor_parallel_size", "replicas", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size")


def lifecycle_summary(entry: dict[str, Any]) -> dict[str, Any]:
    """A measured run as inference-perf's summary: seconds, and successes by latency."""
    overall, workload = entry["measured"]["overall"], entry["workload"]
    count = round(sum(stage["rate"] * stage["duration"] for stage in workload["stages"]))
    statistics = {"mean": "mean", "p90": "p90", "p99": "p99"}
    latency = {
        key: {name: overall[f"{own}_{statistic}_ms"] / 1e3 for statistic, name in statistics.items()}
        for own, key in (("ttft", "time_to_first_token"), ("e2e", "request_latency"))
    }
    return {
        "load_summary": {"count": count},
        "successes": {
            "count": count,
            "latency": latency,
            "output_len": {"mean": float(workload.get("output_len_measured_mean", workload["output_len"]))},
            "output_tokens": {"mean": float(workload["output_len"])},  # the server's count: all that was asked for
        },
        "failures": {"count": 0},
    }


def space_of(entry: dict[str, Any], model: str) -> dict[str, Any]:
    """A space of one plan: the deployment and the load of a measured run."""
    fields = ("kind", "num_groups", "num_prompts_per_group", "system_prompt_len", "question_len", "output_len")
    stages = [{"rate_rps": s["rate"], "duration_s": s["duration"]} for s in entry["workload"]["stages"]]
    return {
        "name": "measured",
        "model": model,
        "workload": {
            **{name: entry["workload"][name] for name in fields},
            "arrival": {"process": "normalized-poisson", "stages": stages},
        },
        "objectives": [{"minimize": "ttft_mean_ms"}],
        "space": {"gpu": entry["gpu"], **{name: entry[name] for name in KNOBS}},
    }


def errors(runs: list[MeasuredRun], coefficients: str) -> dict[str, float]:
    """Mean absolute error in percent, by metric, over the runs."""
    rows = [row for run in runs for row in compare_run(run, load_coefficients(coefficients))]
    metrics = dict.fromkeys(row.metric for row in rows)
    return {metric: float(np.mean([row.ape for row in rows if row.metric == metric])) for metric in metrics}


def loop(entry: dict[str, Any], own: MeasuredRun, others: list[MeasuredRun]) -> None:
    """Search the one plan, validate it, recalibrate, and print the errors on the other runs before and after."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "space.yaml").write_text(yaml.safe_dump(space_of(entry, own.model)))
        (folder / "summary_lifecycle_metrics.json").write_text(json.dumps(lifecycle_summary(entry)))
        run, seen, fitted = (str(folder / part) for part in ("run", "validation.json", "fitted.yaml"))
        planner(["search", str(folder / "space.yaml"), "--out", run, "--executor", "serial", "--quiet"])
        planner(["validate", run, str(folder / "summary_lifecycle_metrics.json"), "--json", seen])
        planner(["calibrate", "--from-validation", seen, "--results", run, "--out", fitted])
        print(f"\nerror on {', '.join(other.id for other in others)} (mean absolute, %):")
        before, after = errors(others, "default"), errors(others, fitted)
        for metric, value in before.items():
            print(f"  {metric:10} {value:6.1f} before, {after[metric]:6.1f} after")


def main() -> None:
    path, *chosen = sys.argv[1:]
    entries = {str(entry["id"]): entry for entry in json.loads(Path(path).read_text())}
    runs, _ = read_runs([path])
    by_model: dict[tuple[str, str], list[MeasuredRun]] = {}
    for run in runs:
        by_model.setdefault((run.model, run.gpu), []).append(run)
    for group in by_model.values():
        own = next((run for run in group if run.id in chosen), None if chosen else group[0])
        others = [run for run in group if run is not own]
        if own is not None and others:
            print(f"\n== {own.id}: {own.model} on {own.gpu}")
            loop(entries[own.id], own, others)


if __name__ == "__main__":
    main()
