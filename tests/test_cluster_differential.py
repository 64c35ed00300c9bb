"""The cluster against the naive one: every policy, flow control, stale and live snapshots, loops, time limits."""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from sim.cluster import make_policy, policy_names
from sim.cluster.cluster import Cluster, policy_random
from sim.cluster.routing.pickers import PICKERS
from sim.cluster.routing.scorers import SCORERS
from sim.cluster.routing.weighted import FILTERS
from sim.deployment import PolicySpec
from sim.engine.blocks import ContentPaths
from sim.engine.replica import Replica
from sim.engine.requests import EXPIRED, REJECTED, SHED, RequestTable
from sim.engine.scheduler import EngineConfig
from sim.latency import RequestOverhead
from sim.workload import Workload
from tests.cluster_oracle import OracleCluster
from tests.oracle import OracleReplica, OracleRequest
from tests.random_cases import Case, random_case
from tests.test_engine_differential import FAR, PREEMPTION, SCHEDULING, engine_of

CASES = int(os.environ.get("DIFFERENTIAL_CASES", "2000")) // 4
CHUNKS = 10


def served_by_one_ps(case: Case) -> int:
    """When a single replica would have served all requests."""
    table, replica = engine_of(case)
    for index, request in enumerate(case.requests):
        replica.advance(request.queue_ps)
        if table.outcome[index] != REJECTED:
            replica.enqueue(index, request.queue_ps)
    replica.advance(FAR)
    return max(table.finish_ps)


