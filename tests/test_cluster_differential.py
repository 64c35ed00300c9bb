"""The cluster against the naive one: every policy, flow control, stale and live snapshots, loops, time limits."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest

from sim.cluster import DisaggregationPolicy, make_policy, policy_names
from sim.cluster.cluster import Cluster, Prefill, policy_random
from sim.cluster.policies import ReplicaViews, RequestView, RoutingPolicy
from sim.cluster.routing.pickers import PICKERS
from sim.cluster.routing.scorers import SCORERS
from sim.cluster.routing.weighted import FILTERS
from sim.deployment import PolicySpec
from sim.engine.blocks import ContentPaths
from sim.engine.link import Link
from sim.engine.replica import Replica
from sim.engine.requests import EXPIRED, REJECTED, SHED, RequestTable
from sim.engine.scheduler import EngineConfig
from sim.latency import RequestOverhead, StepTime
from sim.prefill_pool import prefill_table, reject_with
from sim.workload import Workload
from tests.cluster_oracle import OracleCluster, OraclePrefill
from tests.oracle import OracleLink, OracleReplica, OracleRequest
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
    """A random replica case as a cluster: its requests arrive at a gateway, come from users in a closed loop, or in
    sessions.
    """
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
    arrival_ps, follows, session = column["queue_ps"], None, None
    if max(case.follows) >= 0:
        session = np.arange(len(case.requests))
        for index, before in enumerate(case.follows):
            if before >= 0:
                session[index] = session[before]
        if random.random() < 0.8:
            follows = np.array(case.follows, dtype=np.int64)
            think_ps = [random.choice((0, unit * random.randint(0, 50))) for _ in case.requests]
            arrival_ps = np.where(follows < 0, arrival_ps, think_ps)
    span = max(1, int(column["queue_ps"].max()))
    # The naive cluster takes every scrape: at most some hundreds until one replica had served all.
    shortest = max(random.choice((unit, unit * 7)), served_by_one_ps(case) // 300)
    workload = Workload(
        "case",
        arrival_ps,
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
        session=session,
        follows=follows,
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


class Slower(StepTime):
    """Another step time, some times over."""

    def __init__(self, one: StepTime, times: int) -> None:
        self.one, self.times, self.window = one, times, one.window

    def decode(self, num_seqs: int) -> tuple[int, int, int]:
        return tuple(self.times * part for part in self.one.decode(num_seqs))

    def floor(self, num_seqs: int) -> int:
        return self.times * self.one.floor(num_seqs)

    def mixed(self, *batch: int, **named: int) -> int:
        return self.times * self.one.mixed(*batch, **named)


@dataclass(slots=True)
class WhileShort(DisaggregationPolicy):
    """While the decode replica was seen to have no queue."""

    def disaggregate(self, request: RequestView, replicas: ReplicaViews, chosen: int, now_s: float) -> bool:
        return replicas[chosen].waiting == 0


def prefill_case(case: Case, setting: dict[str, object]) -> dict[str, object] | None:
    """A prefill pool for two cases in five: an engine of its own, links of any speed, its deciders; else None."""
    random = Random(f"prefill {case.seed}")
    if random.random() < 0.6:
        return None
    settings = dict(case.settings)
    seats = random.choice((1, 2, 8))
    prompts = sorted(request.prompt_tokens for request in case.requests)
    largest = prompts[-1] if random.random() < 0.9 else random.choice(prompts)  # else the longer are rejected
    spare = random.choice((0, 1, sum(prompts)))
    settings |= {
        "max_num_seqs": seats,
        "max_num_batched_tokens": seats + random.choice((0, 3, 50, 500)),
        "num_blocks": max(1, -(-(largest + spare) // case.settings["block_size"])),
    }
    if spare <= 1:  # what would be cut into chunks preempts itself again and again while others keep blocks
        settings |= {"long_prefill_token_threshold": 0, "max_num_batched_tokens": max(prompts[-1], 2 * seats)}
    unit = getattr(case.step_time, "unit_ps", 1)
    # One link moves all prompts in a small share of the time that one replica takes for the case, or in that time.
    token_ps = max(1, served_by_one_ps(case) // random.choice((1, 10, 100)) // sum(prompts) // unit * unit)
    decider = random.choice(("always", "always", "prefix-based", WhileShort))
    parameters = {}
    if decider == "prefix-based":
        parameters = {
            "non_cached_tokens": random.choice((0, 1, random.choice(prompts))),
            "prefix_index": random.choice(("approximate", "precise")),
        }
    return {
        "replicas": random.randint(1, 3),
        "settings": settings,
        "step_time": case.step_time if random.random() < 0.5 else Slower(case.step_time, random.randint(2, 3)),
        "link": (10**12, token_ps, unit * random.choice((0, 1, random.randint(0, 20)))),
        "decider": (decider, parameters),
        "routing": random.choice(policy_names("prefill_routing")),
    }


def prefill_policies(case: Case, pool: dict[str, object]) -> tuple[DisaggregationPolicy, RoutingPolicy]:
    """The decider and the routing policy of a prefill pool."""
    decider, parameters = pool["decider"]
    made = WhileShort() if decider is WhileShort else make_policy("disaggregation", PolicySpec(decider, parameters), "")
    name = str(pool["routing"])
    routing = make_policy("routing", PolicySpec(name, routing_parameters(Random(case.seed), name)), "routing")
    routing.random = policy_random(case.seed, "prefill_routing")
    return made, routing


def prefill_of(case: Case, workload: Workload, pool: dict[str, object] | None, decode_replicas: int) -> Prefill | None:
    """The prefill pool of a case for the cluster."""
    if pool is None:
        return None
    table, replicas = engines(workload, pool["settings"], pool["step_time"], pool["replicas"], prefill=True)
    return Prefill(
        table, replicas, [Link(*pool["link"]) for _ in range(decode_replicas)], *prefill_policies(case, pool)
    )


def engines(
    workload: Workload, settings: dict[str, object], step_time: StepTime, count: int, prefill: bool = False
) -> tuple[RequestTable, list[Replica]]:
    """A pool's replicas and their table."""
    settings = dict(settings)
    size = settings["block_size"]
    longest, cache = settings.pop("max_model_len"), settings["num_blocks"] * size
    if prefill:
        table = prefill_table(workload, longest, cache)
    else:
        table = RequestTable(workload)
        table.reject_longer(longest, cache)
    settings["scheduling"] = SCHEDULING[settings["scheduling"]]
    settings["preemption"] = PREEMPTION[settings["preemption"]]
    paths = ContentPaths(size)
    return table, [Replica(table, EngineConfig(**settings), step_time, paths) for _ in range(count)]


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
    size = case.settings["block_size"]
    table, replicas = engines(workload, case.settings, case.step_time, setting["replicas"])
    prefill = prefill_of(case, workload, prefill_case(case, setting), setting["replicas"])
    if prefill:
        reject_with(table, prefill.table)
    routing, admission, flow = policies(case, setting)
    Cluster(table, replicas, overhead, routing, admission, setting["interval_ps"], size, flow, prefill).run(workload)
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
        **({} if prefill is None else seen_of_prefill(prefill, limit)),
    }


