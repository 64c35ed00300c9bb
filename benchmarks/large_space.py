"""A space of more than 20,000 candidates, routing and admission included, searched as `auto` does and in full.

    python benchmarks/large_space.py [--share S] [--requests N] [--workers W] [--no-reference]

Printed: candidates, wall time, the share of the requests simulated (runs stopped early count in full), `exact`,
and the hypervolume of the front found as a share of that of the exact front, from simulating every candidate in full.
That reference takes the longest; `--share` cuts the space down to about that share, `--requests` the workload.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from screening import front_costs, hypervolume_ratio, run

from planner.executors import cpu_count
from planner.space import parse_space

REQUESTS = 300
SPACE: dict[str, Any] = {
    "name": "large-space",
    "model": "Qwen/Qwen3-14B",
    "workload": {
        "kind": "lengths",
        "prefix": {"groups": 40, "tokens": 1500},
        "input": {"dist": "lognormal", "mean": 400, "sd": 300, "min": 10, "max": 3000},
        "output": {"dist": "lognormal", "mean": 120, "sd": 100, "min": 5, "max": 800},
        "arrival": {"process": "gamma", "rate_rps": 24, "cv": 2},
    },
    "slo": ["ttft_p90_ms <= 1000", "tpot_mean_ms <= 50", "shed_rate <= 0.2"],
    "objectives": [{"minimize": "cost_per_hour"}, {"minimize": "ttft_p90_ms"}],
    "space": {
        "gpu": ["L40S", "A100-SXM-80GB", "H100-SXM-80GB"],
        "tensor_parallel_size": [1, 2],
        "replicas": {"min": 1, "max": 8},
        "max_num_seqs": [16, 32, 64, 128, 256],
        "max_num_batched_tokens": [1024, 2048, 4096, 8192],
        "routing": [
            "round-robin",
            "least-loaded",
            "session-affinity",
            {"name": "weighted", "prefix": [0, 1, 3], "queue": [1, 2]},
        ],
        "admission": ["always-admit", {"name": "probabilistic", "k": [1, 2]}],
        "enable_prefix_caching": [True, False],
    },
}


def document(share: float, requests: int, method: str) -> dict[str, Any]:
    """The space, cut down to about `share` of its combinations by leaving out replicas and seats."""
    workload = SPACE["workload"] | {"num_requests": requests}
    parameters = dict(SPACE["space"])
    if share < 1:
        kept = max(1, round(8 * share**0.5))
        parameters["replicas"] = {"min": 2, "max": 1 + kept}
        parameters["max_num_seqs"] = parameters["max_num_seqs"][-max(1, round(5 * share**0.5)) :]
    search = {"method": method, "early_stop": method == "auto"}
    return SPACE | {"workload": workload, "space": parameters, "search": search}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the candidates")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--workers", type=int, default=cpu_count())
    parser.add_argument("--no-reference", action="store_true", help="leave out the search that simulates everything")
    arguments = parser.parse_args()
    spaces = {
        method: parse_space(document(arguments.share, arguments.requests, method), Path())
        for method in ("auto", "exhaustive")
    }
    found, search, found_s = run(spaces["auto"], arguments.workers, bounded=True)
    mine = search.simulations.run * arguments.requests + search.simulations.trial_requests
    stopped = sum(bool(e.get("stopped_early")) for e in found.evaluations)
    figures: dict[str, Any] = {
        "combinations": spaces["auto"].size,
        "candidates": len(found.evaluations),
        "method": found.method,
        "exact": found.exact,
        "wall_s": round(found_s, 1),
        "simulated_requests": mine,
        "ruled_out_by_bounds": sum(e.get("bound") is not None for e in found.evaluations),
        "stopped_early": stopped,
    }
    print(json.dumps(figures), flush=True)
    if arguments.no_reference:
        return
    exact, everything, exact_s = run(spaces["exhaustive"], arguments.workers, bounded=False)
    fronts = front_costs(exact, spaces["exhaustive"]), front_costs(found, spaces["auto"])
    total = everything.simulations.run * arguments.requests
    reference = {
        "reference_wall_s": round(exact_s, 1),
        "reference_simulations": everything.simulations.run,
        "share": round(mine / total, 4),
        "hypervolume_ratio": round(hypervolume_ratio(fronts[1], fronts[0]), 5),
        "front": [len(fronts[0]), len(fronts[1])],
    }
    print(json.dumps(reference), flush=True)


if __name__ == "__main__":
    main()
