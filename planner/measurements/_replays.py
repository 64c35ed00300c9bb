"""Replays out of per-request CSVs: each request's arrival, lengths, TTFT and E2E as measured."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from planner.measurements._naming import batch_defaults, find_model
from planner.measurements._run import MeasuredRun, Skipped
from sim.catalog import load_gpu
from sim.deployment import Deployment
from sim.workload import PS_PER_S, Pieces, Workload

Row = dict[str, str]

# What the files do not say and their sources do: LLMServingSim's benchmark of vLLM 0.19 (tensor parallelism of each
# model), llm-d-benchmark's LMBench runs of May 2025.
SERVINGSIM_TP = {"Llama-3.1-8B": 1, "Qwen3-32B": 2}
MULTITURN_NAME = re.compile(r"(?P<gpu>[a-z0-9]+)_(?P<model>llama70b)_(?P<precision>fp4|fp8)_multiturn_tp(?P<tp>\d+)")
MULTITURN_MODELS = {"llama70b": "Llama-3.3-70B-Instruct"}
LMBENCH_MODELS = {"70b": ("Llama-3.1-70B-Instruct", "bf16", 2), "llama4": ("Llama-4-Scout-17B-16E-FP8", "fp8", 4)}


def is_replay(columns: Sequence[str]) -> bool:
    """Whether a CSV with these columns holds one measured request a row."""
    return "e2e_ms" in columns and "output_tokens" in columns and ("arrival_s" in columns or "start_s" in columns)


def read_replay(path: Path) -> list[MeasuredRun | Skipped]:
    """The runs of a per-request CSV, one for each (config, rate) in it."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        config = row.get("config") or row.get("max_num_seqs", "")
        key = (config, row.get("rate_rps", ""), row.get("quality", "ok"))
        groups.setdefault(key, []).append(row)
    return [_run(path, *key, group) for key, group in groups.items()]


def _run(path: Path, config: str, rate: str, quality: str, rows: list[Row]) -> MeasuredRun | Skipped:
    identity = "-".join(part for part in (path.stem, config, rate) if part)
    if "lmcache" in config or (config.startswith("llm-d") and "no-router" not in config and "exp-3" in path.stem):
        return Skipped(identity, path.stem, "KV offload to the host")
    deployment = _deployment(path.stem, config)
    if deployment is None:
        return Skipped(identity, path.stem, "the file does not say how the model was deployed")
    rows = sorted(rows, key=lambda row: float(row.get("arrival_s") or row["start_s"]))
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

    arrival = np.rint(column("arrival_s", "start_s") * PS_PER_S).astype(np.int64)
    prompt = np.maximum(column("prompt_tokens", "input_tokens").astype(np.int64), 1)
    contents: list[Pieces] = [()]
    content = np.zeros(len(rows), np.int64)
    if "conv" in rows[0]:  # a turn's prompt is the conversation so far: it begins as the turn before it
        for i, row in enumerate(rows):
            contents.append(((int(row["conv"]) + 1, int(prompt[i])),))
            content[i] = i + 1
    # Clients that wait for each answer: at other speeds than the measured one their requests come at other times.
    users = len({row["client"] for row in rows}) if "client" in rows[0] else 0
    return Workload(
        name,
        arrival * 0 if users else arrival - arrival[0],
        prompt,
        np.maximum(column("output_tokens").astype(np.int64), 1),
        content,
        contents,
        users=users,
    )


def _multiturn(match: re.Match[str], seats: int) -> Deployment:
    """InferenceX's multi-turn experiment: vLLM 0.15.0, fp8 KV cache, a budget of 8192 tokens."""
    model, quantization = find_model(MULTITURN_MODELS[match["model"]], match["precision"])
    return Deployment(
        model,
        load_gpu(match["gpu"]),
        tensor_parallel_size=int(match["tp"]),
        max_num_seqs=seats,
        max_num_batched_tokens=8192,
        kv_cache_dtype="fp8",
        quantization=quantization,
        engine_version="0.15.0",
    )


def _deployment(stem: str, config: str) -> Deployment | None:
    multiturn = MULTITURN_NAME.fullmatch(stem)
    if multiturn:
        return _multiturn(multiturn, int(config))
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
    key = next((name for name in LMBENCH_MODELS if name in config), None)
    if key is None:
        return None
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
