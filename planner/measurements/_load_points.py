"""Load points out of a CSV: one row a load of a deployment, closed loop (`concurrency`) or open (`rate_rps`)."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from planner.measurements._naming import async_by_default, batch_defaults, find_model, version_of
from planner.measurements._run import MeasuredRun, Skipped
from sim.catalog import ModelSpec, load_gpu
from sim.deployment import Deployment, PolicySpec
from sim.errors import InputError
from sim.workload import build_workload, parse_workload

COLUMNS = ("id", "gpu", "model", "precision", "tp", "isl_mean", "osl_mean", "quality")
ROUNDS = 10  # answers a user waits for in a closed loop, the first burst among them, as benchmarks count it
# Answers of equal lengths would keep users in step for ever; clients' own delays, of a few tokens, do not.
CLIENT_JITTER_TOKENS = 3
MAX_CLOSED_REQUESTS = 3000
THROUGHPUT_REQUESTS = 400  # where a row records only a throughput, which a steady state shows sooner
DISTRIBUTIONS = ("ttft", "tpot", "e2e")

# InferenceX (benchmarks/*.sh and utils/bench_serving): lengths uniform between 0.8 of the nominal one and it, ten
# prompts a user, temperature 0, no prefix caching, a budget of 8192 tokens, asynchronous scheduling switched on for
# Llama-70B and gpt-oss, an fp8 KV cache for Llama-70B, and on Blackwell for gpt-oss.
INFERENCEX_RANGE_RATIO = 0.8
INFERENCEX_BUDGET = 8192
INFERENCEX_ASYNC = ("Llama", "gpt-oss")

AIPERF_POOL = 100  # distinct prompts that aiperf makes by default (--num-dataset-entries)

Row = dict[str, str]


def read_load_points(path: Path) -> list[MeasuredRun | Skipped]:
    """The rows of a load-points CSV; `InputError` where columns are missing."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    missing = [name for name in COLUMNS if not rows or name not in rows[0]]
    if missing:
        raise InputError(str(path), f"is no load-points table: lacks the columns {', '.join(missing)}")
    return [_run(row, f"{path.name}:{number}") for number, row in enumerate(rows, start=2)]


def number(row: Row, name: str) -> float | None:
    """A numeric cell; None where it is blank or a word."""
    try:
        return float(row.get(name) or "")
    except ValueError:
        return None


def _first_number(text: str) -> int | None:
    head = text.split()[0] if text.split() else ""
    return int(float(head)) if head.replace(".", "", 1).isdigit() else None


def _unsupported(row: Row) -> str:
    if row.get("disagg"):
        return "prefill and decode on separate replicas"
    if (number(row, "dp") or 1) > 1:
        return "data-parallel attention"
    if "offload" in row.get("engine", "") or "lmcache" in row.get("engine", ""):
        return "KV offload to the host"
    if number(row, "osl_mean") is None or number(row, "isl_mean") is None:
        return "no lengths recorded"
    if "multi-turn" in row.get("workload", "") or "trace replay" in row.get("workload", ""):
        return "a multi-turn workload of which the row keeps only means"
    if "eagle" in row["id"] or "speculative" in row.get("note", ""):
        return "speculative decoding"
    if number(row, "concurrency") is None and number(row, "rate_rps") is None:
        return "neither concurrency nor rate recorded"
    return ""


def _of_inferencex(row: Row) -> bool:
    """Whether the row was measured by InferenceX's scripts. AIConfigurator's `gap_analysis` rows were, too: those of
    Kimi K2.5 in int4 are InferenceX's to the digit."""
    ours = "SemiAnalysis" in row.get("source", "") or "gap_analysis" in row["id"]
    return ours and row.get("workload", "").startswith("random")


def _pooled(row: Row) -> bool:
    """Whether the row's prompts came from aiperf's pool. NVIDIA's sweep on H200 serves more prompt tokens a second than
    the GPUs have FLOP/s for, so most were prefix-cached; its sweep on H100 does not."""
    in_house = "NVIDIA in-house" in row.get("source", "") and not _of_inferencex(row)
    return in_house and row["gpu"].startswith("h200")


