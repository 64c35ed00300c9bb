"""The Mooncake conversation trace on 8 and 16 replicas: hit rate, TTFT and simulation time by routing policy.

``python benchmarks/mooncake.py TRACE``, with `conversation_trace.jsonl` of the Mooncake release (FAST'25; 12,031
requests in an hour). All of them begin with the same block of 512 tokens, and they come at only 1,180 moments.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
TRACE = ROOT.parent / "shared" / "traces" / "mooncake_conversation.jsonl"
CASES = ((8, 1.0), (16, 0.5), (16, 1.0))  # (replicas, arrival_scale)
MODEL, GPU = "meta-llama/Llama-3.1-8B-Instruct", "H100-SXM-80GB"
TOKEN_LOAD = {"token-load-scorer": {"weight": 2, "queue_threshold_tokens": 200_000}}

POLICIES: dict[str, dict] = {
    "round-robin": {"name": "round-robin"},
    "random": {"name": "random"},
    "least-loaded": {"name": "least-loaded"},
    "least-outstanding-tokens": {"name": "least-outstanding-tokens"},
    "power-of-two": {"name": "power-of-two"},
    "vllm-dp": {"name": "vllm-dp"},
    "cache-aware": {"name": "cache-aware"},
    "weighted": {"name": "weighted"},
    "weighted, precise index": {"name": "weighted", "prefix_index": "precise"},
    "weighted + active requests 2": {"name": "weighted", "scorers": {"active-request-scorer": 2}},
    "weighted + token load 2": {"name": "weighted", "scorers": TOKEN_LOAD},
    "prefix 3, token load 2": {"name": "weighted", "queue": 0, "kv": 0, "scorers": TOKEN_LOAD},
}


def simulated(trace: Path, routing: dict, replicas: int, scale: float) -> tuple[dict, float]:
    """The summary, and the CPU seconds that it took."""
    from sim.catalog import load_gpu, load_model
    from sim.deployment import Deployment, PolicySpec
    from sim.simulate import simulate
    from sim.workload import build_workload, parse_workload

    load = build_workload(parse_workload({"trace": trace.name, "arrival_scale": scale}), 0, trace.parent)
    plan = Deployment(
        load_model(MODEL),
        load_gpu(GPU),
        replicas=replicas,
        max_num_batched_tokens=8192,
        routing=PolicySpec(routing["name"], {key: value for key, value in routing.items() if key != "name"}),
    )
    start = time.process_time()
    summary = simulate(plan, load).summary()
    return summary, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path, nargs="?", default=TRACE)
    args = parser.parse_args()
    if not args.trace.exists():
        print(f"skipped: there is no trace {args.trace}; give the path of Mooncake's conversation trace")
        return
    for replicas, scale in CASES:
        print(f"\n{MODEL} on {replicas} {GPU}, arrival_scale {scale:g}")
        print(
            f"{'':<30}{'hit rate':>9}{'TTFT mean':>12}{'p99':>9}{'in queue':>11}{'replicas used':>15}{'CPU time':>10}"
        )
        for name, routing in POLICIES.items():
            found, seconds = simulated(args.trace, routing, replicas, scale)
            ttft, used = found["ttft_ms"], sum(replica["requests"] > 0 for replica in found["replicas"])
            latencies = f"{ttft['mean']:9.0f} ms{ttft['p99']:9.0f}{found['queue_ms']['mean']:8.0f} ms"
            print(f"{name:<30}{found['prefix_hit_rate']:9.1%}{latencies}{used:15}{seconds:8.2f} s", flush=True)


if __name__ == "__main__":
    main()
