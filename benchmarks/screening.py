"""Screening against simulating everything: how much of the front it finds, for which share of the simulated requests.

    python benchmarks/screening.py [SPACE ...] [--workers N]

Each space is one of `SPACES`, of 2,000 candidates or more. The hypervolume is that of the feasible front, with costs
scaled to the exact front's range, up to a tenth beyond its worst point; the exact front is that of all candidates.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from planner.bounds import Bounds
from planner.evaluate import make_evaluator
from planner.executors import make_executor
from planner.search.driver import Search
from planner.search.evaluations import front_of
from planner.search.surroundings import Found
from planner.search.twins import Twins, alike_schedulings
from planner.space import Space, parse_space

CHAT = {
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "workload": {"preset": "chatbot", "arrival": {"process": "poisson", "rate_rps": 30}, "num_requests": 1500},
    "slo": ["ttft_p90_ms <= 500", "tpot_mean_ms <= 40"],
    "objectives": [{"minimize": "cost_per_hour"}, {"minimize": "ttft_p90_ms"}],
    "space": {
        "gpu": ["L4", "L40S", "A100-SXM-80GB", "H100-SXM-80GB"],
        "tensor_parallel_size": [1, 2],
        "replicas": {"min": 1, "max": 8},
        "max_num_seqs": [16, 32, 64, 128],
        "max_num_batched_tokens": [1024, 2048, 4096, 8192],
        "routing": ["round-robin", "least-loaded", "random"],
    },
}
CODE = {
    "model": "meta-llama/Llama-2-70b-hf",
    "workload": {
        "kind": "lengths",
        "input": {"dist": "lognormal", "mean": 600, "sd": 400, "min": 20, "max": 3000},
        "output": {"dist": "lognormal", "mean": 250, "sd": 150, "min": 5, "max": 1000},
        "arrival": {"process": "poisson", "rate_rps": 5},
        "num_requests": 1500,
    },
    "slo": ["ttft_mean_ms <= 500", "tpot_p90_ms <= 60"],
    "objectives": [{"minimize": "gpus"}, {"minimize": "ttft_mean_ms"}, {"minimize": "tpot_mean_ms"}],
    "space": {
        "gpu": ["H100-SXM-80GB"],
        "tensor_parallel_size": [2, 4, 8],
        "replicas": {"min": 1, "max": 6},
        "max_num_seqs": [8, 16, 32, 64, 128, 256],
        "max_num_batched_tokens": [512, 1024, 2048, 4096, 8192],
        "scheduling": ["fcfs", "sjf"],
        "routing": ["round-robin", "least-loaded", "random"],
    },
}
ROUTING = {
    "model": "Qwen/Qwen3-14B",
    "workload": {
        "kind": "lengths",
        "prefix": {"groups": 60, "tokens": 2000},
        "input": {"dist": "lognormal", "mean": 300, "sd": 250, "min": 10, "max": 3000},
        "output": {"dist": "lognormal", "mean": 220, "sd": 180, "min": 5, "max": 1500},
        "arrival": {"process": "gamma", "rate_rps": 24, "cv": 2},
        "num_requests": 1500,
    },
    "slo": ["ttft_p99_ms <= 2000", "tpot_p90_ms <= 50"],
    "objectives": [{"minimize": "gpus"}, {"minimize": "ttft_p99_ms"}],
    "space": {
        "gpu": "H100-SXM-80GB",
        "tensor_parallel_size": [1, 2],
        "replicas": {"min": 1, "max": 6},
        "max_num_seqs": [32, 64, 128, 256],
        "max_num_batched_tokens": [2048, 4096, 8192],
        "routing": ["round-robin", "least-loaded", {"name": "weighted", "prefix": [0, 1, 3]}],
        "snapshot_interval_ms": [0, 50, 500],
        "admission": ["always-admit", "probabilistic"],
    },
}
SPACES: dict[str, dict[str, Any]] = {"chat": CHAT, "code": CODE, "routing": ROUTING}


class _Nowhere:
    def append(self, evaluations: Any) -> None:
        """Nothing is kept."""


def run(space: Space, workers: int, bounded: bool) -> tuple[Found, Search, float]:
    """A search, and the seconds it took."""
    evaluator = make_evaluator(space)
    executor = make_executor("processes" if workers > 1 else "serial", evaluator, workers)
    twins = Twins(alike_schedulings(evaluator.workload))
    started = time.monotonic()
    try:
        bounds = Bounds(evaluator) if bounded else None
        search = Search(space, evaluator, executor, _Nowhere(), twins=twins, bounds=bounds)
        return search.run(), search, time.monotonic() - started
    finally:
        executor.close()


def front_costs(found: Found, space: Space) -> np.ndarray:
    """The costs of the front, (plans, objectives)."""
    by_id = {e["id"]: e for e in found.evaluations}
    metrics = [by_id[plan]["metrics"] for plan in front_of(found.evaluations, space)]
    return np.array([[o.cost(m) for o in space.objectives] for m in metrics])


def hypervolume_ratio(front: np.ndarray, exact: np.ndarray) -> float:
    """The hypervolume of `front` as a share of that of `exact`."""
    from pymoo.indicators.hv import HV

    low, high = exact.min(axis=0), exact.max(axis=0)
    span = np.where(high > low, high - low, np.abs(low) + 1e-9)
    volume = HV(ref_point=np.full(exact.shape[1], 1.1))
    return float(volume((front - low) / span) / volume((exact - low) / span)) if len(front) else 0.0


def compare(name: str, workers: int) -> dict[str, Any]:
    """The figures of one space."""
    document = {"name": name, **SPACES[name]}
    spaces = {m: parse_space(document | {"search": {"method": m}}, Path()) for m in ("exhaustive", "screening")}
    exact, everything, exact_s = run(spaces["exhaustive"], workers, bounded=False)
    found, search, found_s = run(spaces["screening"], workers, bounded=True)
    requests = len(make_evaluator(spaces["exhaustive"]).workload)
    candidates = sum(not e.get("refused") for e in exact.evaluations)
    total = everything.simulations.run * requests
    mine = search.simulations.run * requests + search.simulations.trial_requests
    fronts = front_costs(exact, spaces["exhaustive"]), front_costs(found, spaces["screening"])
    return {
        "space": name,
        "candidates": candidates,
        "simulated_requests_of_all": total,
        "simulated_requests": mine,
        "share": round(mine / total, 4),
        "hypervolume_ratio": round(hypervolume_ratio(fronts[1], fronts[0]), 5),
        "front": [len(fronts[0]), len(fronts[1])],
        "ruled_out_by_bounds": sum(e.get("bound") == "constraint" for e in found.evaluations),
        "wall_s": [round(exact_s, 1), round(found_s, 1)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spaces", nargs="*", choices=[*SPACES, []], default=list(SPACES))
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    for name in arguments.spaces:
        print(json.dumps(compare(name, arguments.workers)), flush=True)


if __name__ == "__main__":
    main()