def cluster_case(seed: int) -> tuple[Case, Workload, RequestOverhead, dict[str, object]]:
    """A random replica case as a cluster: its requests arrive at a gateway, or come from users in a closed loop."""
    random = Random(f"cluster {seed}")
    case = random_case(seed)
    unit = getattr(case.step_time, "unit_ps", 1)
    contents = sorted({request.pieces for request in case.requests} | {()})
    column = {
        name: np.array([getattr(r, name) for r in case.requests], dtype=np.int64)
        for name in ("queue_ps", "prompt_tokens", "output_tokens", "priority")
    }
    closed = random.random() < 0.35
    users = random.randint(1, len(case.requests)) if closed else 0
    span = max(1, int(column["queue_ps"].max()))
    # The naive cluster takes every scrape: at most some hundreds until one replica had served all.
    shortest = max(random.choice((unit, unit * 7)), served_by_one_ps(case) // 300)
    workload = Workload(
        "case",
        column["queue_ps"],
        column["prompt_tokens"],
        column["output_tokens"],
        np.array([contents.index(request.pieces) for request in case.requests], dtype=np.int64),
        contents=contents,
        priority=column["priority"] - random.randint(0, 2),
        users=users,
        think_time_ps=random.choice((0, unit * random.randint(1, 50))),
        user_start_ps=np.sort(column["queue_ps"][:users]) if closed and random.random() < 0.5 else None,
        time_limit_ps=random.choice((0, 0, random.randint(1, 3 * span))),
        tenant=np.array([random.randrange(3) for _ in case.requests], dtype=np.int64),
        tenants=["a", "b", "c"],
    )
    overhead = RequestOverhead(*(unit * random.choice((0, random.randint(0, 20))) for _ in range(5)))
    return (
        case,
        workload,
        overhead,
        {
            "replicas": random.randint(1, 4),
            "routing": random.choice(policy_names("routing")),
            "admission": random.choice(policy_names("admission")),
            "flow_control": random.choice(("none", *policy_names("flow_control"))),
            "cycle_ps": max(random.choice((unit, 3 * unit)), shortest // random.choice((1, 1, 3))),
            "span_ps": span,
            "interval_ps": random.choice((0, shortest, max(shortest, span))),
        },
    )


def routing_parameters(random: Random, name: str) -> dict[str, object]:
    if name == "weighted" and random.random() < 0.8:
        names = random.sample(list(SCORERS), random.randint(0, 4))
        return {
            "scorers": {scorer: random.choice((0, 1, 2.5)) for scorer in names},
            "picker": random.choice(list(PICKERS)),
            "filter": random.choice(
                ("none", *FILTERS, {"name": "prefix-cache-affinity-filter", "max_ttft_penalty_ms": 1})
            ),
            "prefix_index": random.choice(("approximate", "precise", "precise")),
        }
    if name == "cache-aware":
        return {"balance_abs_threshold": random.choice((1, 64)), "cache_threshold": random.choice((0.1, 0.5))}
    return {}


def admission_parameters(random: Random, name: str) -> dict[str, object]:
    if name == "token-bucket":
        return {
            "capacity_tokens": 200.0,
            "refill_tokens_per_s": 1e9,
            "cost": random.choice(("requests", "prompt_tokens")),
        }
    if name == "probabilistic":
        return {"queue_depth_threshold": 2.0, "k": 1.0, "power": 1.0}
    if name == "tier-shed":
        return {"overload_threshold": random.choice((1.0, 4.0)), "min_priority": random.choice((0, 1))}
    if name == "reject-negative":
        return {"detector": {"name": "utilization-detector", "queue_depth_threshold": 1}}
    return {"ttft_ms": 10.0} if name == "latency-slo" else {}


def flow_parameters(random: Random, name: str, setting: dict[str, object]) -> dict[str, object]:
    if name == "none":
        return {}
    span_ps = setting["span_ps"]
    detectors = (
        {
            "name": "utilization-detector",
            "queue_depth_threshold": random.choice((0.5, 1, 2)),
            "kv_cache_util_threshold": 0.5,
        },
        {"name": "utilization-detector", "metrics_staleness_threshold_ms": max(1, span_ps // 5) / 1e9},
        {"name": "concurrency-detector", "max_concurrency": random.choice((1, 1.5, 3))},
        {
            "name": "concurrency-detector",
            "max_token_concurrency": 50,
            "concurrency_mode": random.choice(("tokens", "hybrid")),
        },
    )
    return {
        "detector": random.choice(detectors),
        "ordering": random.choice(("fcfs", "edf", {"name": "slo-deadline", "by": {"a": 0, "b": span_ps / 1e9}})),
        "fairness": random.choice(("global-strict", "round-robin")),
        "ttl_s": random.choice((span_ps // 10 + 1, span_ps + 1, 10 * span_ps + 1)) / 1e12,
        "max_requests": random.choice((1, 3, 5000)),
        "cycle_ms": setting["cycle_ps"] / 1e9,
        **({"min_ceiling": random.choice((0, 0.3))} if name == "priority-holdback" else {}),
    }


def policies(case: Case, setting: dict[str, object]) -> list[object]:
    """Routing, admission and flow control with random parameters."""
    random = Random(f"policies {case.seed}")
    made = []
    for kind in ("routing", "admission", "flow_control"):
        name = str(setting[kind])
        if kind == "flow_control":
            parameters = flow_parameters(random, name, setting)
        else:
            parameters = (routing_parameters if kind == "routing" else admission_parameters)(random, name)
        policy = make_policy(kind, PolicySpec(name, parameters), kind)
        policy.random = policy_random(case.seed, kind)
        made.append(policy)
    return made


def run_cluster(seed: int) -> dict[str, object]:
    case, workload, overhead, setting = cluster_case(seed)
    table = RequestTable(workload)
    settings = dict(case.settings)
    size = settings["block_size"]
    table.reject_longer(settings.pop("max_model_len"), settings["num_blocks"] * size)
    settings["scheduling"] = SCHEDULING[settings["scheduling"]]
    settings["preemption"] = PREEMPTION[settings["preemption"]]
    paths = ContentPaths(size)
    replicas = [Replica(table, EngineConfig(**settings), case.step_time, paths) for _ in range(setting["replicas"])]
    routing, admission, flow = policies(case, setting)
    Cluster(table, replicas, overhead, routing, admission, setting["interval_ps"], size, flow).run(workload)
    limit = workload.time_limit_ps or 1 << 60
    return {
        "arrival": [a if a <= limit else -1 for a in table.arrival_ps],
        "replica": list(table.replica),
        "rejected": [i for i, o in enumerate(table.outcome) if o == REJECTED and -1 < table.arrival_ps[i] <= limit],
        "shed": [i for i, o in enumerate(table.outcome) if o == SHED],
        "expired": [i for i, o in enumerate(table.outcome) if o == EXPIRED],
        "queue": [q if q <= limit else -1 for q in table.queue_ps],
        "scheduled": list(table.scheduled_ps),
        "first": [t if t <= limit else -1 for t in table.first_token_ps],
        "finish": list(table.finish_ps),
        "cached": list(table.cached_tokens),
        "preemptions": list(table.preemptions),
    }


def run_oracle(seed: int) -> dict[str, object]:
    case, workload, overhead, setting = cluster_case(seed)
    routing, admission, flow = policies(case, setting)
    requests = [replace(r, queue_ps=-1) for r in case.oracle_requests()]
    for request, priority in zip(requests, workload.priority.tolist(), strict=True):
        request.priority = priority
    replicas = [OracleReplica(case.step_time, **case.settings) for _ in range(setting["replicas"])]
    cluster = OracleCluster(
        workload,
        replicas,
        overhead,
        routing,
        admission,
        setting["interval_ps"],
        case.settings["block_size"],
        requests,
        None if setting["flow_control"] == "none" else flow,
    )
    cluster.run()
    limit = workload.time_limit_ps or 1 << 60

    def reached(request: OracleRequest, name: str) -> int:
        time = getattr(request, name)
        return time if time <= limit else -1

    return {
        "arrival": [cluster.arrived_ps.get(i, -1) for i in range(len(requests))],
        "replica": [cluster.routed_to.get(i, -1) for i in range(len(requests))],
        "rejected": [i for i, r in enumerate(requests) if r.rejected],
        "shed": sorted(cluster.shed),
        "expired": sorted(cluster.expired),
        "queue": [reached(r, "queue_ps") for r in requests],
        "scheduled": [r.scheduled_ps for r in requests],
        "first": [reached(r, "first_token_ps") for r in requests],
        "finish": [reached(r, "finish_ps") for r in requests],
        "cached": [max(0, r.cached_tokens) for r in requests],
        "preemptions": [r.preemptions for r in requests],
    }


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_cluster_does_what_the_naive_one_does(chunk: int) -> None:
    for seed in range(chunk, CASES, CHUNKS):
        expected, got = run_oracle(seed), run_cluster(seed)
        assert got == expected, f"seed {seed}: {[key for key in got if got[key] != expected[key]]}"
