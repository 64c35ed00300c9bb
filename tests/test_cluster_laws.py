"""What must hold of any router in front of any load: nobody is lost, and more replicas never make a queue longer."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.backlog import backlog_trend
from sim.catalog import load_gpu, load_model
from sim.cluster import policy_names
from sim.cluster.routing.scorers import SCORERS
from sim.deployment import Deployment, PolicySpec
from sim.result import Result
from sim.simulate import simulate
from sim.workload import build_workload, parse_workload

MODEL, GPU = load_model("meta-llama/Llama-3.1-8B-Instruct"), load_gpu("H100-SXM-80GB")
CLASSES = ("critical", "standard", "batch", "sheddable", "background")


def served(workload: dict, seed: int = 0, **deployment: object) -> Result:
    specs = {
        kind: PolicySpec(value) if isinstance(value, str) else value
        for kind, value in deployment.items()
        if kind in ("routing", "admission", "flow_control")
    }
    plan = Deployment(MODEL, GPU, **{**deployment, **specs})
    return simulate(plan, build_workload(parse_workload(workload), seed, None), seed)


def mix(
    rate_rps: float, requests: int, classes: tuple[str, ...], *, closed: bool = False, limit_s: float | None = None
) -> dict:
    arrival = {"process": "closed", "users": 40} if closed else {"process": "gamma", "rate_rps": rate_rps, "cv": 2}
    client = {
        "kind": "lengths",
        "prefix": {"groups": 5, "tokens": 500},
        "input": {"dist": "exponential", "mean": 1500, "min": 1, "max": 12000},
        "output": {"dist": "exponential", "mean": 80, "min": 1, "max": 800},
    }
    clients = [client | {"share": 1, "slo_class": c, "tenant": f"t{i % 2}"} for i, c in enumerate(classes)]
    spec = {"kind": "clients", "arrival": arrival, "num_requests": requests, "clients": clients}
    return spec | ({"time_limit_s": limit_s} if limit_s else {})


flows = st.sampled_from(
    [
        PolicySpec("none"),
        PolicySpec("static", {"ttl_s": 0.5, "fairness": "round-robin"}),
        PolicySpec("static", {"max_requests": 3, "detector": {"name": "concurrency-detector", "max_concurrency": 4}}),
        PolicySpec("priority-holdback", {"min_ceiling": 0.0, "ttl_s": 2.0, "ordering": "edf"}),
        PolicySpec("soft-reflective", {"detector": {"name": "utilization-detector", "queue_depth_threshold": 1}}),
    ]
)
routings = st.sampled_from(
    [PolicySpec(name) for name in policy_names("routing")]
    + [PolicySpec("weighted", {"scorers": {name: 1}, "picker": "weighted-random-picker"}) for name in SCORERS]
    + [PolicySpec("weighted", {"filter": "prefix-cache-affinity-filter", "prefix_index": "precise"})]
)


@settings(max_examples=60, deadline=None)
@given(
    routings,
    st.sampled_from(policy_names("admission")),
    flows,
    st.lists(st.sampled_from(CLASSES), min_size=1, max_size=3, unique=True),
    st.integers(1, 5),
    st.sampled_from([20.0, 200.0]),
    st.booleans(),
    st.sampled_from([0, 50]),
    st.sampled_from([None, 3.0]),
)
def test_every_request_ends_exactly_once(
    routing, admission, flow, classes, replicas, rate, closed, interval, limit
) -> None:
    workload = mix(rate, 120, tuple(classes), closed=closed, limit_s=limit)
    result = served(
        workload,
        routing=routing,
        admission=admission,
        flow_control=flow,
        replicas=replicas,
        snapshot_interval_ms=interval,
        max_num_seqs=8,
    )
    records, summary = result.records, result.summary()
    ends = np.vstack([records.completed, records.shed, records.expired, records.rejected]).sum(axis=0)
    assert (ends <= records.offered).all()
    if limit is None:
        assert (ends == 1).all()
    parts = ("completed", "shed", "expired", "rejected", "unfinished")
    assert sum(summary[part] for part in parts) == summary["offered"]
    by_class = sum((Counter({p: group[p] for p in parts}) for group in summary["classes"].values()), Counter())
    assert all(by_class[part] == summary[part] for part in parts)
    assert (records.queue_ms[records.completed] >= 0).all()
    assert not np.isnan(records.ttft_ms[records.completed]).any()
    turned_away = records.shed | records.expired | records.rejected
    assert (records.replica[turned_away] == -1).all()
    assert np.isnan(records.ttft_ms[turned_away]).all()


def test_more_replicas_never_raise_mean_queueing_under_least_loaded_on_live_state() -> None:
    for seed in range(3):
        workload = mix(40.0, 400, ("standard",))
        waits = [
            served(workload, seed, routing="least-loaded", replicas=r, snapshot_interval_ms=0, max_num_seqs=8).summary()
            for r in (1, 2, 3, 4, 6, 8)
        ]
        means = [summary["queue_ms"]["mean"] for summary in waits]
        assert means == sorted(means, reverse=True)


def test_critical_requests_wait_least_where_flow_control_holds_back() -> None:
    flow = PolicySpec("soft-reflective", {"detector": {"name": "utilization-detector", "queue_depth_threshold": 1}})
    groups = served(mix(60.0, 800, ("critical", "sheddable")), flow_control=flow, replicas=2, max_num_seqs=16).summary()
    held, free = groups["classes"]["sheddable"], groups["classes"]["critical"]
    assert free["queue_ms"]["mean"] < 0.8 * held["queue_ms"]["mean"]


def test_flow_control_that_never_closes_changes_nothing_but_the_time_of_dispatch() -> None:
    """Each request is sent in the cycle of its own arrival."""
    workload = mix(10.0, 200, ("standard",))
    open_ = PolicySpec("static", {"ceiling": 1e9})
    with_, without = (served(workload, routing="weighted", replicas=3, flow_control=f) for f in (open_, "none"))
    assert np.array_equal(with_.records.e2e_ms, without.records.e2e_ms)


def test_jain_is_one_where_all_are_served_and_falls_where_one_tenant_is_shed() -> None:
    workload = mix(30.0, 300, ("critical", "sheddable"))
    assert served(workload, replicas=4).summary()["jain_index"] == pytest.approx(1.0)
    tight = PolicySpec("tier-shed", {"overload_threshold": 1})
    unfair = served(workload, admission=tight, max_num_seqs=8).summary()
    assert 0.5 <= unfair["jain_index"] < 0.95  # 1 / 2 where one of two gets all
    assert unfair["classes"]["critical"]["shed_rate"] == 0 < unfair["classes"]["sheddable"]["shed_rate"]


def test_the_label_follows_the_load() -> None:
    labels = {
        rate: served(mix(rate, 1500, ("standard",)), max_num_seqs=32).summary()["saturation"] for rate in (1, 100)
    }
    assert labels == {1: "stable", 100: "overloaded"}


@pytest.mark.parametrize(("load", "growing"), [(0.5, 0.0), (0.9, 0.1), (1.3, 0.9)])
def test_a_backlog_that_wanders_is_not_one_that_grows(load: float, growing: float) -> None:
    """Of 50 single-server queues with Poisson arrivals and exponential service."""
    random = np.random.default_rng(0)
    found = 0
    for _ in range(50):
        arrival, work = np.cumsum(random.exponential(1, 2000)), random.exponential(load, 2000)
        free, start = 0.0, np.empty(2000)
        for i in range(2000):
            start[i] = max(arrival[i], free)
            free = start[i] + work[i]
        found += backlog_trend(arrival, start).is_growing
    assert found / 50 >= growing if load > 1 else found / 50 <= growing
