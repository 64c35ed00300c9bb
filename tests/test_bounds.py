"""Bounds are never crossed: whatever is simulated, no latency is below its floor and no rate above its ceiling."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.bounds import Bounds
from planner.bounds.queueing import finish_floors, start_floors, wait_floor, waiting_longer
from planner.evaluate import Evaluator, make_evaluator
from planner.parameters import Parameters, resolve
from planner.space import parse_space
from sim.metrics import METRICS

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen3-14B",
    "Qwen/Qwen3-30B-A3B",
    "google/gemma-3-27b-it",
    "meta-llama/Llama-2-70b-hf",
    "deepseek-ai/DeepSeek-V2-Lite",
)
GPUS = ("H100-SXM-80GB", "A100-SXM-80GB", "L40S", "L4", "H200-SXM-141GB", "B200-SXM-180GB")


def random_workload(draw: random.Random) -> dict[str, Any]:
    output = draw.choice([1, 20, 250, {"dist": "uniform", "min": 1, "max": 300}])
    workload: dict[str, Any] = {
        "kind": "lengths",
        "input": draw.choice([30, 600, 5000, {"dist": "lognormal", "mean": 800, "sd": 900, "min": 2, "max": 9000}]),
        "output": output,
        "num_requests": draw.choice([1, 30, 150]),
        "arrival": draw.choice(
            [
                {"process": "poisson", "rate_rps": 10 ** draw.uniform(-1, 3)},
                {"process": "gamma", "cv": 4, "rate_rps": 10 ** draw.uniform(-1, 2)},
                {"process": "closed", "users": draw.choice([1, 8, 200]), "think_time_s": draw.choice([0, 1])},
            ]
        ),
    }
    if draw.random() < 0.5:
        workload["prefix"] = {"groups": draw.choice([1, 5]), "tokens": draw.choice([16, 300, 2000])}
    if draw.random() < 0.3:
        workload |= {"kind": "sessions", "turns": draw.choice([3, {"dist": "uniform", "min": 1, "max": 9}])}
        workload["think_time_s"] = draw.choice([0, 1, {"dist": "exponential", "mean": 5}])
    if draw.random() < 0.3:
        workload["time_limit_s"] = draw.choice([1, 10, 60])
    return workload


def random_parameters(draw: random.Random, gpu: str) -> Parameters:
    return resolve(
        {
            "gpu": gpu,
            "tensor_parallel_size": draw.choice([1, 2, 4]),
            "replicas": draw.choice([1, 2, 5]),
            "max_num_seqs": draw.choice([1, 2, 7, 32, 256]),
            "max_num_batched_tokens": draw.choice([256, 300, 2048, 8192]),
            "enable_prefix_caching": draw.random() < 0.7,
            "kv_cache_dtype": draw.choice(["auto", "fp8"]),
            "async_scheduling": draw.random() < 0.7,
            "scheduling": draw.choice(["fcfs", "sjf"]),
            "routing": draw.choice(["round-robin", "least-loaded", "weighted"]),
            "admission": draw.choice(["always-admit", "always-admit", "probabilistic"]),
            "gateway": draw.choice(["none", "llm-d"]),
            "gpu_memory_utilization": draw.choice([0.9, 0.95]),
            "long_prefill_token_threshold": draw.choice([0, 0, 100]),
            "kv_offload": draw.choice(["none", {"name": "tiered", "host_gib": 2, "disk_gib": 50}]),
            **(random_pool(draw) if draw.random() < 0.4 else {}),
        }
    )


def random_pool(draw: random.Random) -> Parameters:
    """The parameters of a prefill pool."""
    seats = draw.choice([1, 4, 64])
    return {
        "prefill_replicas": draw.choice([1, 2, 4]),
        "prefill_tensor_parallel_size": draw.choice([None, 1, 2, 4]),
        "prefill_max_num_seqs": seats,
        "prefill_max_num_batched_tokens": seats + draw.choice([200, 2048, 16384]),
        "disaggregation": draw.choice(
            ["always", {"name": "prefix-based", "non_cached_tokens": draw.choice([0, 1, 500, 4000])}]
        ),
        "prefill_routing": draw.choice(["least-loaded", "round-robin"]),
        "kv_transfer_gb_per_s": draw.choice([1.0, 25.0, 1e6]),
    }


def evaluator_of(model: str, workload: dict[str, Any], gpus: tuple[str, ...], slo: list[str], seed: int) -> Evaluator:
    document = {
        "name": "random",
        "model": model,
        "workload": workload,
        "slo": slo,
        "objectives": [{"minimize": "gpus"}],
        "space": {"gpu": list(gpus)},
        "search": {"seed": seed},
    }
    return make_evaluator(parse_space(document, Path()))


def crossed(bounds: dict[str, float], metrics: dict[str, float]) -> list[str]:
    """The metrics that are better than their bound."""
    found = []
    for name, bound in bounds.items():
        value = metrics[name]
        if not math.isnan(value) and (value < bound if METRICS[name] == "min" else value > bound):
            found.append(f"{name}: {value} beyond {bound}")
    return found


@pytest.mark.parametrize("part", range(12))
def test_no_simulation_is_better_than_its_bounds(part: int) -> None:
    simulated = 0
    for case in range(part * 12, part * 12 + 12):
        draw = random.Random(case)
        slo = ["ttft_p90_ms <= 400", "tpot_mean_ms <= 40"] if draw.random() < 0.5 else []
        evaluator = evaluator_of(draw.choice(MODELS), random_workload(draw), GPUS, slo, case)
        bounds = Bounds(evaluator)
        for _ in range(3):
            parameters = random_parameters(draw, draw.choice(GPUS))
            outcome = evaluator(parameters)
            assert outcome.failed is None, (case, outcome.failed)
            if outcome.refused is not None:
                continue
            simulated += 1
            found = bounds.of(parameters)
            assert {"ttft_mean_ms", "output_tokens_per_s"} <= set(found) or not outcome.metrics["completed"]
            assert not crossed(found, outcome.metrics), (case, parameters)
    assert simulated > 5


LOADED = {"kind": "lengths", "input": 600, "output": 250, "num_requests": 600}


def bounds_and_metrics(rate_rps: float, slo: tuple[str, ...] = (), **given: Any) -> tuple[dict[str, float], Any]:
    workload = LOADED | {"arrival": {"process": "constant", "rate_rps": rate_rps}}
    evaluator = evaluator_of("meta-llama/Llama-3.1-8B-Instruct", workload, GPUS, list(slo), 0)
    parameters = resolve({"gpu": "H100-SXM-80GB", **given})
    return Bounds(evaluator).of(parameters), evaluator(parameters).metrics


def test_a_deployment_with_too_few_seats_is_known_to_be_without_simulation() -> None:
    bounds, metrics = bounds_and_metrics(50, max_num_seqs=4)
    assert metrics["ttft_mean_ms"] > 10_000
    assert bounds["ttft_mean_ms"] > 0.5 * metrics["ttft_mean_ms"]
    assert bounds["ttft_p99_ms"] > 0.5 * metrics["ttft_p99_ms"]
    assert bounds["output_tokens_per_s"] < 1.5 * metrics["output_tokens_per_s"]


def test_most_of_the_requests_are_known_to_miss_their_limit_where_seats_are_too_few() -> None:
    bounds, metrics = bounds_and_metrics(50, ("ttft_p90_ms <= 500",), max_num_seqs=4)
    assert metrics["slo_attainment"] <= bounds["slo_attainment"] < 0.5


def test_without_load_the_floors_are_close() -> None:
    bounds, metrics = bounds_and_metrics(0.1)
    for name in ("ttft_mean_ms", "tpot_mean_ms", "e2e_p99_ms", "itl_p50_ms"):
        assert 0.9 < bounds[name] / metrics[name] <= 1.0, name


def test_without_load_the_floors_of_two_pools_are_close_but_for_the_transfer() -> None:
    bounds, metrics = bounds_and_metrics(0.1, prefill_replicas=1, kv_transfer_gb_per_s=1e6, kv_transfer_latency_ms=0)
    for name in ("ttft_mean_ms", "tpot_mean_ms", "e2e_p99_ms", "itl_p50_ms"):
        assert 0.9 < bounds[name] / metrics[name] <= 1.0, name


def test_bounds_tighten_with_load_beyond_capacity() -> None:
    bounds, metrics = bounds_and_metrics(500, max_num_seqs=64)
    assert 0.7 < metrics["output_tokens_per_s"] / bounds["output_tokens_per_s"] <= 1.0


# -- queues of any discipline -------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 30), st.booleans())
def test_no_order_of_service_starts_or_finishes_requests_before_the_floors(
    seed: int, seats: int, count: int, shortest_first: bool
) -> None:
    draw = random.Random(seed)
    arrivals = sorted(draw.uniform(0, 20) for _ in range(count))
    times = [draw.uniform(0.5, 3) for _ in range(count)]
    free = [0.0] * seats
    waiting: list[int] = []
    starts: list[tuple[float, int]] = []
    pending = list(range(count))
    while pending or waiting:
        seat = min(range(seats), key=free.__getitem__)
        now = max(free[seat], 0.0 if waiting else arrivals[pending[0]])
        while pending and arrivals[pending[0]] <= now:
            waiting.append(pending.pop(0))
        waiting.sort(key=times.__getitem__ if shortest_first else lambda _: draw.random())
        chosen = waiting.pop(0)
        starts.append((now, chosen))
        free[seat] = now + times[chosen]
    finishes = sorted(now + times[chosen] for now, chosen in starts)
    came, work = np.array(arrivals), np.array(times)
    floors = finish_floors(came, work, seats)
    assert (floors <= np.array(finishes) + 1e-9).all()
    begun = start_floors(came, work, seats, floors)
    assert (begun <= np.array(sorted(now for now, _ in starts)) + 1e-9).all()
    waits = np.sort([now - arrivals[chosen] for now, chosen in starts])
    for rank in (0, count // 2, count - 1):
        assert wait_floor(came, begun, rank) <= waits[rank] + 1e-9
    assert waiting_longer(came, begun, 1.0) <= int((waits > 1.0 - 1e-9).sum())
