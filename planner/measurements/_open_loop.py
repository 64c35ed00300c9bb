"""Open-loop runs out of a JSON list: shared-prefix prompts at given rates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from planner.measurements._naming import async_by_default, find_model
from planner.measurements._run import MeasuredRun, Skipped
from sim.catalog import GPUSpec, ModelSpec, load_gpu
from sim.deployment import Deployment
from sim.errors import InputError
from sim.workload import build_workload, parse_workload

KNOBS = (
    "tensor_parallel_size",
    "replicas",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "gpu_memory_utilization",
    "block_size",
    "enable_prefix_caching",
    "kv_cache_dtype",
    "gateway",
)
PROMPTS = ("kind", "num_groups", "num_prompts_per_group", "system_prompt_len", "question_len", "output_len")


def read_open_loop(path: Path) -> list[MeasuredRun | Skipped]:
    """The runs of a JSON list; `InputError` where it is not one."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(str(path), f"is not JSON: line {error.lineno}: {error.msg}") from None
    if not isinstance(document, list):
        raise InputError(str(path), "must be a list of runs")
    return [_run(entry, f"{path.name}[{i}]", path.stem) for i, entry in enumerate(document)]


def _run(entry: Any, where: str, source: str) -> MeasuredRun | Skipped:
    if not isinstance(entry, dict):
        raise InputError(where, "must be an object")
    for key in ("model", "gpu", "workload", "measured"):
        if key not in entry:
            raise InputError(f"{where}.{key}", "is missing")
    identity = str(entry.get("id", where))
    precision = str(entry.get("precision", ""))
    try:
        model, quantization = find_model(entry["model"], precision)
        gpu = load_gpu(entry["gpu"])
    except InputError as error:
        return Skipped(identity, source, error.problem)
    parsed = parse_workload(_workload(entry["workload"]), f"{where}.workload")
    notes: tuple[str, ...] = ()
    if "output_len_measured_mean" in entry["workload"]:
        notes = ("output_len tokens are generated (ignore_eos); the measured mean counts the text tokenised anew",)
    overall = entry["measured"]["overall"]
    measured = {key.removesuffix("_ms"): float(value) for key, value in overall.items() if value}
    return MeasuredRun(
        id=identity,
        source=source,
        regime="open loop",
        gpu=gpu.name,
        model=model.name,
        precision=precision or "bf16",
        deployment=_deployment(entry, model, gpu, quantization),
        workload=lambda seed: build_workload(parsed, seed),
        measured=measured,
        assumptions=notes,
    )


def _deployment(entry: dict[str, Any], model: ModelSpec, gpu: GPUSpec, quantization: str | None) -> Deployment:
    version = str(entry.get("engine_version") or "0.15.1")
    return Deployment(
        model,
        gpu,
        quantization=quantization,
        engine_version=version,
        async_scheduling=bool(entry.get("async_scheduling", async_by_default(version))),
        **{name: entry[name] for name in KNOBS if entry.get(name) is not None},
    )


def _workload(given: dict[str, Any]) -> dict[str, Any]:
    """The workload in the words of a space."""
    stages = [{"rate_rps": stage["rate"], "duration_s": stage["duration"]} for stage in given["stages"]]
    spec = {name: given[name] for name in PROMPTS if name in given}
    return spec | {"arrival": {"process": "normalized-poisson", "stages": stages}}
