"""How many requests a workload will have, as far as its text tells."""

from __future__ import annotations

import math

from sim.workload import Arrival, ClientsSpec, SharedPrefixSpec, TraceSpec, WorkloadSpec


def requests_of(spec: WorkloadSpec) -> int | None:
    """The number of requests that a workload is expected to have; None where only its trace says."""
    if isinstance(spec, ClientsSpec) and spec.arrival is None:
        counts = [requests_of(client.workload) for client in spec.clients]
        return None if any(count is None for count in counts) else sum(count or 0 for count in counts)
    if spec.num_requests is not None:
        return spec.num_requests
    if isinstance(spec, TraceSpec) and spec.arrival is None:
        return None if spec.max_requests is None else int(spec.max_requests)
    return None if spec.arrival is None else _by_rate(spec.arrival, spec.duration_s)


def _by_rate(arrival: Arrival, duration_s: float | None) -> int | None:
    stages = arrival.load_stages
    if stages:
        return math.ceil(math.fsum(stage.rate_rps * stage.duration_s for stage in stages))
    if arrival.rate_rps is None or duration_s is None:
        return None
    return math.ceil(arrival.rate_rps * duration_s)


def prompts_of(spec: WorkloadSpec) -> int:
    """Distinct prompts that must be laid out before any request is."""
    if isinstance(spec, ClientsSpec):
        return sum(prompts_of(client.workload) for client in spec.clients)
    return spec.num_groups * spec.num_prompts_per_group if isinstance(spec, SharedPrefixSpec) else 0
