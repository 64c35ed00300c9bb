"""Where the time of a run went: by resource, and it adds up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim.latency import load_coefficients
from sim.latency.parts import ALL_REDUCE, COMPUTE, IDLE, KV_READS, OVERHEAD, RESOURCES, WEIGHTS
from sim.result import Result
from sim.simulate import simulate
from tests.serving_cases import ConstantStep, deployment, poisson, workload

MODELS = ("meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-20b", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3")


def served(
    model: str = MODELS[0], n: int = 60, rate: float = 4.0, prompt: int = 500, output: int = 80, **more: Any
) -> Result:
    if "DeepSeek" in model:
        more = {"gpu": "H200", "tensor_parallel_size": 8, **more}
    return simulate(deployment(model, **more), workload(poisson(n, rate, 2), prompt, output), sampled=True)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_parts_of_busy_time_add_up_to_it_and_none_is_negative(model: str, asynchronous: bool) -> None:
    result = served(model, async_scheduling=asynchronous)
    for replica in result.replicas:
        parts = replica.time_parts()  # type: ignore[attr-defined]
        assert sum(parts.values()) == pytest.approx(replica.stats.busy_ps, rel=1e-9)
        assert all(ps >= 0 for ps in parts.values())
    shares = result.time_parts()
    assert sum(shares.values()) == pytest.approx(1.0)
    assert set(shares) == {*RESOURCES, IDLE}


def test_one_gpu_spends_no_time_on_all_reduce_and_two_do() -> None:
    assert served().time_parts()[ALL_REDUCE] == 0.0
    assert served(tensor_parallel_size=2).time_parts()[ALL_REDUCE] > 0.0


def test_decoding_a_few_short_contexts_is_mostly_reading_weights() -> None:
    parts = served(rate=0.5, prompt=20, output=200).time_parts()
    assert max(RESOURCES, key=parts.__getitem__) == WEIGHTS


def test_long_prompts_are_mostly_compute() -> None:
    parts = served(rate=0.3, prompt=20_000, output=2, max_num_batched_tokens=8192).time_parts()
    assert max(RESOURCES, key=parts.__getitem__) == COMPUTE


def test_many_long_contexts_are_mostly_reading_the_cache() -> None:
    parts = served(n=40, rate=40.0, prompt=8_000, output=800, max_num_batched_tokens=8192, gpu="H200").time_parts()
    assert max(RESOURCES, key=parts.__getitem__) == KV_READS


def test_reading_weights_takes_at_least_the_bandwidth_of_the_datasheet_allows() -> None:
    result = served(rate=0.5, prompt=20, output=200)
    plan = result.deployment
    steps = sum(replica.stats.steps for replica in result.replicas)
    least_s = steps * 2 * 7.5e9 / plan.gpu.memory_bandwidth_bytes_per_s  # of the layers and the head, 16 bit
    assert result.time_parts()[WEIGHTS] * result.duration_s >= 0.95 * least_s


def test_the_host_counts_where_it_is_the_slower_one() -> None:
    coefficients = load_coefficients()
    slow = replace(coefficients, engine=replace(coefficients.engine, host_step_us=200_000.0))
    load = workload(poisson(30, 2.0, 2), 100, 20)
    parts = simulate(deployment(), load, coefficients=slow, sampled=True).time_parts()
    assert max(RESOURCES, key=parts.__getitem__) == OVERHEAD


def test_a_latency_model_of_the_users_has_no_parts() -> None:
    load = workload(poisson(10, 2.0, 2), 100, 20)
    assert simulate(deployment(), load, step_time=ConstantStep(10**9), sampled=True).time_parts() == {}
    assert simulate(deployment(), load).time_parts() == {}
