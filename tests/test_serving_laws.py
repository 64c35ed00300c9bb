"""Serving systems against what theory says of them: peaks of the datasheet, queueing formulas, who should gain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from sim.catalog import GPUSpec, ModelSpec, gpu_names, load_gpu, load_model, model_names
from sim.checks import check_deployment
from sim.deployment import Deployment
from sim.errors import InputError
from sim.latency.kernels import experts_touched
from sim.memory import kv_capacity
from sim.result import Result
from sim.simulate import simulate
from sim.workload import Workload
from tests.serving_cases import MS, SECOND, ConstantStep, deployment, poisson, policy, with_cache, workload

# -- the roofline ------------------------------------------------------------------------------------------------


def fitting(model: ModelSpec) -> Iterator[Deployment]:
    """On every GPU the model fits with room for the requests below, at every TP."""
    for name in gpu_names():
        for tp in (1, 2, 4, 8):
            plan = Deployment(model, load_gpu(name), tensor_parallel_size=tp)
            try:
                check_deployment(plan)
                capacity = kv_capacity(plan)
            except InputError:
                continue
            if capacity.tokens > 10_000:
                yield plan


def served(plan: Deployment, prompts: tuple[int, ...], outputs: tuple[int, ...]) -> Result:
    """Everybody at once."""
    return simulate(plan, workload([0] * len(prompts), prompts, outputs))


def best_flops(gpu: GPUSpec) -> float:
    return max(gpu.bf16_flops_per_s, gpu.fp8_flops_per_s, gpu.fp4_flops_per_s)


def weight_bytes(model: ModelSpec, tp: int, tokens: int) -> float:
    """Bytes on one GPU that a step of `tokens` tokens cannot avoid reading."""
    parts = dict(model.weight_bytes_by_part(tp))
    for part in ("embedding", "vision", "norms", "router"):
        parts.pop(part, None)
    if "experts" in parts:
        share = experts_touched(model.num_experts, model.experts_per_token, tokens) / model.num_experts
        parts["experts"] = int(parts["experts"] * share)
    return float(sum(parts.values()))


PROMPTS, OUTPUTS = (900, 1900, 17, 650, 1200, 64), (40, 1, 90, 33, 2, 61)


@pytest.mark.parametrize("name", model_names())
def test_no_deployment_beats_the_datasheet(name: str) -> None:
    """Work done by peak FLOPs, bytes moved by memory bandwidth; on a sample of what the model fits on."""
    model = load_model(name)
    plans = list(fitting(model))
    for plan in Random(name).sample(plans, min(6, len(plans))):
        tp, gpu = plan.tensor_parallel_size, plan.gpu
        result = served(plan, PROMPTS, OUTPUTS)
        records, stats = result.records, result.replicas[0].stats
        assert records.completed.all()
        flops_s = model.linear_flops_per_token / tp / best_flops(gpu)
        computed = sum(PROMPTS) + sum(OUTPUTS) - len(OUTPUTS)
        assert stats.busy_ps >= computed * flops_s * SECOND, (gpu.name, tp)
        assert (records.ttft_ms >= np.array(PROMPTS) * flops_s * 1e3).all(), (gpu.name, tp)
        read_s = weight_bytes(model, tp, 1) / gpu.memory_bandwidth_bytes_per_s
        assert stats.busy_ps >= stats.steps * read_s * SECOND, (gpu.name, tp)
        kv = model.kv_bytes_per_token_per_layer_per_gpu(tp) * model.num_full_layers / gpu.memory_bandwidth_bytes_per_s
        tpot_ms = records.tpot_ms[records.output_tokens > 1]
        shortest = records.prompt_tokens[records.output_tokens > 1]
        # what the client adds to a request's last token and not to its first only makes it slower
        assert (tpot_ms >= (read_s + shortest * kv) * 1e3).all(), (gpu.name, tp)


@pytest.mark.parametrize("name", model_names())
def test_twice_the_gpus_are_never_more_than_twice_as_fast(name: str) -> None:
    plans = {(plan.gpu.name, plan.tensor_parallel_size): plan for plan in fitting(load_model(name))}
    pairs = [(plan, plans[gpu, 2 * tp]) for (gpu, tp), plan in plans.items() if (gpu, 2 * tp) in plans]
    for one, two in Random(name).sample(pairs, min(5, len(pairs))):
        slow, fast = (served(plan, PROMPTS, OUTPUTS).replicas[0].stats for plan in (one, two))
        assert slow.steps == fast.steps
        assert slow.busy_ps <= 2 * fast.busy_ps, (one.gpu.name, one.tensor_parallel_size)


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-20b", "Qwen/Qwen3-30B-A3B"])
def test_more_work_never_takes_less_time(name: str) -> None:
    """A longer prompt, a longer output, a neighbour, a layer: none makes a request's answer come sooner."""
    random = Random(name)
    plan = deployment(name, "H200")
    for _ in range(12):
        prompt, output = random.randint(1, 6000), random.randint(1, 300)

        def e2e(prompts: list[int], outputs: list[int], plan: Deployment = plan) -> float:
            return float(served(plan, tuple(prompts), tuple(outputs)).records.e2e_ms[0])

        alone = e2e([prompt], [output])
        assert e2e([prompt + random.randint(1, 500)], [output]) >= alone
        assert e2e([prompt], [output + random.randint(1, 50)]) > alone
        assert e2e([prompt, random.randint(1, 2000)], [output, random.randint(1, 200)]) >= alone
        deeper = replace(plan, model=replace(plan.model, num_layers=plan.model.num_layers + 2))
        assert e2e([prompt], [output], deeper) > alone


