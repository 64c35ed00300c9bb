"""Makes what a deployment describes: the policies of its gateway, the replicas of its pools."""

from __future__ import annotations

from typing import Any

from sim.checks import of_prefill_pool
from sim.cluster.cluster import Prefill, policy_random
from sim.cluster.registry import make_policy
from sim.deployment import Deployment
from sim.engine.blocks import ContentPaths
from sim.engine.replica import Replica
from sim.engine.requests import RequestTable
from sim.engine.scheduler import EngineConfig
from sim.latency import Coefficients, StepTime, build_step_time
from sim.memory import KVCapacity, kv_capacity
from sim.prefill_pool import PrefillPool, make_links, prefill_table
from sim.workload import Workload


def make_replicas(
    deployment: Deployment, capacity: KVCapacity, table: RequestTable, step_time: StepTime, kind: type[Replica]
) -> list[Replica]:
    """The replicas of one pool, all of a `kind`, which write to `table`."""
    config = EngineConfig(
        num_blocks=capacity.num_blocks,
        block_size=deployment.block_size,
        max_num_seqs=deployment.max_num_seqs,
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        enable_prefix_caching=deployment.enable_prefix_caching,
        async_scheduling=deployment.async_scheduling,
        long_prefill_token_threshold=deployment.long_prefill_token_threshold,
        scheduling=make_policy("scheduling", deployment.scheduling, "deployment.scheduling"),
        preemption=make_policy("preemption", deployment.preemption, "deployment.preemption"),
        tiers=make_policy("kv_offload", deployment.kv_offload, "deployment.kv_offload").tiers(deployment),
    )
    paths = ContentPaths(deployment.block_size)
    return [kind(table, config, step_time, paths) for _ in range(deployment.replicas)]


def gateway_policy(kind: str, deployment: Deployment, seed: int) -> Any:
    """A policy of the gateway, with a random stream of its own."""
    policy = make_policy(kind, getattr(deployment, kind), f"deployment.{kind}")
    policy.random = policy_random(seed, kind)
    return policy


def make_prefill_pool(
    deployment: Deployment,
    workload: Workload,
    coefficients: Coefficients,
    step_time: StepTime | None,
    kind: type[Replica],
) -> PrefillPool | None:
    """The prefill pool of `deployment`, if it has one."""
    own = deployment.prefill_pool()
    if own is None:
        return None
    with of_prefill_pool():
        capacity = kv_capacity(own)
    table = prefill_table(workload, capacity.max_model_len, capacity.num_blocks * own.block_size)
    if step_time is None:
        step_time = build_step_time(own, coefficients)
    replicas = make_replicas(own, capacity, table, step_time, kind)
    return PrefillPool(own, capacity, table, replicas, make_links(deployment))


def with_deciders(prefill: PrefillPool, deployment: Deployment, seed: int) -> Prefill:
    """A prefill pool as the cluster takes it."""
    decider, routing = (gateway_policy(kind, deployment, seed) for kind in ("disaggregation", "prefill_routing"))
    return Prefill(prefill.table, prefill.replicas, prefill.links, decider, routing)