def seen_of_prefill(prefill: Prefill, limit: int) -> dict[str, object]:
    table = prefill.table
    return {
        "prefill replica": list(table.replica),
        "prefill queue": [q if q <= limit else -1 for q in table.queue_ps],
        "prefill scheduled": list(table.scheduled_ps),
        "prefill finish": list(table.finish_ps),
        "prefill cached": list(table.cached_tokens),
        "prefill preemptions": list(table.preemptions),
        "busy links": [link.busy_ps for link in prefill.links],
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
        oracle_prefill(case, prefill_case(case, setting), setting["replicas"]),
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
        **({} if cluster.prefill is None else seen_of_oracle_prefill(cluster.prefill, limit)),
    }


def oracle_prefill(case: Case, pool: dict[str, object] | None, decode_replicas: int) -> OraclePrefill | None:
    if pool is None:
        return None
    requests = [replace(r, queue_ps=-1, output_tokens=1) for r in case.oracle_requests()]
    for request, priority in zip(requests, cluster_case(case.seed)[1].priority.tolist(), strict=True):
        request.priority = priority
    replicas = [OracleReplica(pool["step_time"], **pool["settings"]) for _ in range(pool["replicas"])]
    for replica in replicas:
        replica.keeps_blocks = True
    links = [OracleLink(*pool["link"]) for _ in range(decode_replicas)]
    return OraclePrefill(replicas, requests, links, *prefill_policies(case, pool))


def seen_of_oracle_prefill(prefill: OraclePrefill, limit: int) -> dict[str, object]:
    requests = prefill.requests
    return {
        "prefill replica": [prefill.routed_to.get(i, -1) for i in range(len(requests))],
        "prefill queue": [r.queue_ps if r.queue_ps <= limit else -1 for r in requests],
        "prefill scheduled": [r.scheduled_ps for r in requests],
        "prefill finish": [r.finish_ps for r in requests],
        "prefill cached": [max(0, r.cached_tokens) for r in requests],
        "prefill preemptions": [r.preemptions for r in requests],
        "busy links": [sum(end - start for start, end in link.transfers) for link in prefill.links],
    }


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_cluster_does_what_the_naive_one_does(chunk: int) -> None:
    for seed in range(chunk, CASES, CHUNKS):
        expected, got = run_oracle(seed), run_cluster(seed)
        assert got == expected, f"seed {seed}: {[key for key in got if got[key] != expected[key]]}"
