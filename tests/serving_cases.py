"""Deployments with caches of any size, and random workloads, for tests at the level of `simulate()`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import numpy as np

from sim.catalog import load_gpu, load_model
from sim.deployment import Deployment, PolicySpec
from sim.latency import StepTime
from sim.memory import kv_capacity, pooled_layers
from sim.result import Result
from sim.simulate import simulate
from sim.workload import Workload

MS = 10**9
SECOND = 10**12
CLASSES = ["critical", "standard", "sheddable"]
CLASS_PRIORITY = [-4, -3, 2]


def deployment(model: str = "meta-llama/Llama-3.1-8B-Instruct", gpu: str = "H100", **settings: Any) -> Deployment:
    return Deployment(load_model(model), load_gpu(gpu), **settings)


def policy(name: str, **parameters: float) -> PolicySpec:
    return PolicySpec(name, parameters)


def with_cache(plan: Deployment, num_blocks: int) -> Deployment:
    """The same on a GPU whose memory leaves exactly `num_blocks` KV blocks."""
    plan = replace(plan, gpu_memory_utilization=1.0)
    capacity = kv_capacity(plan)
    layer = plan.model.kv_bytes_per_token_per_layer_per_gpu(plan.tensor_parallel_size, plan.kv_cache_dtype)
    wanted = num_blocks * plan.block_size * layer * pooled_layers(plan.model)
    gpu = replace(plan.gpu, memory_bytes=capacity.total_bytes - capacity.kv_bytes + wanted)
    plan = replace(plan, gpu=gpu)
    assert kv_capacity(plan).num_blocks == num_blocks
    return plan


def workload(
    arrival_ps: Sequence[int] | np.ndarray,
    prompt_tokens: int | Sequence[int],
    output_tokens: int | Sequence[int],
    **columns: Any,
) -> Workload:
    """Requests that share nothing unless `content` and `contents` say so."""
    n = len(arrival_ps)
    prompts, outputs = (np.broadcast_to(np.asarray(c, np.int64), n).copy() for c in (prompt_tokens, output_tokens))
    content = columns.pop("content", np.zeros(n, np.int64))
    return Workload("test", np.asarray(arrival_ps, np.int64), prompts, outputs, content, **columns)


def poisson(n: int, rate_rps: float, seed: int) -> np.ndarray:
    """Arrival times in ps."""
    gaps = np.random.default_rng(seed).exponential(SECOND / rate_rps, n)
    return np.cumsum(gaps).astype(np.int64)


class ConstantStep(StepTime):
    """Every step takes the same time."""

    def __init__(self, step_ps: int) -> None:
        self.step_ps = step_ps

    def decode(self, num_seqs: int) -> tuple[int, int, int]:
        return self.step_ps, 0, 0

    def mixed(self, *batch: int) -> int:
        return self.step_ps


@dataclass(frozen=True)
class Case:
    seed: int
    plan: Deployment
    load: Workload
    result: Result


def random_workload(random: Random, block_size: int) -> Workload:
    """Bursts or a trickle, open or closed loop, sessions, shared prefixes, three classes, sometimes a time limit."""
    n = random.choice((1, 12, 60, 150))
    longest = random.choice((40, 600, 3000))
    prefixes = [((i + 1, random.choice((block_size, 7 * block_size + 3, longest))),) for i in range(3)]
    contents = [(), *prefixes, *(((*p, (9, block_size + 1))) for p in prefixes)]
    content = [random.choice((0, random.randrange(len(contents)))) for _ in range(n)]
    prompts = [sum(t for _, t in contents[c]) + random.randint(1, longest) for c in content]
    outputs = [random.choice((1, random.randint(1, 40), random.randint(1, 400))) for _ in range(n)]
    gap = random.choice((0, 2, 20, 150)) * MS
    arrivals = np.cumsum([0] + [random.choice((0, random.randint(0, 2 * gap))) for _ in range(n - 1)])
    classes = np.array([random.randrange(3) for _ in range(n)], np.int64)
    closed = random.random() < 0.3
    span = int(arrivals[-1]) + 2 * SECOND
    arrivals = np.zeros(n, np.int64) if closed else arrivals
    follows = None
    if random.random() < 0.3:
        follows = _turns(random, prompts, outputs, content, contents)
        thinks = [random.choice((0, random.randint(0, 2 * SECOND))) for _ in range(n)]
        arrivals = np.where(follows < 0, arrivals, thinks)
    return workload(
        arrivals,
        prompts,
        outputs,
        content=np.array(content, np.int64),
        contents=contents,
        slo_class=classes,
        slo_classes=CLASSES,
        priority=np.array(CLASS_PRIORITY, np.int64)[classes],
        users=random.randint(1, n) if closed else 0,
        think_time_ps=random.choice((0, 30 * MS)) if closed else 0,
        time_limit_ps=random.choice((0, 0, random.randint(1, span))),
        follows=follows,
    )


def _turns(
    random: Random, prompts: list[int], outputs: list[int], content: list[int], contents: list[tuple]
) -> np.ndarray:
    """Makes turns of sessions of the requests: prompts hold all that was said before; returns who follows whom."""
    follows = np.full(len(prompts), -1, np.int64)
    last: dict[int, int] = {}  # of each session, by its first request
    turns: dict[int, int] = {}
    for index in range(len(prompts)):
        going_on = [first for first, count in turns.items() if count < 5]
        if not going_on or random.random() < 0.4:
            contents.append((*contents[content[index]], (1000 + index, 1_000_000)))
            content[index] = len(contents) - 1
            last[index], turns[index] = index, 1
            continue
        first = random.choice(going_on)
        before = last[first]
        prompts[index] = prompts[before] + outputs[before] + random.randint(1, 60)
        content[index], follows[index], last[first] = content[first], before, index
        turns[first] += 1
    return follows


def random_plan(random: Random, load: Workload) -> Deployment:
    """Every policy and switch of the engine; a cache from one request's size to plenty."""
    max_num_seqs = random.choice((1, 2, 8, 64))
    plan = deployment(
        random.choice(("meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-20b")),
        replicas=random.choice((1, 1, 2, 3)),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_seqs + random.choice((0, 16, 300, 2048)),
        block_size=random.choice((1, 16, 16, 64)),
        enable_prefix_caching=random.random() < 0.75,
        async_scheduling=random.random() < 0.5,
        long_prefill_token_threshold=random.choice((0, 0, 64)),
        scheduling=policy(random.choice(("fcfs", "priority", "sjf"))),
        preemption=policy(random.choice(("fcfs", "priority"))),
        routing=policy(random.choice(("round-robin", "random", "least-loaded", "weighted"))),
        admission=random.choice(
            (
                policy("always-admit"),
                policy("token-bucket", refill_tokens_per_s=20000.0),
                policy("probabilistic", k=1.0),
            )
        ),
        kv_offload=policy("tiered", host_gib=random.choice((0.01, 0.1, 1)), disk_gib=random.choice((0, 0.5)))
        if random.random() < 0.4
        else policy("none"),
        gateway=random.choice(("none", "llm-d")),
        snapshot_interval_ms=random.choice((0.0, 50.0)),
    )
    needs = sorted(-(-int(total) // plan.block_size) for total in load.prompt_tokens + load.output_tokens)
    largest = needs[-1] if random.random() < 0.85 else needs[len(needs) // 2]  # else some are rejected
    return with_cache(plan, largest + random.choice((0, 1, largest // 3, 3 * largest, sum(needs))))


@cache
def random_case(seed: int) -> Case:
    """The case of this seed, and what came of it."""
    random = Random(f"serving {seed}")
    load = random_workload(random, 16)
    plan = random_plan(random, load)
    return Case(seed, plan, load, simulate(plan, load, seed, request_slo={"ttft_ms": 300.0, "tpot_ms": 20.0}))