def _run(row: Row, where: str) -> MeasuredRun | Skipped:
    source = row.get("source", "")
    reason = _unsupported(row)
    if reason:
        return Skipped(row["id"], source, reason)
    try:
        deployment, notes = _deployment(row)
        spec = parse_workload(_workload(row), where)
    except InputError as error:
        return Skipped(row["id"], source, str(error))
    measured, statistics = _measured(row)
    if not measured:
        return Skipped(row["id"], source, "no metric recorded")
    return MeasuredRun(
        id=row["id"],
        source=source,
        regime="closed loop" if number(row, "concurrency") is not None else "open loop",
        gpu=deployment.gpu.name,
        model=deployment.model.name,
        precision=row["precision"] or "bf16",
        deployment=deployment,
        workload=lambda seed: build_workload(spec, seed),
        measured=measured,
        statistics=statistics,
        quality=row["quality"],
        greedy=_of_inferencex(row),
        assumptions=notes,
    )


def _measured(row: Row) -> tuple[dict[str, float], dict[str, str]]:
    measured: dict[str, float] = {}
    statistics: dict[str, str] = {}
    # AIConfigurator's silicon sample does not say which statistic it holds. It is the mean: TTFT grows with the number
    # of users as the first burst, one request in ten, makes the mean grow, whatever the answers' length.
    unrecorded = "mean-vs-median" in row.get("note", "")
    for name in DISTRIBUTIONS:
        for statistic in ("mean", "p90", "p99"):
            value = number(row, f"{name}_{statistic}_ms")
            if value is not None and value > 0:
                measured[f"{name}_{statistic}"] = value
        median = number(row, f"{name}_p50_ms")
        if f"{name}_mean" not in measured and median is not None and median > 0:
            measured[f"{name}_mean"] = median
            if not unrecorded:
                statistics[f"{name}_mean"] = "p50"
    throughput = number(row, "out_tok_s")
    if throughput is not None and throughput > 0:
        measured["output_tokens_per_s"] = throughput
    return {name: value for name, value in measured.items() if not name.startswith("tpot_p")}, statistics


def _routing(text: str) -> str:
    """A Kubernetes service balances connections at random (iptables); llm-d's router by scores."""
    if "prefix" in text:
        return "weighted"
    return "random" if text.startswith("k8s") else "round-robin"


def _model(row: Row) -> tuple[ModelSpec, str | None]:
    return find_model(row["model"], row["precision"])


def _kv_cache_dtype(row: Row) -> str:
    given = row.get("kv_dtype", "")
    if given in ("fp8", "fp8_e4m3"):
        return "fp8"
    if given:
        return "auto"
    if _model(row)[0].name.startswith("nvidia/"):
        return "fp8"  # NVIDIA's ModelOpt checkpoints ask for it (kv_cache_quant_algo)
    if not _of_inferencex(row):
        return "auto"
    blackwell = row["gpu"].startswith(("b200", "b300"))
    return "fp8" if "Llama" in row["model"] or ("gpt-oss" in row["model"] and blackwell) else "auto"


def _deployment(row: Row) -> tuple[Deployment, tuple[str, ...]]:
    model, quantization = _model(row)
    gpu = load_gpu(row["gpu"])
    version = version_of(row.get("engine_version", ""), row.get("note", ""))
    seats, tokens = batch_defaults(gpu, version)
    concurrency = number(row, "concurrency")
    given_seats = _first_number(row.get("max_num_seqs", ""))
    if given_seats is None and concurrency is not None:
        seats = max(seats, int(concurrency))
    if _of_inferencex(row):
        tokens = INFERENCEX_BUDGET
    notes = ["expert parallelism as tensor parallelism"] if (number(row, "ep") or 1) > 1 else []
    caching = row.get("prefix_caching", "")
    model_len = number(row, "max_model_len")
    return (
        Deployment(
            model,
            gpu,
            tensor_parallel_size=int(number(row, "tp") or 1),
            replicas=int(number(row, "replicas") or 1),
            max_num_seqs=given_seats or seats,
            max_num_batched_tokens=max(
                _first_number(row.get("max_num_batched_tokens", "")) or tokens, given_seats or seats
            ),
            max_model_len=int(model_len) if model_len else None,
            gpu_memory_utilization=number(row, "gpu_mem_util") or 0.9,
            enable_prefix_caching=caching != "False" and not _of_inferencex(row),
            kv_cache_dtype=_kv_cache_dtype(row),
            quantization=quantization,
            engine_version=version,
            async_scheduling=async_by_default(version)
            or (_of_inferencex(row) and row["model"].startswith(INFERENCEX_ASYNC)),
            routing=PolicySpec(_routing(row.get("routing", ""))),
            gateway=row.get("gateway") or "none",
        ),
        tuple(notes),
    )


