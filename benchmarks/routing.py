"""Microseconds a request by routing policy: 4 to 256 replicas at the same load a replica, compiled and interpreted.

Run it as ``python benchmarks/routing.py``; ``--policy NAME`` measures one, ``--profile`` shows where its time goes.
Every request is 550 tokens long, of which 256 belong to one of 64 system prompts, and is answered with 250.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from sim.random_streams import random_stream  # noqa: E402

SIZES = (4, 16, 64, 256)
RATE_RPS = 20.0  # a replica: some 60% of what it can serve
REQUESTS = 10_000
TARGET = 5.0  # 256 replicas cost at most so many times as much as 4

LIVE = ("active-request-scorer", "token-load-scorer", "no-hit-lru-scorer", "session-affinity-scorer")
SCRAPED = ("running-requests-size-scorer", "load-aware-scorer")


def policies() -> dict[str, dict]:
    """What is measured: every shipped routing policy, and `weighted` with what costs most in it."""
    from sim.cluster import policy_names

    everything = dict.fromkeys((*LIVE, *SCRAPED), 1)
    measured: dict[str, dict] = {name: {"name": name} for name in policy_names("routing")}
    measured["weighted, all scorers"] = {"name": "weighted", "scorers": everything}
    measured["weighted, precise index"] = {"name": "weighted", "prefix_index": "precise"}
    both = {"scorers": everything, "prefix_index": "precise", "filter": "prefix-cache-affinity-filter"}
    measured["weighted, all of these"] = {"name": "weighted", **both}
    return measured


def workload(replicas: int, requests: int):
    from sim.workload import build_workload, parse_workload

    spec = {
        "kind": "lengths",
        "input": {"dist": "normal", "mean": 294, "sd": 100, "min": 50, "max": 1000},
        "output": {"dist": "normal", "mean": 250, "sd": 25, "min": 1, "max": 500},
        "prefix": {"groups": 64, "tokens": 256},
        "arrival": {"process": "poisson", "rate_rps": RATE_RPS * replicas},
        "num_requests": requests,
    }
    load = build_workload(parse_workload(spec), 0, None)
    sessions = 4 * replicas
    load.tenants = [f"session {number}" for number in range(sessions)]
    load.tenant = random_stream(0, "session").integers(0, sessions, requests, dtype=np.int64)
    return load


def measure(routing: dict, replicas: int, requests: int, repeats: int, profile: bool = False) -> float:
    """CPU microseconds a request of one simulation without its metrics; the best of `repeats`."""
    from sim.catalog import load_gpu, load_model
    from sim.deployment import Deployment, PolicySpec
    from sim.simulate import simulate

    parameters = {key: value for key, value in routing.items() if key != "name"}
    deployment = Deployment(
        load_model("meta-llama/Llama-3.1-8B-Instruct"),
        load_gpu("H100-SXM-80GB"),
        replicas=replicas,
        routing=PolicySpec(routing["name"], parameters),
    )
    requested = workload(replicas, requests)
    if profile:
        import cProfile

        cProfile.runctx("simulate(deployment, requested)", globals(), locals() | {"simulate": simulate}, sort="tottime")
    times = []
    for _ in range(repeats):
        start = time.process_time()
        simulate(deployment, requested)
        times.append(time.process_time() - start)
    return min(times) / requests * 1e6


def child(arguments: list, interpreted: bool) -> list[float] | None:
    """Microseconds by size; None if it should be compiled and is not."""
    environment = dict(os.environ)
    environment.pop("PLANNER_INTERPRETED", None)
    if interpreted:
        environment["PLANNER_INTERPRETED"] = "1"
    command = [sys.executable, __file__, "--child", json.dumps(arguments)]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def run_child(routing: dict, requests: int, repeats: int) -> list[float] | None:
    import sim.engine.replica as replica

    if replica.__file__.endswith(".py") and not os.environ.get("PLANNER_INTERPRETED"):
        return None
    measure(routing, 4, 200, 1)
    return [measure(routing, size, requests, repeats) for size in SIZES]


def table(chosen: list[str], requests: int, repeats: int) -> None:
    print(f"{'':<26}" + "".join(f"{size:>8}" for size in SIZES) + f"{SIZES[-1]:>8} / {SIZES[0]}")
    worst = 0.0
    for name, routing in policies().items():
        for interpreted in (False, True) if not chosen or name in chosen else ():
            found = child([routing, requests, repeats], interpreted)
            if found is None:
                continue
            ratio = found[-1] / found[0]
            worst = max(worst, ratio)
            label = "  interpreted" if interpreted else name
            print(f"{label:<26}" + "".join(f"{us:8.1f}" for us in found) + f"{ratio:11.1f}x", flush=True)
    print(f"microseconds a request, {requests} requests; worst ratio {worst:.1f} (target: at most {TARGET:g})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--policy", action="append", default=[], help="measure only this one")
    parser.add_argument("--profile", type=int, metavar="REPLICAS", help="profile --policy at this size")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(run_child(*json.loads(args.child))))
    elif args.profile:
        measure(policies()[args.policy[0]], args.profile, args.requests, 1, profile=True)
    else:
        table(args.policy, args.requests, args.repeats)


if __name__ == "__main__":
    main()