# -- queueing theory ---------------------------------------------------------------------------------------------


def one_seat(load: Workload, **settings: Any) -> Result:
    """A single server: one request at a time, 1 ms a step."""
    plan = deployment(max_num_seqs=1, enable_prefix_caching=False, **settings)
    return simulate(plan, load, step_time=ConstantStep(MS))


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_one_seat_waits_as_lindley_says(async_scheduling: bool) -> None:
    """Wait of the next = max(0, wait + service - gap), to the picosecond."""
    outputs = np.random.default_rng(3).integers(1, 60, 2000)
    load = workload(poisson(2000, 30, 1), 100, outputs)
    result = one_seat(load, async_scheduling=async_scheduling)
    free_ps = 0
    for queued, scheduled, finish, tokens in zip(
        result.table.queue_ps, result.table.scheduled_ps, result.table.finish_ps, outputs.tolist(), strict=True
    ):
        start = max(queued, free_ps)
        free_ps = start + tokens * MS
        assert (scheduled, finish) == (start, free_ps)


@pytest.mark.parametrize("rho", [0.3, 0.6])
def test_constant_service_waits_as_an_m_d_1_queue(rho: float) -> None:
    """Pollaczek-Khinchine without variance: rho S / (2 (1 - rho))."""
    waits = []
    for seed in range(6):
        waits.append(one_seat(workload(poisson(10_000, rho / 0.02, seed), 100, 20)).records.queue_ms.mean())
    assert np.mean(waits) == pytest.approx(rho * 20 / (2 * (1 - rho)), rel=0.06)


def test_varied_service_waits_as_an_m_g_1_queue() -> None:
    """lambda E[S^2] / (2 (1 - rho)) for outputs of 1 to 39 tokens."""
    outputs = np.random.default_rng(5).integers(1, 40, 20_000)
    rate = 0.6 / 0.02
    second_moment = np.mean(np.arange(1, 40) ** 2) / 1e6
    wait = one_seat(workload(poisson(20_000, rate, 4), 100, outputs)).records.queue_ms.mean()
    assert wait == pytest.approx(rate * second_moment / (2 * (1 - 0.6)) * 1e3, rel=0.06)


@pytest.mark.parametrize(("users", "think_ms"), [(1, 0), (7, 0), (40, 0), (7, 500)])
def test_a_closed_loop_obeys_littles_law(users: int, think_ms: int) -> None:
    """While there are requests left, every user has one under way or thinks: N = X (R + Z), exactly."""
    rng = np.random.default_rng(users)
    n = 400
    load = workload(
        np.zeros(n), rng.integers(1, 900, n), rng.integers(1, 80, n), users=users, think_time_ps=think_ms * MS
    )
    result = simulate(deployment(max_num_seqs=16), load)
    records = result.records
    last_ms = records.arrival_ms.max()
    under_way = np.minimum(records.arrival_ms + records.e2e_ms, last_ms) - records.arrival_ms
    thinks = np.clip(last_ms - (records.arrival_ms + records.e2e_ms), 0, think_ms)
    assert (under_way + thinks).sum() == pytest.approx(users * last_ms, rel=1e-9)


