"""Replays out of per-request CSVs: each request's arrival, lengths, TTFT and E2E as measured."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from planner.measurements._naming import batch_defaults, find_model
from planner.measurements._run import MeasuredRun, Skipped
from sim.catalog import load_gpu
from sim.deployment import Deployment
from sim.workload import PS_PER_S, Workload

Row = dict[str, str]

# What the files do not say and their sources do: LLMServingSim's benchmark of vLLM 0.19 (tensor parallelism of each
# model), llm-d-benchmark's LMBench runs of May 2025.
SERVINGSIM_TP = {"Llama-3.1-8B": 1, "Qwen3-32B": 2}
LMBENCH_MODELS = {"70b": ("Llama-3.1-70B-Instruct", "bf16", 2), "llama4": ("Llama-4-Scout-17B-16E-FP8", "fp8", 4)}


def is_replay(columns: Sequence[str]) -> bool:
    """Whether a CSV with these columns holds one measured request a row."""
    return "e2e_ms" in columns and "output_tokens" in columns and ("arrival_s" in columns or "start_s" in columns)


def read_replay(path: Path) -> list[MeasuredRun | Skipped]:
    """The runs of a per-request CSV, one for each (config, rate) in it."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if "start_s" in rows[0]:
        return [Skipped(path.stem, path.stem, "closed-loop conversations: the requests' order depends on the server")]
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        key = (row.get("config", ""), row.get("rate_rps", ""), row.get("quality", "ok"))
        groups.setdefault(key, []).append(row)
    return [_run(path, *key, group) for key, group in groups.items()]


def _run(path: Path, config: str, rate: str, quality: str, rows: list[Row]) -> MeasuredRun | Skipped:
    identity = "-".join(part for part in (path.stem, config, rate) if part)
    if "lmcache" in config or (config.startswith("llm-d") and "no-router" not in config and "exp-3" in path.stem):
        return Skipped(identity, path.stem, "KV offload to the host")
    deployment = _deployment(path.stem, config, rows)
    rows = sorted(rows, key=lambda row: float(row["arrival_s"]))
    ttft = np.array([float(row["ttft_ms"]) for row in rows])
    e2e = np.array([float(row["e2e_ms"]) for row in rows])
    output = np.array([int(float(row["output_tokens"])) for row in rows])
    many = output > 1
    measured = {
        "ttft_mean": float(ttft.mean()),
        "ttft_p90": float(np.quantile(ttft, 0.9)),
        "ttft_p99": float(np.quantile(ttft, 0.99)),
        "tpot_mean": float(((e2e - ttft)[many] / (output[many] - 1)).mean()),
        "e2e_mean": float(e2e.mean()),
        "e2e_p90": float(np.quantile(e2e, 0.9)),
        "e2e_p99": float(np.quantile(e2e, 0.99)),
    }
    return MeasuredRun(
        id=identity,
        source=path.stem,
        regime="replay",
        gpu=deployment.gpu.name,
        model=deployment.model.name,
        precision=deployment.model.weight_format or "bf16",
        deployment=deployment,
        workload=lambda seed: _workload(identity, rows),
        measured=measured,
        quality=quality,
    )


def _workload(name: str, rows: list[Row]) -> Workload:
    def column(*names: str) -> np.ndarray:
        return np.array([float(next(row[n] for n in names if n in row)) for row in rows])

    return Workload(
        name,
        np.rint(column("arrival_s") * PS_PER_S).astype(np.int64),
        np.maximum(column("prompt_tokens", "input_tokens").astype(np.int64), 1),
        np.maximum(column("output_tokens").astype(np.int64), 1),
        np.zeros(len(rows), np.int64),
    )


def _deployment(stem: str, config: str, rows: list[Row]) -> Deployment:
    if stem.startswith("llmservingsim_"):
        _, gpu_name, model_name = stem.split("_", 2)
        model, _ = find_model(model_name, "bf16")
        return Deployment(
            model,
            load_gpu(gpu_name),
            tensor_parallel_size=SERVINGSIM_TP.get(model_name, 1),
            max_num_seqs=128,
            engine_version="0.19.0",
        )
    key = next(name for name in LMBENCH_MODELS if name in config)
    name, precision, tp = LMBENCH_MODELS[key]
    model, quantization = find_model(name, precision)
    gpu = load_gpu("a100_sxm" if "exp-0" in stem else "h100_sxm")
    seats, tokens = batch_defaults(gpu, "0.8.5")
    return Deployment(
        model,
        gpu,
        tensor_parallel_size=tp,
        replicas=2 if "2replicas" in config else 1,
        max_num_seqs=seats,
        max_num_batched_tokens=tokens,
        max_model_len=20000,
        gpu_memory_utilization=0.95,
        quantization=quantization,
        engine_version="0.8.5",
        async_scheduling=False,
    )
