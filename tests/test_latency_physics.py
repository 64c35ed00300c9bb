"""The step time obeys the physics of the datasheets, for every model and GPU of the catalog."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sim.catalog import GPUSpec, ModelSpec, check_tensor_parallel, gpu_names, load_gpu, load_model, model_names
from sim.deployment import Deployment
from sim.errors import InputError
from sim.latency import StepTime, build_step_time, load_coefficients
from sim.latency.kernels import experts_touched
from sim.latency.step_time import padded_tokens
from sim.memory import capture_sizes

PS = 1e12
COEFFICIENTS = load_coefficients()
GPUS = [load_gpu(name) for name in gpu_names()]


def deployments(name: str, tps: tuple[int, ...] = (1, 2, 8)) -> Iterator[Deployment]:
    """Of one model, on every GPU, at every TP that vLLM accepts."""
    model = load_model(name)
    for tp in tps:
        try:
            check_tensor_parallel(model, tp)
        except InputError:
            continue
        for gpu in GPUS:
            yield Deployment(model, gpu, tensor_parallel_size=tp)


def read_bytes(model: ModelSpec, tp: int, tokens: int) -> float:
    """Bytes of weights that a step of `tokens` tokens cannot avoid reading on one GPU: all but the embedding table
    and the experts that no token chose."""
    parts = dict(model.weight_bytes_by_part(tp))
    for part in ("embedding", "vision", "norms", "router"):
        parts.pop(part, None)
    if model.num_experts:
        share = experts_touched(model.num_experts, model.experts_per_token, tokens) / model.num_experts
        parts["experts"] = round(parts["experts"] * share)
    return float(sum(parts.values()))


def best_flops(gpu: GPUSpec) -> float:
    """The fastest dense peak of any number format."""
    return max(gpu.bf16_flops_per_s, gpu.fp8_flops_per_s, gpu.fp4_flops_per_s)


def prefill(step_time: StepTime, tokens: int, computed: int = 0, decodes: int = 0, context: int = 0) -> int:
    """ps of a step with one chunk of `tokens` after `computed`, beside `decodes` decodes."""
    pairs = tokens * computed + tokens * (tokens + 1) // 2
    window = step_time.window
    seen = pairs if not window else sum(min(window, computed + i + 1) for i in range(tokens))
    windowed = min(context, decodes * window) if window else 0
    return step_time.mixed(decodes, context, windowed, 1, tokens, pairs, seen, computed + tokens, decodes + 1)


def decode(step_time: StepTime, seqs: int, context: int = 0) -> int:
    """Of a step of `seqs` decodes with `context` tokens of context in all."""
    constant, per_token, per_windowed = step_time.decode(seqs)
    windowed = min(context, seqs * step_time.window)
    return max(constant + per_token * context + per_windowed * windowed, step_time.floor(seqs))


@pytest.mark.parametrize("name", model_names())
def test_decode_is_never_faster_than_reading_the_weights_and_the_cache(name: str) -> None:
    for deployment in deployments(name):
        gpu, model, tp = deployment.gpu, deployment.model, deployment.tensor_parallel_size
        step_time = build_step_time(deployment, COEFFICIENTS)
        kv = model.kv_bytes_per_token_per_layer_per_gpu(tp)
        for seqs in (1, 7, 64, 256):
            constant, per_token, per_windowed = step_time.decode(seqs)
            floor = read_bytes(model, tp, seqs) / gpu.memory_bandwidth_bytes_per_s * PS
            assert constant >= floor, (gpu.name, tp, seqs)
            layers = model.num_full_layers if step_time.window else model.num_layers
            assert per_token >= layers * kv / gpu.memory_bandwidth_bytes_per_s * PS
            if step_time.window:
                assert per_windowed >= model.num_windowed_layers * kv / gpu.memory_bandwidth_bytes_per_s * PS


@pytest.mark.parametrize("name", model_names())
def test_prefill_is_never_faster_than_peak_flops(name: str) -> None:
    for deployment in deployments(name):
        model, tp = deployment.model, deployment.tensor_parallel_size
        step_time = build_step_time(deployment, COEFFICIENTS)
        for tokens in (16, 700, 8192):
            flops = model.linear_flops_per_token * tokens / tp
            assert prefill(step_time, tokens) >= flops / best_flops(deployment.gpu) * PS, (deployment.gpu.name, tp)


@pytest.mark.parametrize("name", model_names())
def test_two_gpus_are_never_more_than_twice_as_fast_as_one(name: str) -> None:
    model = load_model(name)
    try:
        check_tensor_parallel(model, 2)
    except InputError:
        pytest.skip("cannot be sharded over two")
    for gpu in GPUS:
        one, two = (build_step_time(Deployment(model, gpu, tensor_parallel_size=tp), COEFFICIENTS) for tp in (1, 2))
        for seqs in (1, 64):
            assert decode(one, seqs) <= 2 * decode(two, seqs)
        assert prefill(one, 2048) <= 2 * prefill(two, 2048)


@pytest.mark.parametrize("name", model_names())
def test_more_sequences_and_more_tokens_never_take_less_time(name: str) -> None:
    for deployment in deployments(name, (1, 2)):
        step_time = build_step_time(deployment, COEFFICIENTS)
        decodes = [decode(step_time, seqs) for seqs in (*range(1, 70), *range(70, 600, 13))]
        assert decodes == sorted(decodes)
        chunks = [prefill(step_time, tokens) for tokens in (*range(1, 600, 7), *range(600, 9000, 400))]
        assert chunks == sorted(chunks)


def test_adding_to_a_batch_never_takes_less_time() -> None:
    """Random mixed batches over the catalog: a token, a context, a sequence more."""
    rng = random.Random(7)
    names = model_names()
    for _ in range(150):
        deployment = rng.choice(list(deployments(rng.choice(names), (1, 2))))
        step_time = build_step_time(deployment, COEFFICIENTS)
        for _ in range(10):
            seqs, tokens, computed = rng.randrange(200), rng.randrange(1, 3000), rng.choice((0, rng.randrange(5000)))
            context = seqs * rng.randrange(1, 4000)
            base = prefill(step_time, tokens, computed, seqs, context)
            assert base >= (decode(step_time, seqs, context) if seqs else 0)
            assert prefill(step_time, tokens + rng.randrange(1, 40), computed, seqs, context) >= base
            assert prefill(step_time, tokens, computed + rng.randrange(1, 400), seqs, context) >= base
            assert prefill(step_time, tokens, computed, seqs + 1, context + rng.randrange(1, 4000)) >= base


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-20b", "deepseek-ai/DeepSeek-R1"])
def test_a_deeper_model_takes_longer(name: str) -> None:
    model = load_model(name)
    deeper = replace(model, num_layers=model.num_layers + 4)
    gpu = load_gpu("H200")
    shallow, deep = (build_step_time(Deployment(m, gpu), COEFFICIENTS) for m in (model, deeper))
    assert decode(deep, 8) > decode(shallow, 8)
    assert prefill(deep, 512) > prefill(shallow, 512)


def test_synchronous_scheduling_adds_the_host_to_each_step() -> None:
    model, gpu = load_model("meta-llama/Llama-3.1-8B-Instruct"), load_gpu("H100")
    overlapped, serial = (
        build_step_time(Deployment(model, gpu, async_scheduling=on), COEFFICIENTS) for on in (True, False)
    )
    assert decode(serial, 32) > decode(overlapped, 32)
    assert prefill(serial, 512) > prefill(overlapped, 512)


def test_an_fp8_cache_is_read_no_slower_than_one_of_16_bits() -> None:
    model = load_model("meta-llama/Llama-3.1-70B-Instruct")
    for gpu in GPUS:
        wide, narrow = (
            build_step_time(Deployment(model, gpu, tensor_parallel_size=8, kv_cache_dtype=d), COEFFICIENTS)
            for d in ("auto", "fp8")
        )
        assert narrow.decode(1)[1] <= wide.decode(1)[1] * 1.2, gpu.name


def test_a_window_bounds_what_decodes_read() -> None:
    model = load_model("openai/gpt-oss-20b")
    step_time = build_step_time(Deployment(model, load_gpu("H100")), COEFFICIENTS)
    assert step_time.window == model.window
    _, per_token, per_windowed = step_time.decode(4)
    assert per_token > 0
    assert per_windowed > 0


def test_experts_touched_agrees_with_counting() -> None:
    """Against drawing k of E at random for each token."""
    rng = random.Random(1)
    for experts, chosen, tokens in ((8, 2, 5), (128, 8, 20), (16, 1, 40)):
        counts = [len({e for _ in range(tokens) for e in rng.sample(range(experts), chosen)}) for _ in range(3000)]
        assert experts_touched(experts, chosen, tokens) == pytest.approx(sum(counts) / len(counts), rel=0.01)


def test_a_step_takes_the_same_picoseconds_however_it_was_reached() -> None:
    deployment = Deployment(load_model("mistralai/Mixtral-8x7B-v0.1"), load_gpu("H100"), tensor_parallel_size=2)
    first, second = (build_step_time(deployment, COEFFICIENTS) for _ in range(2))
    warmed = [prefill(first, tokens) for tokens in range(900, 10, -37)]
    assert [prefill(second, tokens) for tokens in sorted(range(900, 10, -37))] == warmed[::-1]


@pytest.mark.parametrize("seats", [1, 2, 4, 8, 32, 128, 256, 1024])
def test_a_batch_is_padded_to_the_next_captured_size(seats: int) -> None:
    sizes = capture_sizes(seats)
    for tokens in range(1, sizes[-1] + 1):
        assert padded_tokens(tokens, sizes[-1]) == min(size for size in sizes if size >= tokens)
    assert padded_tokens(sizes[-1] + 1, sizes[-1]) == sizes[-1] + 1, "beyond the largest graph nothing is padded"