def test_an_open_loop_below_its_capacity_answers_as_fast_as_requests_come() -> None:
    load = workload(poisson(3000, 8, 9), 500, 100)
    summary = simulate(deployment(), load).summary()
    assert summary["requests_per_s"] == pytest.approx(8, rel=0.06)
    assert summary["saturation"] == "stable"


# -- who gains ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_more_replicas_never_wait_longer_under_least_loaded_on_live_state(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 400
    load = workload(poisson(n, 40, seed), rng.integers(50, 3000, n), rng.integers(1, 200, n))
    waits = [
        simulate(
            deployment(replicas=replicas, max_num_seqs=8, routing=policy("least-loaded"), snapshot_interval_ms=0.0),
            load,
        ).records.queue_ms.mean()
        for replicas in (1, 2, 3, 5, 8)
    ]
    # Where nearly nobody waits, half a step more or less is chance.
    assert all(more <= fewer + 5.0 for fewer, more in pairwise(waits)), waits
    assert waits[-1] < waits[0]


@pytest.mark.parametrize("seed", range(8))
def test_prefix_caching_never_makes_shared_prompts_wait_longer(seed: int) -> None:
    """Whether the cache holds all prefixes, some, or hardly more than one request."""
    random, rng = Random(seed), np.random.default_rng(seed)
    n, groups, shared = 300, random.choice((1, 5, 40)), random.choice((64, 1000, 4000))
    contents = [(), *(((g + 1, shared),) for g in range(groups))]
    content = rng.integers(1, groups + 1, n)
    load = workload(
        poisson(n, random.choice((2, 10, 40)), seed),
        shared + rng.integers(1, 300, n),
        rng.integers(1, 150, n),
        content=content,
        contents=contents,
    )
    plan = with_cache(deployment(), random.choice((320, 1500, 20_000)))
    on, off = (
        simulate(replace(plan, enable_prefix_caching=enabled), load).records.ttft_ms.mean() for enabled in (True, False)
    )
    assert on <= 1.02 * off


@pytest.mark.parametrize("seed", range(4))
def test_priority_scheduling_favours_the_urgent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 400
    urgency = rng.integers(0, 3, n)
    load = workload(poisson(n, 60, seed), rng.integers(50, 2000, n), rng.integers(1, 200, n), priority=urgency)
    plan = deployment(max_num_seqs=16)
    fcfs, urgent_first = (
        simulate(replace(plan, scheduling=policy(name)), load).records.queue_ms for name in ("fcfs", "priority")
    )
    means = [urgent_first[urgency == level].mean() for level in range(3)]
    assert means == sorted(means)
    assert means[0] < 0.5 * fcfs[urgency == 0].mean()
    assert means[2] > fcfs[urgency == 2].mean()


@pytest.mark.parametrize("seed", range(4))
def test_shortest_job_first_lowers_the_mean_wait(seed: int) -> None:
    """Prompts decide the service time here: outputs are short and alike."""
    rng = np.random.default_rng(seed)
    n = 300
    prompts = np.where(rng.random(n) < 0.8, rng.integers(20, 200, n), rng.integers(4000, 12_000, n))
    load = workload(poisson(n, 40, seed), prompts, 4)
    fcfs, sjf = (
        simulate(deployment(max_num_seqs=4, scheduling=policy(name)), load).records.queue_ms.mean()
        for name in ("fcfs", "sjf")
    )
    assert sjf < 0.7 * fcfs


@pytest.mark.parametrize("seed", range(4))
def test_preempting_the_least_urgent_spares_the_urgent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 200
    urgency = rng.integers(0, 2, n)
    load = workload(poisson(n, 10, seed), rng.integers(100, 800, n), rng.integers(50, 400, n), priority=urgency)
    plan = with_cache(deployment(scheduling=policy("priority"), preemption=policy("priority")), 600)
    preemptions = simulate(plan, load).records.preemptions
    assert preemptions[urgency == 0].mean() < 0.5 * preemptions[urgency == 1].mean()
