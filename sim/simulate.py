"""The front door: simulate a deployment under a workload."""

from __future__ import annotations

import gc
import math
from collections.abc import Mapping

import numpy as np

from sim.assemble import gateway_policy, make_prefill_pool, make_replicas, with_deciders
from sim.checks import check_deployment
from sim.cluster.cluster import Cluster
from sim.deployment import Deployment
from sim.engine.replica import NEVER, Replica
from sim.engine.requests import SERVED, RequestTable
from sim.engine.timeline import SampledReplica
from sim.errors import InputError
from sim.latency import (
    Coefficients,
    StepTime,
    build_overhead,
    build_step_time,
    load_coefficients,
)
from sim.memory import kv_capacity
from sim.metrics import (
    PS_PER_MS,
    PS_PER_S,
)
from sim.prefill_pool import reject_with
from sim.result import Result
from sim.so_far import Looks, Watch
from sim.workload import Workload


def simulate(
    deployment: Deployment,
    workload: Workload,
    seed: int = 0,
    *,
    coefficients: Coefficients | None = None,
    request_slo: Mapping[str, float] | None = None,
    step_time: StepTime | None = None,
    sampled: bool = False,
    watch: Watch | None = None,
) -> Result:
    """Serve `workload` with `deployment` and return what happened. The same arguments give the same result, bit for
    bit.

    `coefficients` None is the shipped set; `request_slo` holds limits in ms a request (`ttft_ms`, `tpot_ms`, `e2e_ms`)
    for goodput; `step_time` replaces the physics by a latency model of your own; `sampled` makes `Result.timelines`
    available, and changes nothing else; `watch` sees the run now and then, and may end it by what it raises. Raises
    DoesNotFit or InputError for a deployment that a real engine would refuse to start.
    """
    if seed < 0:
        raise InputError("seed", f"must be at least 0, got {seed}")
    check_deployment(deployment)
    _check_settings(deployment)
    capacity = kv_capacity(deployment)
    coefficients = coefficients or load_coefficients()
    overhead = build_overhead(deployment, coefficients)
    table = RequestTable(workload)
    table.reject_longer(capacity.max_model_len, capacity.num_blocks * deployment.block_size)
    kind = SampledReplica if sampled else Replica
    prefill = make_prefill_pool(deployment, workload, coefficients, step_time, kind)
    if prefill is not None:
        reject_with(table, prefill.table)
    if step_time is None:
        step_time = build_step_time(deployment, coefficients)
    replicas = make_replicas(deployment, capacity, table, step_time, kind)
    cluster = Cluster(
        table,
        replicas,
        overhead,
        gateway_policy("routing", deployment, seed),
        gateway_policy("admission", deployment, seed),
        round(deployment.snapshot_interval_ms * PS_PER_MS),
        deployment.block_size,
        gateway_policy("flow_control", deployment, seed),
        None if prefill is None else with_deciders(prefill, deployment, seed),
    )
    if watch is not None:
        of_prefill = None if prefill is None else prefill.table
        cluster.watch(Looks(watch, table, workload, overhead, request_slo or {}, of_prefill))
    collecting = gc.isenabled()
    gc.disable()  # nothing that a run makes needs the cycle collector, and it costs a fifth of the time
    try:
        cluster.run(workload)
        for replica in [*replicas, *(prefill.replicas if prefill is not None else ())]:
            replica.close(workload.time_limit_ps)
        if prefill is not None and workload.time_limit_ps:
            for link in prefill.links:
                link.close(workload.time_limit_ps)
    finally:
        if collecting:
            gc.enable()
    _check_ended(table, workload)
    return Result(deployment, workload, capacity, overhead, table, replicas, dict(request_slo or {}), prefill)


def _check_settings(deployment: Deployment) -> None:
    """Of the settings that no real engine checks for us: those that would stop the clock or turn it back."""
    interval, threshold = deployment.snapshot_interval_ms, deployment.long_prefill_token_threshold
    if not math.isfinite(interval) or interval < 0:
        raise InputError("deployment.snapshot_interval_ms", f"must be a finite number of at least 0, got {interval:g}")
    if threshold < 0:
        raise InputError("deployment.long_prefill_token_threshold", f"must be at least 0, got {threshold}")
    speed, latency = deployment.kv_transfer_gb_per_s, deployment.kv_transfer_latency_ms
    if not math.isfinite(speed) or speed <= 0:
        raise InputError("deployment.kv_transfer_gb_per_s", f"must be a finite number above 0, got {speed:g}")
    if not math.isfinite(latency) or latency < 0:
        raise InputError("deployment.kv_transfer_latency_ms", f"must be a finite number of at least 0, got {latency:g}")


def _check_ended(table: RequestTable, workload: Workload) -> None:
    """Only a time limit may leave requests unfinished: a run that outlasts the clock is refused."""
    if 0 < workload.time_limit_ps < NEVER:
        return
    served = np.frombuffer(table.outcome, dtype=np.int8) == SERVED
    if (served & (np.frombuffer(table.finish_ps, dtype=np.int64) < 0)).any():
        problem = f"lasts longer than the {int(NEVER / PS_PER_S):,} s that can be simulated; set a time_limit_s"
        raise InputError("workload", problem)
