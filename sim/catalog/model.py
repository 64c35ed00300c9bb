"""What a model is made of: shapes, parameters, bytes and FLOPs, in total and on each GPU of a tensor-parallel group."""

from __future__ import annotations

from dataclasses import dataclass

from sim.catalog.weights import WeightFormat, format_of_method, weight_format
from sim.errors import InputError

VOCAB_PADDING = 64  # vLLM pads the vocabulary to a multiple of this before it shards (VocabParallelEmbedding)
KV_DTYPE_BYTES = {"auto": 2, "bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}


@dataclass(frozen=True, slots=True)
class Gemm:
    """One matrix of weights on one GPU: `tokens` x `k` activations times `k` x `n` weights."""

    name: str
    part: str  # attention | mlp | experts | shared_experts | router | embedding | lm_head
    n: int
    k: int

    @property
    def parameters(self) -> int:
        """Weights in the matrix."""
        return self.n * self.k


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The shapes of a decoder-only transformer, as its config.json gives them.

    Heads, ranks and sizes are those of the whole model; methods that take `tp` give what one GPU of a
    tensor-parallel group holds, rounded up as vLLM shards it.
    """

    name: str
    hidden_size: int
    num_layers: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int  # of queries and keys (MLA: qk_nope + qk_rope)
    v_head_dim: int
    intermediate_size: int  # of the dense MLPs; 0: every layer is a mixture
    vocab_size: int
    max_model_len: int
    tie_word_embeddings: bool = False
    mlp_matrices: int = 3  # 3: gate, up, down; 2: up, down
    dtype: str = "bf16"  # of what is not quantised: bf16 | fp16 | fp32
    # mixture of experts
    num_experts: int = 0
    experts_per_token: int = 0
    moe_intermediate_size: int = 0
    shared_expert_intermediate_size: int = 0  # of all shared experts together
    moe_layers: tuple[int, ...] = ()
    # multi-head latent attention; 0: ordinary attention
    kv_lora_rank: int = 0
    q_lora_rank: int = 0
    qk_rope_head_dim: int = 0
    qk_nope_head_dim: int = 0
    # sliding window, or Llama-4's chunks, which hold at most as much
    window: int = 0
    windowed_layers: tuple[int, ...] = ()
    # the checkpoint's quantisation
    weight_format: str = ""  # "": not quantised
    quantized_parts: tuple[str, ...] = ()
    quantization_group_size: int = 0  # weights along the input that share a scale; fp8: the side of a block
    # multimodal
    vision_parameters: int = 0
    # of the data file
    published_parameters: int = 0
    source: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def is_mla(self) -> bool:
        """Whether attention caches one latent for all heads."""
        return self.kv_lora_rank > 0

    @property
    def num_moe_layers(self) -> int:
        """Layers whose MLP is a mixture of experts."""
        return len(self.moe_layers)

    @property
    def num_dense_layers(self) -> int:
        """Layers with one dense MLP."""
        return self.num_layers - len(self.moe_layers)

    @property
    def num_windowed_layers(self) -> int:
        """Layers that attend to at most `window` tokens."""
        return len(self.windowed_layers)

    @property
    def num_full_layers(self) -> int:
        """Layers that attend to the whole context."""
        return self.num_layers - len(self.windowed_layers)

    # -- shapes on one GPU ------------------------------------------------------------------------------------

    def heads_per_gpu(self, tp: int) -> int:
        """Query heads on one GPU."""
        return -(-self.num_attention_heads // tp)

    def kv_heads_per_gpu(self, tp: int) -> int:
        """Key-value heads on one GPU: divided, and replicated when there are fewer heads than GPUs; 1 for MLA."""
        return 1 if self.is_mla else -(-self.num_kv_heads // tp)

    def attention_gemms(self, tp: int = 1) -> tuple[Gemm, ...]:
        """The matrices of one layer's attention, fused as vLLM fuses them. MLA's down-projections are replicated."""
        heads, hidden = self.heads_per_gpu(tp), self.hidden_size
        out = Gemm("o_proj", "attention", hidden, heads * self.v_head_dim)
        if not self.is_mla:
            kv = self.kv_heads_per_gpu(tp)
            return (Gemm("qkv_proj", "attention", (heads + kv) * self.head_dim + kv * self.v_head_dim, hidden), out)
        latent = self.kv_lora_rank + self.qk_rope_head_dim
        kv_b = Gemm("kv_b_proj", "attention", heads * (self.qk_nope_head_dim + self.v_head_dim), self.kv_lora_rank)
        if self.q_lora_rank:
            down = Gemm("fused_qkv_a_proj", "attention", self.q_lora_rank + latent, hidden)
            return (down, Gemm("q_b_proj", "attention", heads * self.head_dim, self.q_lora_rank), kv_b, out)
        return (
            Gemm("q_proj", "attention", heads * self.head_dim, hidden),
            Gemm("kv_a_proj", "attention", latent, hidden),
            kv_b,
            out,
        )

    def _mlp(self, part: str, intermediate: int, tp: int) -> tuple[Gemm, ...]:
        width = -(-intermediate // tp)
        return (
            Gemm("gate_up_proj", part, (self.mlp_matrices - 1) * width, self.hidden_size),
            Gemm("down_proj", part, self.hidden_size, width),
        )

    def dense_mlp_gemms(self, tp: int = 1) -> tuple[Gemm, ...]:
        """The matrices of the MLP of a dense layer; none if every layer is a mixture."""
        return self._mlp("mlp", self.intermediate_size, tp) if self.num_dense_layers else ()

    def expert_gemms(self, tp: int = 1) -> tuple[Gemm, ...]:
        """The matrices of *one* routed expert of a mixture layer."""
        return self._mlp("experts", self.moe_intermediate_size, tp) if self.moe_layers else ()

    def shared_expert_gemms(self, tp: int = 1) -> tuple[Gemm, ...]:
        """The matrices of the shared experts of a mixture layer, all together."""
        width = self.shared_expert_intermediate_size
        return self._mlp("shared_experts", width, tp) if self.moe_layers and width else ()

    def router_gemm(self) -> Gemm:
        """The router of a mixture layer; replicated on every GPU."""
        return Gemm("router", "router", self.num_experts, self.hidden_size)

    def lm_head_gemm(self, tp: int = 1) -> Gemm:
        """The output projection, sharded by vocabulary after padding."""
        padded = -(-self.vocab_size // VOCAB_PADDING) * VOCAB_PADDING
        return Gemm("lm_head", "lm_head", self.vocab_size if tp == 1 else -(-padded // tp), self.hidden_size)

    # -- parameters -------------------------------------------------------------------------------------------

    def gemm_counts(self, tp: int = 1) -> list[tuple[Gemm, int]]:
        """Every matrix of weights on one GPU with how often it occurs, embeddings and lm_head included."""
        moe = self.num_moe_layers
        counts = [(gemm, self.num_layers) for gemm in self.attention_gemms(tp)]
        counts += [(gemm, self.num_dense_layers) for gemm in self.dense_mlp_gemms(tp)]
        counts += [(gemm, moe * self.num_experts) for gemm in self.expert_gemms(tp)]
        counts += [(gemm, moe) for gemm in self.shared_expert_gemms(tp)]
        if moe:
            counts.append((self.router_gemm(), moe))
        head = self.lm_head_gemm(tp)
        counts.append((Gemm("embed_tokens", "embedding", head.n, head.k), 1))
        if not self.tie_word_embeddings:
            counts.append((head, 1))
        return counts

    def parameters_by_part(self, tp: int = 1) -> dict[str, int]:
        """Parameters on one GPU (tp=1: of the model) by part; `norms` and `vision` where there are any."""
        parts: dict[str, int] = {}
        for gemm, count in self.gemm_counts(tp):
            parts[gemm.part] = parts.get(gemm.part, 0) + gemm.parameters * count
        parts["norms"] = (2 * self.num_layers + 1) * self.hidden_size
        if self.vision_parameters:
            parts["vision"] = -(-self.vision_parameters // tp)
        return parts

    @property
    def num_parameters(self) -> int:
        """Parameters of the whole model: biases and the heads for multi-token prediction are left out."""
        return sum(self.parameters_by_part().values())

    @property
    def active_parameters(self) -> int:
        """Parameters that one token of text uses, embeddings and lm_head included."""
        parts = self.parameters_by_part()
        experts = parts.pop("experts", 0)
        parts.pop("vision", None)
        active = experts * self.experts_per_token // self.num_experts if self.num_experts else 0
        return sum(parts.values()) + active

    # -- bytes ------------------------------------------------------------------------------------------------

    def format_of_part(self, part: str, quantization: str | None = None) -> WeightFormat:
        """The format of the weights of `part`. `quantization` None is the checkpoint's own; a method over a 16-bit
        checkpoint quantises every linear layer of attention and MLPs, as vLLM does on the fly."""
        linear = ("attention", "mlp", "experts", "shared_experts")
        if quantization is None or self.weight_format:
            if self.weight_format and part in self.quantized_parts:
                return weight_format(self.weight_format, self.quantization_group_size)
        elif part in linear:
            return weight_format(format_of_method(quantization))
        return weight_format(self.dtype)

    def weight_bytes_by_part(self, tp: int = 1, quantization: str | None = None) -> dict[str, int]:
        """Bytes of weights on one GPU by part, scales and padding included."""
        size: dict[str, float] = {}
        for gemm, count in self.gemm_counts(tp):
            stored = self.format_of_part(gemm.part, quantization)
            k = -(-gemm.k // stored.k_multiple) * stored.k_multiple
            size[gemm.part] = size.get(gemm.part, 0.0) + count * gemm.n * k * stored.bytes_per_parameter
        parameters = self.parameters_by_part(tp)
        for part in ("norms", "vision"):
            size[part] = parameters.get(part, 0) * self.format_of_part(part, quantization).bytes_per_parameter
        return {part: round(total) for part, total in size.items() if total}

    def weight_bytes_per_gpu(self, tp: int = 1, quantization: str | None = None) -> int:
        """Bytes of weights on one GPU, scales included."""
        return sum(self.weight_bytes_by_part(tp, quantization).values())

    def kv_bytes_per_token_per_layer_per_gpu(self, tp: int = 1, kv_cache_dtype: str = "auto") -> int:
        """Bytes that one layer caches for a token on one GPU. MLA's latent is on every GPU, not divided."""
        if kv_cache_dtype not in KV_DTYPE_BYTES:
            allowed = ", ".join(KV_DTYPE_BYTES)
            raise InputError("deployment.kv_cache_dtype", f"must be one of {allowed}, got {kv_cache_dtype!r}")
        width = KV_DTYPE_BYTES[kv_cache_dtype]
        if self.is_mla:
            return (self.kv_lora_rank + self.qk_rope_head_dim) * width
        return self.kv_heads_per_gpu(tp) * (self.head_dim + self.v_head_dim) * width

    def kv_bytes_per_token_per_gpu(self, tp: int = 1, kv_cache_dtype: str = "auto") -> int:
        """Bytes that all layers cache for a token on one GPU, while it is inside every window."""
        return self.num_layers * self.kv_bytes_per_token_per_layer_per_gpu(tp, kv_cache_dtype)

    # -- FLOPs (of the whole model; a GPU of a group does 1/tp of the sharded ones) -----------------------------

    @property
    def linear_flops_per_token(self) -> int:
        """FLOPs of the layers' GEMMs for one token: 2 x active weights, without embeddings and lm_head."""
        active = 0
        for gemm, count in self.gemm_counts():
            if gemm.part in ("attention", "mlp", "shared_experts", "router"):
                active += gemm.parameters * count
            elif gemm.part == "experts":
                active += gemm.parameters * self.num_moe_layers * self.experts_per_token
        return 2 * active

    @property
    def lm_head_flops_per_row(self) -> int:
        """FLOPs of the output projection for one row that samples."""
        return 2 * self.hidden_size * self.vocab_size

    @property
    def attention_flops_per_pair_per_layer(self) -> int:
        """FLOPs of one layer's attention for one query token against one key token, all heads."""
        return 2 * self.num_attention_heads * (self.head_dim + self.v_head_dim)


def check_tensor_parallel(model: ModelSpec, tp: int, field: str = "deployment.tensor_parallel_size") -> None:
    """`InputError` on `field` if vLLM refuses to shard `model` over `tp` GPUs: heads and MLP widths must divide."""
    if tp < 1:
        raise InputError(field, f"must be at least 1, got {tp}")
    heads = model.num_attention_heads
    if heads % tp:
        allowed = ", ".join(str(n) for n in range(1, min(heads, 64) + 1) if heads % n == 0)
        raise InputError(field, f"must divide the {heads} attention heads of {model.name} ({allowed}), got {tp}")
    if not model.is_mla and model.num_kv_heads % tp and tp % model.num_kv_heads:
        problem = f"must divide, or be a multiple of, the {model.num_kv_heads} KV heads of {model.name}, got {tp}"
        raise InputError(field, problem)
    widths = {
        "intermediate_size": model.intermediate_size if model.num_dense_layers else 0,
        "moe_intermediate_size": model.moe_intermediate_size,
        "shared expert width": model.shared_expert_intermediate_size,
    }
    for what, width in widths.items():
        if width % tp:
            raise InputError(field, f"must divide the {what} of {model.name} ({width}), got {tp}")
        block = model.quantization_group_size if model.weight_format == "fp8" else 0
        if block and tp > 1 and (width // tp) % block:  # vLLM: "not divisible by weight quantization block_n"
            problem = (
                f"must leave whole blocks of {block} of the {what} of {model.name} ({width}) to each GPU, got {tp}"
            )
            raise InputError(field, problem)
