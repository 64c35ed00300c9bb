"""Microseconds a request, simulation and metrics included: interpreted, compiled, and the stepping oracle, in one run.

Six scenarios: outputs of 250 and 1450 tokens, at 20, 60 and 95% of the rate that the deployment can serve. Run it as
``python benchmarks/engine.py``; with ``--scale`` it measures 10,000 to 1,000,000 requests instead.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
SCENARIOS = [(output, load) for output in (250, 1450) for load in (0.2, 0.6, 0.95)]
REPLICAS = 4
PROMPT = {250: 550, 1450: 1030}


def setting():
    from sim.catalog import load_gpu, load_model
    from sim.deployment import Deployment

    return Deployment(load_model("meta-llama/Llama-3.1-8B-Instruct"), load_gpu("H100-SXM-80GB"), replicas=REPLICAS)


def workload(output: int, rate_rps: float, requests: int):
    from sim.workload import build_workload, parse_workload

    spec = {
        "kind": "lengths",
        "input": {"dist": "normal", "mean": PROMPT[output], "sd": 100, "min": 50, "max": 2 * PROMPT[output]},
        "output": {"dist": "normal", "mean": output, "sd": output / 10, "min": 1, "max": 2 * output},
        "arrival": {"process": "poisson", "rate_rps": rate_rps},
        "num_requests": requests,
    }
    return build_workload(parse_workload(spec), 0, None)


def capacity_rps(output: int) -> float:
    """Requests a second that the deployment serves when all of them are there at once."""
    from sim.simulate import simulate

    return simulate(setting(), workload(output, 1e6, 8000)).summary()["requests_per_s"]


def measure(output: int, rate_rps: float, requests: int, repeats: int) -> float:
    """CPU seconds of one simulation with its metrics; the best of `repeats`."""
    from sim.simulate import simulate

    deployment, requested = setting(), workload(output, rate_rps, requests)
    times = []
    for _ in range(repeats):
        start = time.process_time()
        simulate(deployment, requested).summary()
        times.append(time.process_time() - start)
    return min(times)


def measure_oracle(output: int, rate_rps: float, requests: int) -> float:
    """CPU seconds of the stepping oracle on the same requests."""
    from sim.latency import build_step_time, load_coefficients
    from sim.memory import kv_capacity
    from tests.oracle import OracleReplica, OracleRequest

    deployment, requested = setting(), workload(output, rate_rps, requests)
    capacity = kv_capacity(deployment)
    step_time = build_step_time(deployment, load_coefficients())
    replicas = [
        OracleReplica(
            step_time,
            max_num_seqs=deployment.max_num_seqs,
            max_num_batched_tokens=deployment.max_num_batched_tokens,
            max_model_len=capacity.max_model_len,
            block_size=deployment.block_size,
            num_blocks=capacity.num_blocks,
            enable_prefix_caching=True,
            async_scheduling=True,
            long_prefill_token_threshold=0,
            scheduling="fcfs",
            preemption="fcfs",
        )
        for _ in range(REPLICAS)
    ]
    columns = (requested.arrival_ps.tolist(), requested.prompt_tokens.tolist(), requested.output_tokens.tolist())
    start = time.process_time()
    for index, (arrival, prompt, tokens) in enumerate(zip(*columns, strict=True)):
        replica = replicas[index % REPLICAS]
        replica.advance(arrival)
        replica.enqueue(index, OracleRequest(arrival, prompt, tokens))
    for replica in replicas:
        replica.advance(1 << 60)
    return time.process_time() - start


def child(arguments: list[str], interpreted: bool) -> dict:
    environment = dict(os.environ)
    environment.pop("PLANNER_INTERPRETED", None)
    if interpreted:
        environment["PLANNER_INTERPRETED"] = "1"
    command = [sys.executable, __file__, "--child", json.dumps(arguments)]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def run_child(arguments: list) -> dict:
    import sim.engine.replica as replica

    output, rate_rps, requests, repeats = arguments
    measure(output, rate_rps, 200, 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = measure(output, rate_rps, requests, repeats)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "us": seconds / requests * 1e6,
        "compiled": not replica.__file__.endswith(".py"),
        "bytes": (after - before) * 1024 / requests,
    }


def scenarios(requests: int, oracle_requests: int) -> None:
    rates = {output: capacity_rps(output) for output in (250, 1450)}
    print("output  load    rate  interpreted  compiled    oracle  oracle/interpreted")
    ratios = []
    for output, load in SCENARIOS:
        rate = load * rates[output]
        interpreted = child([output, rate, requests, 3], interpreted=True)
        compiled = child([output, rate, requests, 3], interpreted=False)
        oracle = measure_oracle(output, rate, oracle_requests) / oracle_requests * 1e6
        ratios.append(oracle / interpreted["us"])
        fast = f"{compiled['us']:9.2f}" if compiled["compiled"] else "     none"
        slow = f"{interpreted['us']:>12.2f}"
        print(f"{output:>6} {load:>5} {rate:>7.1f} {slow} {fast} {oracle:>9.0f} {ratios[-1]:>18.0f}x")
    print(f"microseconds a request, {requests} requests ({oracle_requests} for the oracle) on {REPLICAS} replicas;")
    print(f"oracle / interpreted: median {statistics.median(ratios):.0f}x")


def scale() -> None:
    rate = 0.6 * capacity_rps(250)
    for requests in (10_000, 100_000, 1_000_000):
        for interpreted in (True, False):
            found = child([250, rate, requests, 1], interpreted)
            kind = "compiled" if found["compiled"] else "interpreted"
            cost = f"{found['us']:6.2f} us and {found['bytes']:5.0f} bytes a request"
            print(f"{requests:>9} requests, {kind:<11}: {cost}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--oracle-requests", type=int, default=1_000)
    parser.add_argument("--scale", action="store_true", help="cost and memory from 10,000 to 1,000,000 requests")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(run_child(json.loads(args.child))))
    elif args.scale:
        scale()
    else:
        scenarios(args.requests, args.oracle_requests)


if __name__ == "__main__":
    main()
