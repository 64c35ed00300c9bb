"""The step time of a vLLM-like engine: kernels bounded by the datasheet, plus what the engine adds."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, fsum

from sim.catalog import Gemm, GPUSpec, ModelSpec, WeightFormat, check_tensor_parallel
from sim.deployment import Deployment
from sim.latency._base import StepTime
from sim.latency.coefficient_set import AllReduceCoefficients, Coefficients, GemmCoefficients, GPUCoefficients
from sim.latency.kernels import AllReduceTime, GemmTime, GroupedGemmTime
from sim.latency.sampling import truncates
from sim.memory import MAX_CAPTURE_SIZE

PS_PER_US = 1e6
SAMPLER_PASSES = 4  # a row of logits is written, cast to 32 bit, normalised and searched


def padded_tokens(tokens: int, max_capture: int) -> int:
    """The capture size that vLLM pads a batch to (1, 2, 4, then every 8, from 256 every 16); `tokens` itself above the
    largest one."""
    if tokens > max_capture or tokens <= 2:
        return tokens
    if tokens <= 4:
        return 4
    step = 8 if tokens <= 256 else 16
    return min(max_capture, -(-tokens // step) * step)


def _format_coefficients(
    table: Mapping[str, GemmCoefficients], model: ModelSpec, fmt: WeightFormat, own: bool
) -> GemmCoefficients:
    """The entry for weights in `fmt`; fp8 with a scale a block of 128 x 128 has kernels of its own. `own`: whether
    the GPU has units for the format; else, as for formats without an entry, the kernels are those of 16 bit."""
    if not own:
        return table["bf16"]
    blocks = table.get("fp8_block") if fmt.name == "fp8" and model.quantization_group_size else None
    return blocks or table.get(fmt.name) or table["bf16"]


def _peak(gpu: GPUSpec, fmt: WeightFormat) -> tuple[float, bool]:
    """FLOP/s that bound a GEMM with such weights, and whether they are the format's own: without units for it the
    kernel expands the weights to 16 bit."""
    own = gpu.flops_per_s(fmt.compute, or_zero=True)
    return (own, True) if own > 0 else (gpu.flops_per_s("bf16"), fmt.compute == "bf16")


class PhysicalStepTime(StepTime):
    """Step time of `deployment`'s replicas with the efficiencies in `coefficients`. `greedy`: requests ask for
    temperature 0, whatever the checkpoint's own sampling defaults are."""

    def __init__(self, deployment: Deployment, coefficients: Coefficients, greedy: bool = False) -> None:
        model, gpu, tp = deployment.model, deployment.gpu, deployment.tensor_parallel_size
        check_tensor_parallel(model, tp)
        table = coefficients.of_gpu(gpu)
        self.window: int = model.window if model.num_windowed_layers else 0
        self._engine = coefficients.engine
        self._truncates: bool = truncates(model) and not greedy
        self._async: bool = deployment.async_scheduling
        self._layers: int = model.num_layers
        self._moe_layers: int = model.num_moe_layers
        self._max_capture: int = min(MAX_CAPTURE_SIZE, max(2 * deployment.max_num_seqs, 1))
        self._gemms: list[tuple[GemmTime, int]] = []
        self._experts: GroupedGemmTime | None = self._grouped(deployment, table) if model.num_moe_layers else None
        self._set_gemms(deployment, table)
        self._set_attention(deployment, table)
        self._all_reduce: AllReduceTime | None = None
        if tp > 1:
            self._all_reduce = AllReduceTime(tp, gpu.interconnect_bytes_per_s, _for_gpus(table, tp))
        self._eager_us: float = self._layers * self._engine.eager_layer_us
        self._eager_us += fsum(count * gemm.host_us for gemm, count in self._gemms)
        if self._experts is not None:
            self._eager_us += self._moe_layers * self._experts.host_us
        self._hidden_bytes: int = 2 * model.hidden_size
        width = 4 * model.hidden_size + 2 * (model.intermediate_size or model.moe_intermediate_size) // tp
        moved = self._engine.elementwise_passes * 2.0 * width * model.num_layers
        self._elementwise_us: float = moved / gpu.memory_bandwidth_bytes_per_s * 1e6
        self._token_ps: dict[int, float] = {}
        self._row_ps: dict[int, float] = {}
        self._host_step_ps: float = self._engine.host_step_us * PS_PER_US
        self._host_sequence_ps: float = self._engine.host_sequence_us * PS_PER_US

    def _set_gemms(self, deployment: Deployment, table: GPUCoefficients) -> None:
        model, gpu, tp = deployment.model, deployment.gpu, deployment.tensor_parallel_size

        def timed(gemm: Gemm) -> GemmTime:
            fmt = model.format_of_part(gemm.part, deployment.quantization)
            flops, own = _peak(gpu, fmt)
            entry = _format_coefficients(table.gemm, model, fmt, own)
            size = gemm.parameters * fmt.bytes_per_parameter
            return GemmTime(gemm.n, gemm.k, size, flops, gpu.memory_bandwidth_bytes_per_s, entry)

        groups: list[tuple[tuple[Gemm, ...], int]] = [
            (model.attention_gemms(tp), model.num_layers),
            (model.dense_mlp_gemms(tp), model.num_dense_layers),
        ]
        if model.num_moe_layers:
            groups.append((model.shared_expert_gemms(tp), model.num_moe_layers))
            groups.append(((model.router_gemm(),), model.num_moe_layers))
        self._gemms = [(timed(gemm), count) for gemms, count in groups for gemm in gemms]
        head = model.lm_head_gemm(tp)
        self._lm_head = timed(head)
        self._sampler_us: float = SAMPLER_PASSES * 4.0 * model.vocab_size / gpu.memory_bandwidth_bytes_per_s * 1e6
        self._sampler_us += self._engine.sequence_us
        self._sampler_step_us: float = 0.0
        if self._truncates:
            per_logit = self._engine.truncated_sampling_us_per_million_logits / 1e6
            self._sampler_us += per_logit * model.vocab_size
            self._sampler_step_us = self._engine.truncated_sampling_us

    def _grouped(self, deployment: Deployment, table: GPUCoefficients) -> GroupedGemmTime:
        model, gpu, tp = deployment.model, deployment.gpu, deployment.tensor_parallel_size
        fmt = model.format_of_part("experts", deployment.quantization)
        flops, own = _peak(gpu, fmt)
        moved = 2.0 * model.experts_per_token * (2 * model.hidden_size + 3 * model.moe_intermediate_size // tp)
        return GroupedGemmTime(
            model.num_experts,
            model.experts_per_token,
            sum(gemm.parameters for gemm in model.expert_gemms(tp)),
            fmt.bytes_per_parameter,
            moved,
            flops,
            gpu.memory_bandwidth_bytes_per_s,
            _format_coefficients(table.moe, model, fmt, own),
        )

    def _set_attention(self, deployment: Deployment, table: GPUCoefficients) -> None:
        model, gpu, tp = deployment.model, deployment.gpu, deployment.tensor_parallel_size
        attention = table.attention
        heads = model.heads_per_gpu(tp)
        eight_bit = deployment.kv_cache_dtype.startswith("fp8")
        efficiency = attention.decode_bandwidth_fp8 if eight_bit else attention.decode_bandwidth
        bandwidth = gpu.memory_bandwidth_bytes_per_s * efficiency
        kv_bytes = model.kv_bytes_per_token_per_layer_per_gpu(tp, deployment.kv_cache_dtype)
        read = kv_bytes / bandwidth
        if model.is_mla:  # absorbed: every head attends to the latent itself
            flops = 2.0 * heads * (2 * model.kv_lora_rank + model.qk_rope_head_dim)
        else:
            flops = 2.0 * heads * (model.head_dim + model.v_head_dim)
        read = max(read, flops / (gpu.bf16_flops_per_s * attention.decode_compute))
        self._full_layers: int = model.num_full_layers if self.window else model.num_layers
        self._windowed_layers: int = self._layers - self._full_layers
        self._context_ps: int = ceil(self._full_layers * read * 1e12)
        self._window_context_ps: int = ceil(self._windowed_layers * read * 1e12)
        # Prefill: pairs of the chunk, of the rows that its tiles waste, and of what short chunks leave idle.
        pair_ps = 2.0 * heads * (model.head_dim + model.v_head_dim) * 1e12
        pair_ps /= gpu.bf16_flops_per_s * attention.prefill_compute
        self._full_pair_ps: float = self._full_layers * pair_ps
        self._window_pair_ps: float = self._windowed_layers * pair_ps
        self._ramp_ps: float = self._layers * pair_ps * attention.prefill_ramp_tokens
        self._window_tile_ps: float = self._window_pair_ps * attention.prefill_tile_rows
        self._prefill_context_ps: float = self._layers * kv_bytes / bandwidth * 1e12
        self._prefill_context_ps += self._full_pair_ps * attention.prefill_tile_rows
        mixed = max(read * 1e12, pair_ps * attention.mixed_tile_rows)
        self._mixed_context_ps: int = max(self._context_ps, ceil(self._full_layers * mixed))
        self._mixed_window_ps: int = max(self._window_context_ps, ceil(self._windowed_layers * mixed))
        self._attention_us: float = self._layers * attention.launch_us
        self._tile_us: float = self._layers * attention.tile_us * model.kv_heads_per_gpu(tp)
        self._tile_ps: float = self._tile_us * PS_PER_US

    def without_all_reduce(self) -> None:
        """From now on, times one GPU of the group by itself, as a sum of separately measured layers does."""
        self._all_reduce = None
        self._token_ps.clear()

    def _forward_us(self, tokens: int) -> float:
        """Of the layers without attention, for `tokens` rows."""
        engine = self._engine
        total = self._layers * engine.layer_us + self._moe_layers * engine.moe_layer_us
        for gemm, count in self._gemms:
            total += count * gemm.us(tokens)
        if self._experts is not None:
            total += self._moe_layers * self._experts.us(tokens)
        if self._all_reduce is not None:
            total += 2 * self._layers * self._all_reduce.us(tokens * self._hidden_bytes)
        return total + tokens * self._elementwise_us

    def _sample_us(self, rows: int) -> float:
        """Of the last layer's projection and the sampler, for `rows` sequences."""
        if not rows:
            return 0.0
        return self._lm_head.us(rows) + self._sampler_step_us + rows * self._sampler_us

    def decode(self, num_seqs: int) -> tuple[int, int, int]:
        """(ps, ps per context token, ps per windowed context token) of a step of `num_seqs` decodes."""
        engine = self._engine
        tokens = padded_tokens(num_seqs, self._max_capture)
        total = engine.step_us + self._forward_us(tokens) + self._sample_us(num_seqs)
        total += self._attention_us + num_seqs * self._tile_us
        if not self._async:
            total += engine.host_step_us + num_seqs * engine.host_sequence_us
        return ceil(total * PS_PER_US), self._context_ps, self._window_context_ps

    def floor(self, num_seqs: int) -> int:
        """ps of the host in a step of `num_seqs` decodes, which the GPU's time hides as far as it goes: launching what
        no CUDA graph covers and, with asynchronous scheduling, preparing the step after."""
        engine = self._engine
        host = self._eager_us if num_seqs > self._max_capture else 0.0
        if self._async:
            host = max(host, engine.host_step_us + num_seqs * engine.host_sequence_us)
        return ceil(host * PS_PER_US)

    def _mixed_tokens_ps(self, tokens: int) -> float:
        """Of the layers without the attention's work, in ps, for a mixed batch of `tokens`."""
        engine = self._engine
        on_graph = tokens <= self._max_capture
        total = self._forward_us(padded_tokens(tokens, self._max_capture)) + self._attention_us
        launches = self._layers * engine.piecewise_layer_us if on_graph else self._eager_us
        total = engine.step_us + engine.mixed_step_us + max(total, launches)
        value = total * PS_PER_US
        self._token_ps[tokens] = value
        return value

    def _sampled_ps(self, rows: int) -> float:
        value = self._sample_us(rows) * PS_PER_US
        self._row_ps[rows] = value
        return value

    def mixed(
        self,
        num_decodes: int,
        decode_context: int,
        decode_window_context: int,
        num_prefills: int,
        prefill_tokens: int,
        prefill_pairs: int,
        prefill_window_pairs: int,
        prefill_context: int,
        num_sampled: int,
    ) -> int:
        """ps of a step with prefill chunks; the arguments are those of `StepTime.mixed`."""
        tokens = num_decodes + prefill_tokens
        base = self._token_ps.get(tokens)
        if base is None:
            base = self._mixed_tokens_ps(tokens)
        rows = self._row_ps.get(num_sampled)
        if rows is None:
            rows = self._sampled_ps(num_sampled)
        total = base + rows + prefill_pairs * self._full_pair_ps + prefill_tokens * self._ramp_ps
        total += prefill_context * self._prefill_context_ps + num_decodes * self._tile_ps
        total += decode_context * self._mixed_context_ps
        if self._windowed_layers:
            seen = min(prefill_context, num_prefills * self.window)
            total += prefill_window_pairs * self._window_pair_ps + seen * self._window_tile_ps
            total += decode_window_context * self._mixed_window_ps
        host = self._host_step_ps + (num_decodes + num_prefills) * self._host_sequence_ps
        if not self._async:
            total += host
        elif total < host:
            total = host
        return ceil(total)


def _for_gpus(table: GPUCoefficients, gpus: int) -> AllReduceCoefficients:
    """The entry for `gpus` GPUs, or for the next larger group that was measured."""
    for entry in table.all_reduce:
        if entry.gpus >= gpus:
            return entry
    return table.all_reduce[-1]


__all__ = ["PhysicalStepTime", "padded_tokens"]
