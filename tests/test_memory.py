"""The memory model against what real servers printed, and what must hold for every model on every GPU."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sim.catalog import gpu_names, load_gpu, load_model, model_names
from sim.checks import check_deployment
from sim.deployment import Deployment
from sim.errors import DoesNotFit, InputError
from sim.memory import (
    GIB,
    activation_peak_bytes,
    api_server_defaults,
    capture_sizes,
    cuda_graph_bytes,
    kv_capacity,
    pooled_layers,
)

KV_CAPACITY = Path(__file__).resolve().parents[2] / "shared" / "measured" / "kv_capacity.csv"


def deployment(model: str = "Llama-3.1-8B", gpu: str = "H100-SXM-80GB", tp: int = 1, **settings: Any) -> Deployment:
    return Deployment(load_model(model), load_gpu(gpu), tensor_parallel_size=tp, **settings)


# -- what servers printed --------------------------------------------------------------------------------------


def logged_rows() -> list[dict[str, str]]:
    if not KV_CAPACITY.is_file():
        return []
    with KV_CAPACITY.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def deployment_of(row: dict[str, str]) -> Deployment:
    model, gpu = load_model(row["model"]), load_gpu(row["gpu"])
    max_num_seqs, max_num_batched_tokens = 256, 2048
    if row["max_num_batched_tokens"] == "default":
        max_num_seqs, max_num_batched_tokens = api_server_defaults(gpu)
        if row["note"] == "multimodal":
            # Its 2.12 GiB of activations are less than half of what 1024 rows of its 131072 logits take in the text
            # models' logs: it ran with fewer, which the log does not give.
            max_num_seqs = 256
    return Deployment(
        model,
        gpu,
        tensor_parallel_size=int(row["tp"]),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=int(row["max_model_len"]),
        gpu_memory_utilization=float(row["gpu_memory_utilization"]),
        block_size=int(row["block_size"]),
        engine_version=row["engine_version"],
    )


needs_log = pytest.mark.skipif(not KV_CAPACITY.is_file(), reason="../shared/measured/kv_capacity.csv is not at hand")


@needs_log
@pytest.mark.parametrize("row", logged_rows(), ids=lambda row: row["model"])
def test_kv_cache_is_what_the_server_printed(row: dict[str, str]) -> None:
    capacity = kv_capacity(deployment_of(row))
    if row["kv_tokens"]:
        assert capacity.tokens == pytest.approx(int(row["kv_tokens"]), rel=0.06)
    if row["kv_gib_per_gpu"]:
        assert capacity.kv_bytes / GIB == pytest.approx(float(row["kv_gib_per_gpu"]), rel=0.06)
    if row["weights_gib_per_gpu"]:
        assert capacity.weights_bytes / GIB == pytest.approx(float(row["weights_gib_per_gpu"]), rel=0.01)
    if row["activation_gib"] and row["note"] != "multimodal":
        assert capacity.activation_bytes / GIB == pytest.approx(float(row["activation_gib"]), rel=0.05)


def test_activation_peak_is_that_of_a_server_that_the_fit_did_not_see() -> None:
    # gemma-3-4b-it on a B200 with the offline defaults (16384 tokens, 1024 sequences): vLLM pull request 21489 logs
    # 9.96 GiB at the peak.
    peak = activation_peak_bytes(load_model("gemma-3-4b-it"), 1, 16384, 1024, "0.11.0")
    assert peak / GIB == pytest.approx(9.96, rel=0.05)


def test_70b_in_16_bit_on_two_80_gb_gpus_has_almost_no_room_for_kv() -> None:
    capacity = kv_capacity(deployment("Llama-2-70b-hf", tp=2))
    assert capacity.weights_bytes / GIB == pytest.approx(64.2, abs=0.2)
    assert capacity.tokens < 45_000
    assert kv_capacity(deployment("Llama-2-70b-hf", tp=4)).tokens > 10 * capacity.tokens


# -- what must hold everywhere ---------------------------------------------------------------------------------


@cache
def fits(model: str, gpu: str, tp: int, **settings: Any) -> Any:
    built = deployment(model, gpu, tp, **settings)
    try:
        check_deployment(built)
        return kv_capacity(built)
    except InputError:
        return None


def everywhere() -> Iterator[tuple[str, str, int]]:
    for model in model_names():
        for gpu in gpu_names():
            for tp in (1, 2, 4, 8):
                if fits(model, gpu, tp) is not None:
                    yield model, gpu, tp


def test_every_model_fits_some_deployment_of_the_catalog() -> None:
    assert {model for model, _, _ in everywhere()} == set(model_names())


def test_the_parts_add_up_to_what_is_usable() -> None:
    for model, gpu, tp in everywhere():
        c = fits(model, gpu, tp)
        parts = c.weights_bytes + c.activation_bytes + c.non_torch_bytes + c.graphs_bytes + c.kv_bytes
        assert parts == c.usable_bytes == int(c.total_bytes * 0.9)
        assert min(c.weights_bytes, c.activation_bytes, c.non_torch_bytes, c.kv_bytes) > 0


def test_the_pool_is_never_larger_than_the_group_s_memory() -> None:
    # The trap: the memory of the group over one GPU's share of a token gives a factor of tp too much.
    for model, gpu, tp in everywhere():
        c, spec = fits(model, gpu, tp), load_model(model)
        assert c.tokens * spec.kv_bytes_per_token_per_gpu(tp) <= c.kv_bytes
        whole = spec.kv_bytes_per_token_per_gpu(1)
        free = tp * c.usable_bytes - spec.weight_bytes_per_gpu(1)
        replicated = tp * spec.kv_bytes_per_token_per_gpu(tp) // whole
        assert c.tokens * whole * replicated <= free * 1.05


def test_more_memory_never_holds_fewer_tokens() -> None:
    for model, gpu, tp in everywhere():
        tokens = [
            c.tokens if (c := fits(model, gpu, tp, gpu_memory_utilization=share)) else 0 for share in (0.8, 0.9, 0.95)
        ]
        assert tokens == sorted(tokens)
        assert tokens[0] < tokens[2]


def test_more_seats_and_larger_steps_never_leave_more_room() -> None:
    for model, gpu, tp in everywhere():
        for name, values in {"max_num_seqs": (16, 256, 1024), "max_num_batched_tokens": (1024, 2048, 16384)}.items():
            rest = {"max_num_batched_tokens": 16384} if name == "max_num_seqs" else {"max_num_seqs": 64}
            left = [c.kv_bytes if (c := fits(model, gpu, tp, **{name: v}, **rest)) else 0 for v in values]
            assert left == sorted(left, reverse=True)


def test_more_gpus_never_hold_fewer_tokens() -> None:
    for model, gpu, tp in everywhere():
        if tp > 1 and (fewer := fits(model, gpu, tp // 2)) is not None:
            assert fits(model, gpu, tp).weights_bytes < fewer.weights_bytes
            # only where the KV cache is replicated and a group's buffers outweigh the weights it shares may it shrink
            if fits(model, gpu, tp).weights_bytes + GIB < fewer.weights_bytes:
                assert fits(model, gpu, tp).tokens > fewer.tokens


def test_a_request_of_the_resolved_length_fits_the_pool_alone() -> None:
    for model, gpu, tp in everywhere():
        c = fits(model, gpu, tp)
        assert 1 <= c.max_model_len <= min(c.tokens, load_model(model).max_model_len)


def test_an_fp8_cache_holds_twice_as_many_tokens() -> None:
    half, full = kv_capacity(deployment(kv_cache_dtype="fp8")), kv_capacity(deployment())
    assert half.tokens == pytest.approx(2 * full.tokens, abs=32)


# -- windows and graphs ----------------------------------------------------------------------------------------


def test_groups_of_layers_share_one_pool() -> None:
    assert pooled_layers(load_model("gpt-oss-20b")) == 24
    assert pooled_layers(load_model("gemma-3-27b-it")) == 70  # 10 full, and 52 windowed in six groups of ten
    assert pooled_layers(load_model("Mistral-7B-v0.1")) == 32


def test_a_windowed_model_starts_with_a_length_that_a_full_one_could_not() -> None:
    # A 4 GiB cache holds 32k tokens in all 32 layers; the window of Mistral-7B-v0.1 keeps 4096 and a step.
    tight = {"gpu_memory_utilization": 0.18 + 0.02, "max_model_len": 32768}
    windowed = kv_capacity(deployment("Mistral-7B-v0.1", **tight))
    assert windowed.tokens < 32768
    assert windowed.max_model_len == windowed.tokens
    with pytest.raises(DoesNotFit, match="largest max_model_len that fits"):
        kv_capacity(deployment("Mistral-7B-v0.3", **tight))


def test_graphs_are_counted_from_the_version_that_counts_them() -> None:
    model = load_model("Llama-3.1-8B")
    assert cuda_graph_bytes(model, 256, "0.15.1") == 0
    assert cuda_graph_bytes(model, 256, "v0.22.1") > 0
    assert cuda_graph_bytes(model, 8, "0.22.1") < cuda_graph_bytes(model, 256, "0.22.1") < 2 * GIB


def test_capture_sizes_are_vllm_s() -> None:
    assert capture_sizes(4) == [1, 2, 4, 8]
    assert len(capture_sizes(256)) == 51
    assert capture_sizes(10_000)[-1] == 512


# -- refusals --------------------------------------------------------------------------------------------------


def test_weights_that_do_not_fit_are_refused_with_the_arithmetic() -> None:
    with pytest.raises(DoesNotFit, match=r"needs 131.4 GiB for weights per GPU, has 71.3 GiB \(79.18 GiB x 0.9\)"):
        kv_capacity(deployment("Llama-3.1-70B"))


def test_weights_without_working_memory_are_refused_with_every_part() -> None:
    with pytest.raises(DoesNotFit, match=r"before any KV cache \(weights 61.0 GiB \+ activations 5.7 GiB \+ non-torch"):
        kv_capacity(
            deployment("Qwen3-32B", max_num_seqs=1024, max_num_batched_tokens=8192, gpu_memory_utilization=0.84)
        )


def test_a_length_that_the_cache_cannot_hold_is_refused_with_the_one_it_can() -> None:
    asked = deployment("Qwen3-32B", max_num_seqs=1024, max_num_batched_tokens=8192, max_model_len=40960)
    with pytest.raises(
        DoesNotFit, match=r"40960 tokens needs 10.0 GiB of KV cache per GPU, there are 4.4 GiB"
    ) as caught:
        kv_capacity(asked)
    assert caught.value.field == "deployment.max_model_len"
    largest = int(str(caught.value).rsplit(" ", 1)[1])
    assert kv_capacity(dataclasses.replace(asked, max_model_len=largest)).max_model_len == largest
    with pytest.raises(DoesNotFit):
        kv_capacity(dataclasses.replace(asked, max_model_len=largest + 16))


def test_without_a_length_the_cache_decides() -> None:
    capacity = kv_capacity(deployment("Qwen3-32B", max_num_seqs=1024, max_num_batched_tokens=8192))
    assert capacity.max_model_len == capacity.tokens < 40960
    assert kv_capacity(deployment("Qwen3-14B")).max_model_len == 40960


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"replicas": 0}, "replicas"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"max_num_batched_tokens": 128}, "max_num_batched_tokens"),
        ({"tp": 3}, "tensor_parallel_size"),
        ({"tp": 16}, "tensor_parallel_size"),
        ({"tp": 0}, "tensor_parallel_size"),
        ({"block_size": 17}, "block_size"),
        ({"gpu_memory_utilization": 0.0}, "gpu_memory_utilization"),
        ({"gpu_memory_utilization": 1.01}, "gpu_memory_utilization"),
        ({"gpu_memory_utilization": math.nan}, "gpu_memory_utilization"),
        ({"max_model_len": 131073}, "max_model_len"),
        ({"max_model_len": 0}, "max_model_len"),
        ({"quantization": "fp9"}, "quantization"),
        ({"gpu": "MI300X", "quantization": "modelopt_fp4"}, "quantization"),
        ({"model": "Qwen3-32B-FP8", "quantization": "awq"}, "quantization"),
        ({"kv_cache_dtype": "fp4"}, "kv_cache_dtype"),
    ],
)
def test_what_vllm_refuses_is_refused_by_field(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        check_deployment(deployment(**settings))
    assert caught.value.field == f"deployment.{field}"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gpu": "A100-SXM-80GB", "quantization": "fp8"},  # weights expanded to 16 bit by Marlin
        {"model": "Qwen3-32B-FP8", "quantization": "fp8"},
        {"model": "gpt-oss-120b", "tp": 2},
        {"max_model_len": 131072, "block_size": 32, "gpu_memory_utilization": 1.0, "kv_cache_dtype": "fp8_e5m2"},
    ],
)
def test_what_vllm_takes_is_taken(settings: dict[str, Any]) -> None:
    check_deployment(deployment(**settings))


def test_an_engines_log_has_the_last_word_on_its_blocks() -> None:
    estimated = deployment("meta-llama/Llama-3.1-8B-Instruct")
    told = dataclasses.replace(estimated, num_gpu_blocks_override=1234)
    assert kv_capacity(told).num_blocks == 1234
    assert kv_capacity(told).tokens == 1234 * told.block_size
    with pytest.raises(DoesNotFit, match="max_model_len"):
        kv_capacity(dataclasses.replace(told, max_model_len=1234 * told.block_size + 1))
