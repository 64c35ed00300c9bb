"""How much KV cache a replica has: what is left of a GPU's memory, in the terms of vLLM's start-up profile."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sim.catalog import GPUSpec, ModelSpec
from sim.deployment import Deployment
from sim.errors import DoesNotFit

GIB = 1024**3

# vLLM profiles the sampler on max_num_seqs rows of logits with top-k and top-p on. Bytes per logit alive at its peak:
# the model's 16-bit logits (2), their fp32 copy (4), the masked copy (4), the sort's values and int64 indices (12) and
# its double buffer (12), and the sorted probabilities (4). Four H100 logs of vLLM 0.11 with 1024 rows give 37.5 to
# 38.5, and one of gemma-3-4b on a B200 (vLLM pull request 21489) gives 38.8.
SAMPLER_BYTES_PER_LOGIT = 38
# Before vLLM 0.11 less: 70B at TP=2 on H100 (llm-d-benchmark's grid, 1,024 seats) serves as three requests of 11,000
# tokens at a time do. That is a KV cache of 33,000 to 44,000 tokens, 17 to 30 bytes a logit: one int64 less.
SAMPLER_BYTES_PER_LOGIT_BEFORE_0_11 = 30

# What processes hold outside of torch's allocator at the end of profiling. Logs of H100s with vLLM 0.11: 0.13 GiB at
# TP=1 (cuBLAS and attention workspaces), 0.54 GiB at TP=2 (NCCL's channels and the custom all-reduce's buffers);
# KV sizes at TP=4 (vLLM 0.15.1) show no more than that.
NON_TORCH_BYTES = round(0.13 * GIB)
NON_TORCH_BYTES_OF_A_GROUP = round(0.54 * GIB)

# From this version vLLM takes an estimate of the CUDA graphs out of the budget (log: "CUDA graph memory profiling is
# enabled (default since v0.21.0)"); before it, graphs live in what gpu_memory_utilization leaves. One log gives the
# size: 0.65 GiB for 67 piecewise graphs of gemma-3-4b's 34 layers (vLLM pull request 21489).
GRAPHS_IN_BUDGET_SINCE = (0, 21)
GRAPH_BYTES_PER_LAYER = round(0.65 * GIB / (67 * 34))
MAX_CAPTURE_SIZE = 512  # vLLM's largest by default, in tokens of a batch

# A group of layers is as large as the smaller kind, unless the kinds are nearly equal (vLLM, kv_cache_utils.py).
NEARLY_EQUAL_LAYERS = 1.25


@dataclass(frozen=True, slots=True)
class KVCapacity:
    """The KV cache of one replica, and where the memory of each of its GPUs goes. All bytes are per GPU."""

    num_blocks: int  # each holds block_size tokens in every layer
    tokens: int  # what vLLM logs as "GPU KV cache size"
    max_model_len: int  # resolved: no request can be longer, and one of this length fits the cache alone
    total_bytes: int  # of the GPU, as the driver reports it
    usable_bytes: int  # total x gpu_memory_utilization
    weights_bytes: int
    activation_bytes: int  # peak of a profile run at max_num_batched_tokens and max_num_seqs
    non_torch_bytes: int
    graphs_bytes: int  # CUDA graphs, where this engine version counts them
    kv_bytes: int  # what is left


def kv_capacity(deployment: Deployment) -> KVCapacity:
    """The KV cache of a replica of `deployment`, every quantity per GPU (vLLM: gpu_worker.determine_available_memory).

    With `num_gpu_blocks_override` the cache has that many blocks, as in vLLM: the estimate of what is left is not used.
    `DoesNotFit` with the arithmetic if the weights, or weights and working memory, leave no room; if not one request
    of an explicit max_model_len fits; the deployment itself is taken as valid (see `sim.checks`).
    """
    model, tp = deployment.model, deployment.tensor_parallel_size
    usable = int(deployment.gpu.memory_bytes * deployment.gpu_memory_utilization)
    weights = model.weight_bytes_per_gpu(tp, deployment.quantization)
    batch = deployment.max_num_batched_tokens, deployment.max_num_seqs
    activation = activation_peak_bytes(model, tp, *batch, deployment.engine_version)
    non_torch = NON_TORCH_BYTES if tp == 1 else NON_TORCH_BYTES_OF_A_GROUP
    graphs = cuda_graph_bytes(model, deployment.max_num_seqs, deployment.engine_version)
    kv = usable - weights - activation - non_torch - graphs
    if deployment.num_gpu_blocks_override is None:
        _refuse_without_room(deployment, usable, weights, activation, non_torch, graphs)
    block_bytes = deployment.block_size * kv_bytes_per_token_per_gpu(deployment)
    num_blocks = kv // block_bytes
    if deployment.num_gpu_blocks_override is not None:
        num_blocks, kv = deployment.num_gpu_blocks_override, deployment.num_gpu_blocks_override * block_bytes
    tokens = num_blocks * deployment.block_size
    return KVCapacity(
        num_blocks=num_blocks,
        tokens=tokens,
        max_model_len=_resolved_max_model_len(deployment, tokens, kv),
        total_bytes=deployment.gpu.memory_bytes,
        usable_bytes=usable,
        weights_bytes=weights,
        activation_bytes=activation,
        non_torch_bytes=non_torch,
        graphs_bytes=graphs,
        kv_bytes=kv,
    )


def activation_peak_bytes(
    model: ModelSpec, tp: int, max_num_batched_tokens: int, max_num_seqs: int, engine_version: str
) -> int:
    """Peak of torch's allocations in vLLM's profile run, in bytes on one GPU, weights aside.

    One forward pass over max_num_batched_tokens tokens, then one sampler pass over max_num_seqs rows of logits, which
    every GPU of a group gathers whole. Hidden states and residual live through both. A multimodal model's encoder
    outputs, as many as the token budget, are kept meanwhile.
    """
    tokens, hidden = max_num_batched_tokens, model.hidden_size
    alive = 2 * tokens * hidden * 2
    if model.vision_parameters:
        alive += tokens * hidden * 2
    widths = [sum(gemm.n for gemm in model.attention_gemms(tp))]
    for gemms in (model.dense_mlp_gemms(tp), model.shared_expert_gemms(tp)):
        if gemms:  # the up-projection's output, and the activation's
            widths.append(gemms[0].n + gemms[1].k)
    if model.num_moe_layers:  # one workspace for both GEMMs' outputs, one for the activation between them
        up, down = model.expert_gemms(tp)
        widths.append(model.experts_per_token * (max(up.n, down.n) + down.k))
    forward = tokens * max(widths) * 2
    older = engine_release(engine_version) < (0, 11)
    per_logit = SAMPLER_BYTES_PER_LOGIT_BEFORE_0_11 if older else SAMPLER_BYTES_PER_LOGIT
    sampler = min(max_num_seqs, tokens) * model.vocab_size * per_logit
    return alive + max(forward, sampler)


def capture_sizes(max_num_seqs: int) -> list[int]:
    """Batch sizes for which vLLM captures CUDA graphs by default: 1, 2, 4, then by 8 to 256, then by 16 to 512 or
    twice max_num_seqs, whichever is less."""
    largest = min(2 * max_num_seqs, MAX_CAPTURE_SIZE)
    sizes = [1, 2, 4, *range(8, 257, 8), *range(272, MAX_CAPTURE_SIZE + 1, 16)]
    return [size for size in sizes if size <= largest]


def cuda_graph_bytes(model: ModelSpec, max_num_seqs: int, engine_version: str) -> int:
    """What the engine sets aside for CUDA graphs, in bytes on one GPU: piecewise graphs of every capture size and
    full ones up to max_num_seqs, in proportion to layers. 0 before vLLM 0.21, which does not count them."""
    if engine_release(engine_version) < GRAPHS_IN_BUDGET_SINCE:
        return 0
    sizes = capture_sizes(max_num_seqs)
    graphs = len(sizes) + sum(size <= max_num_seqs for size in sizes)
    return graphs * model.num_layers * GRAPH_BYTES_PER_LAYER


def api_server_defaults(gpu: GPUSpec) -> tuple[int, int]:
    """(max_num_seqs, max_num_batched_tokens) that `vllm serve` takes on `gpu` where they are not given: 1024 and 8192
    with 70 GiB or more, except on an A100; 256 and 2048 otherwise (vLLM, EngineArgs.get_batch_defaults)."""
    large = gpu.memory_bytes >= 70 * GIB and not gpu.name.startswith("A100")
    return (1024, 8192) if large else (256, 2048)


def engine_release(text: str) -> tuple[int, int]:
    """(0, 15) of ``0.15.1``; (0, 0) where there is no number."""
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


# -- room --------------------------------------------------------------------------------------------------------


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"


def _refuse_without_room(
    deployment: Deployment, usable: int, weights: int, activation: int, non_torch: int, graphs: int
) -> None:
    total, share = deployment.gpu.memory_bytes / GIB, deployment.gpu_memory_utilization
    has = f"has {_gib(usable)} ({total:.2f} GiB x {share:g})"
    tp = deployment.tensor_parallel_size
    where = f"{deployment.model.name} at tensor_parallel_size={tp} on {deployment.gpu.name}"
    if weights >= usable:
        raise DoesNotFit("deployment", f"{where}: needs {_gib(weights)} for weights per GPU, {has}")
    needed = weights + activation + non_torch + graphs
    if needed >= usable:
        parts = f"weights {_gib(weights)} + activations {_gib(activation)} + non-torch {_gib(non_torch)}"
        parts += f" + CUDA graphs {_gib(graphs)}" if graphs else ""
        problem = f"{where}: needs {_gib(needed)} per GPU before any KV cache ({parts}), {has}"
        raise DoesNotFit("deployment", problem)


def kv_bytes_per_token_per_gpu(deployment: Deployment) -> int:
    """Bytes that a token takes in the pool of blocks on one GPU, in every layer.

    Where some layers have a window and others none, vLLM makes groups of equally many layers that share one pool, and
    pads the last group: gemma-3-27b's 10 full and 52 windowed layers are 7 groups of 10 (kv_cache_utils.py).
    """
    model = deployment.model
    layer = model.kv_bytes_per_token_per_layer_per_gpu(deployment.tensor_parallel_size, deployment.kv_cache_dtype)
    return layer * pooled_layers(model)


def pooled_layers(model: ModelSpec) -> int:
    """Layers for which a block of the pool is counted: the model's, and the padding of its last group."""
    kinds = [count for count in (model.num_full_layers, model.num_windowed_layers) if count]
    if len(kinds) == 1:
        return kinds[0]
    size = max(kinds) if max(kinds) < NEARLY_EQUAL_LAYERS * min(kinds) else min(kinds)
    return sum(-(-count // size) for count in kinds) * size


# -- length ------------------------------------------------------------------------------------------------------


def _bytes_of_one_request(deployment: Deployment, length: int) -> int:
    """KV cache of one request of `length` tokens on one GPU, as vLLM's start-up check counts it: windowed layers keep
    the window and the tokens of one step, and a block for where the window starts inside one."""
    model, block = deployment.model, deployment.block_size
    layer = model.kv_bytes_per_token_per_layer_per_gpu(deployment.tensor_parallel_size, deployment.kv_cache_dtype)
    blocks = model.num_full_layers * -(-length // block)
    if model.num_windowed_layers:
        kept = min(length, model.window - 1 + deployment.max_num_batched_tokens)
        blocks += model.num_windowed_layers * min(-(-kept // block) + 1, -(-length // block))
    return blocks * block * layer


def _longest_that_fits(deployment: Deployment, kv_bytes: int) -> int:
    """The longest request whose KV cache is at most `kv_bytes`, up to the model's own limit; 0 if none."""
    low, high = 0, deployment.model.max_model_len
    while low < high:
        middle = (low + high + 1) // 2
        if _bytes_of_one_request(deployment, middle) <= kv_bytes:
            low = middle
        else:
            high = middle - 1
    return low


def _resolved_max_model_len(deployment: Deployment, tokens: int, kv_bytes: int) -> int:
    asked = deployment.max_model_len
    longest = _longest_that_fits(deployment, kv_bytes)
    if longest < 1 or tokens < 1:
        raise DoesNotFit("deployment", f"the {_gib(kv_bytes)} left for KV cache per GPU hold no block of tokens")
    if asked is not None and asked > longest:
        needed = _gib(_bytes_of_one_request(deployment, asked))
        problem = f"one request of {asked} tokens needs {needed} of KV cache per GPU, there are {_gib(kv_bytes)}; "
        problem += f"the largest max_model_len that fits is {longest}"
        raise DoesNotFit("deployment.max_model_len", problem)
    wanted = deployment.model.max_model_len if asked is None else asked
    # Blocks hold a token in every layer here, so a windowed model's longest request is that of the pool.
    return min(wanted, tokens)