def _workload(row: Row) -> dict[str, Any]:
    concurrency, rate = number(row, "concurrency"), number(row, "rate_rps")
    isl, osl = round(number(row, "isl_mean") or 1), max(1, round(number(row, "osl_mean") or 1))
    recorded = int(number(row, "n_requests") or 0)
    spec: dict[str, Any]
    if "shared_prefix" in row.get("workload", "") and "10 groups x 10 users" in row["workload"]:
        shared = round(isl * (number(row, "prefix_share") or 0.0))
        spec = {"kind": "shared_prefix", "num_groups": 10, "num_prompts_per_group": 10}
        spec |= {"system_prompt_len": shared, "question_len": isl - shared, "output_len": osl}
    elif "inference-perf shared_prefix" in row.get("workload", ""):
        name = next(name for name in NAMED_OUTPUTS if name in row["workload"])
        system = 150 if name == "roleplay" else 100
        spec = {"kind": "shared_prefix", "num_groups": 10, "num_prompts_per_group": 10}
        spec |= {"system_prompt_len": system, "question_len": isl - system, "output_len": NAMED_OUTPUTS[name]}
    else:
        spec = {"kind": "lengths", "input": isl, "output": osl}
        if row.get("workload", "") == "LMBench sharegpt":
            spec |= LMBENCH_SHAREGPT
    if _pooled(row):
        spec = {"kind": "shared_prefix", "num_groups": AIPERF_POOL, "num_prompts_per_group": 1}
        spec |= {"system_prompt_len": isl, "question_len": 0, "output_len": osl}
    if concurrency is not None:
        users = int(concurrency)
        if _of_inferencex(row):
            spec["input"], spec["output"] = _uniform(isl), _uniform(osl)
        elif row.get("workload", "").startswith("random") and osl > CLIENT_JITTER_TOKENS:
            low, high = osl - CLIENT_JITTER_TOKENS, osl + CLIENT_JITTER_TOKENS
            spec["output_len" if _pooled(row) else "output"] = {"dist": "uniform", "min": low, "max": high}
        spec["arrival"] = {"process": "closed", "users": users}
        most = MAX_CLOSED_REQUESTS if any(row.get(f"ttft_{s}_ms") for s in ("mean", "p50")) else THROUGHPUT_REQUESTS
        spec["num_requests"] = max(users + 1, min(recorded or users * ROUNDS, max(most, 2 * users)))
        return spec
    assert rate is not None
    spec["arrival"] = _arrival(row, rate)
    if "stages" not in spec["arrival"]:
        spec["num_requests"] = recorded or 500
    return spec


def _uniform(nominal: int) -> dict[str, Any]:
    return {"dist": "uniform", "min": int(nominal * INFERENCEX_RANGE_RATIO), "max": nominal}


# Lengths of LMBench's ShareGPT sample (252 prompts), of which a row keeps only the means.
LMBENCH_SHAREGPT: dict[str, Any] = {
    "input": {"dist": "normal", "mean": 1148, "sd": 434, "min": 165, "max": 2019},
    "output": {"dist": "normal", "mean": 217, "sd": 132, "min": 1, "max": 690},
}
# Output tokens of inference-perf's named workloads: with ignore_eos all are generated, whatever the text has when it is
# tokenised anew, which is what the row counts.
NAMED_OUTPUTS = {"codegen": 247, "general": 248, "roleplay": 251}
# The loads of inference-perf's named workloads: the row keeps only their mean.
NAMED_STAGES = {
    "codegen": [{"rate_rps": 5, "duration_s": 600}, {"rate_rps": 10, "duration_s": 600}],
    "general": [{"rate_rps": 8, "duration_s": 600}, {"rate_rps": 20, "duration_s": 600}],
    "roleplay": [{"rate_rps": 6, "duration_s": 1200}],
}


def _arrival(row: Row, rate: float) -> dict[str, Any]:
    arrival = row.get("arrival", "")
    for name, stages in NAMED_STAGES.items():
        if f"inference-perf shared_prefix {name}" in row.get("workload", ""):
            return {"process": "normalized-poisson", "stages": stages}
    if arrival == "constant" and "inference-perf" in row.get("source", ""):
        return {"process": "normalized-poisson", "rate_rps": rate}
    if arrival == "poisson":
        return {"process": "poisson", "rate_rps": rate}
    return {"process": "constant", "rate_rps": rate}
