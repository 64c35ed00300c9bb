"""The engine against the stepping oracle: random small configurations, byte for byte."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest

from sim.engine.blocks import ContentPaths
from sim.engine.link import Link
from sim.engine.preemption import PreemptionPolicy, PreemptLast, PreemptLeastUrgent
from sim.engine.replica import Replica
from sim.engine.requests import REJECTED, RequestTable
from sim.engine.scheduler import EngineConfig
from sim.engine.scheduling import Fcfs, PriorityScheduling, SchedulingPolicy, ShortestJobFirst
from sim.engine.stats import bin_of
from sim.engine.tiers import TierConfig
from sim.workload._types import Workload
from tests.oracle import OracleReplica
from tests.random_cases import Case, random_case

CASES = int(os.environ.get("DIFFERENTIAL_CASES", "2000"))
CHUNKS = 20
FAR = 1 << 60

SCHEDULING: dict[str, SchedulingPolicy] = {
    "fcfs": Fcfs(),
    "priority": PriorityScheduling(),
    "sjf": ShortestJobFirst(),
}
PREEMPTION: dict[str, PreemptionPolicy] = {"fcfs": PreemptLast(), "priority": PreemptLeastUrgent()}


def engine_of(case: Case) -> tuple[RequestTable, Replica]:
    contents = sorted({request.pieces for request in case.requests} | {()})
    column = [[getattr(r, name) for r in case.requests] for name in ("prompt_tokens", "output_tokens", "priority")]
    prompts, outputs, priorities = (np.array(values, dtype=np.int64) for values in column)
    table = RequestTable(
        Workload(
            "case",
            np.zeros(len(prompts), dtype=np.int64),
            prompts,
            outputs,
            np.array([contents.index(request.pieces) for request in case.requests], dtype=np.int64),
            contents=contents,
            priority=priorities,
        )
    )
    settings = dict(case.settings)
    table.reject_longer(settings.pop("max_model_len"), settings["num_blocks"] * settings["block_size"])
    settings["scheduling"] = SCHEDULING[settings["scheduling"]]
    settings["preemption"] = PREEMPTION[settings["preemption"]]
    settings["tiers"] = [TierConfig(str(i), n, *link) for i, (n, link) in enumerate(settings.get("tiers", ())) if n]
    replica = Replica(table, EngineConfig(**settings), case.step_time, ContentPaths(settings["block_size"]))
    return table, replica


def observed_engine(case: Case) -> dict[str, object]:
    table, replica = engine_of(case)
    seen = []
    rejected = []
    links = [Link(*link) for link in case.links]
    for index, request in enumerate(case.requests):
        replica.advance(request.queue_ps)
        seen.append((replica.num_running, replica.num_waiting, replica.used_blocks(request.queue_ps)))
        rejected.append(table.outcome[index] == REJECTED)
        if rejected[-1]:
            continue
        if request.remote_tokens:
            replica.enqueue_remote(index, request.queue_ps, request.remote_tokens, links[request.link])
        else:
            replica.enqueue(index, request.queue_ps)
    replica.advance(FAR)
    stats = replica.stats
    return {
        "seen": seen,
        "rejected": rejected,
        "scheduled": list(table.scheduled_ps),
        "first": list(table.first_token_ps),
        "finish": list(table.finish_ps),
        "cached": list(table.cached_tokens),
        "preemptions": list(table.preemptions),
        "hits": (stats.hit_tokens, stats.looked_up_tokens, stats.loaded_tokens),
        "steps": stats.steps,
        "busy": stats.busy_ps,
        "gaps": dict(sorted(stats.inter_token_bins().items())),
        "free": replica.pool.free,
        "tiers": [(tier.used, tier.link.free_ps) for tier in (replica.tiers.tiers if replica.tiers else [])],
        "from tiers": [list(column) for column in (*table.tier_tokens, stats.tier_tokens) if any(column)],
    }


def observed_oracle(case: Case) -> dict[str, object]:
    replica = OracleReplica(case.step_time, **case.settings)
    requests = case.oracle_requests()
    seen = []
    for index, request in enumerate(requests):
        replica.advance(request.queue_ps)
        seen.append((replica.num_running, replica.num_waiting, replica.used_blocks))
        replica.enqueue(index, request)
    replica.advance(FAR)
    loaded = [[r.tier_tokens[i] if r.tier_tokens else 0 for r in requests] for i in range(len(replica.tiers))]
    from_tiers = [n for n, tier in zip(replica.tier_tokens, replica.tiers, strict=True) if tier.num_blocks]
    gaps: Counter[int] = Counter()
    for gap, count in replica.inter_token_ps.items():
        gaps[bin_of(gap)] += count
    return {
        "seen": seen,
        "rejected": [r.rejected for r in requests],
        "scheduled": [r.scheduled_ps for r in requests],
        "first": [r.first_token_ps for r in requests],
        "finish": [r.finish_ps for r in requests],
        "cached": [max(0, r.cached_tokens) for r in requests],
        "preemptions": [r.preemptions for r in requests],
        "hits": (replica.hit_tokens, replica.looked_up_tokens, replica.loaded_tokens),
        "steps": replica.steps,
        "busy": replica.busy_ps,
        "gaps": dict(sorted(gaps.items())),
        "free": replica.num_blocks - replica.used_blocks,
        "tiers": [
            (len(tier.blocks), tier.link.transfers[-1][1] if tier.link.transfers else 0)
            for tier in replica.tiers
            if tier.num_blocks and replica.enable_prefix_caching
        ],
        "from tiers": [column for column in (*loaded, from_tiers) if any(column)],
    }


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_engine_does_what_the_stepper_does(chunk: int) -> None:
    for seed in range(chunk, CASES, CHUNKS):
        case = random_case(seed)
        expected, got = observed_oracle(case), observed_engine(case)
        assert got == expected, f"seed {seed}: {[key for key in got if got[key] != expected[key]]}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_engine_loads_as_the_stepper_does(chunk: int) -> None:
    for seed in range(chunk, CASES // 2, CHUNKS):
        case = random_case(seed, loads=True)
        expected, got = observed_oracle(case), observed_engine(case)
        assert got == expected, f"seed {seed}: {[key for key in got if got[key] != expected[key]]}"
