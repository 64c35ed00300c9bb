"""From a Hugging Face config.json to a `ModelSpec`: the keys, and the defaults that model families leave unsaid."""

from __future__ import annotations

from typing import Any

from sim.catalog.checkpoint import quantization_of
from sim.catalog.model import ModelSpec
from sim.catalog.reader import Config, Reader

MAX_LAYERS = 4096  # guards against configs that are not of a model


def spec_from_config(
    config: Config,
    name: str,
    field: str = "model",
    published_parameters: int = 0,
    source: str = "",
    aliases: tuple[str, ...] = (),
) -> ModelSpec:
    """The `ModelSpec` of a config.json's content. Multimodal configs are read through their `text_config`.

    `InputError` on `field` names the key that is missing or impossible.
    """
    outer = Reader(config, field)
    text = outer.mapping("text_config") or outer.mapping("llm_config") or outer.mapping("language_config")
    reader = Reader({**{k: v for k, v in config.items() if k in _SHARED_KEYS}, **text} if text else config, field)
    reader = Reader({**FAMILY_DEFAULTS.get(str(reader.config.get("model_type")), {}), **reader.config}, field)
    _refuse_other_architectures(reader)
    layers = reader.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers", maximum=MAX_LAYERS)
    hidden = reader.integer("hidden_size", "n_embd", "n_embed", "d_model")
    attention: dict[str, Any] = _attention(reader, hidden)
    mixture = _mixture(reader, layers)
    window, windowed = _windows(reader, layers)
    quantization = quantization_of(outer, reader, moe=bool(mixture["moe_layers"]))
    return ModelSpec(
        name=name,
        hidden_size=hidden,
        num_layers=layers,
        vocab_size=reader.integer("vocab_size"),
        max_model_len=_max_model_len(reader),
        tie_word_embeddings=_tied(outer, reader),
        mlp_matrices=_mlp_matrices(reader),
        dtype=_dtype(outer, reader),
        window=window,
        windowed_layers=windowed,
        vision_parameters=_vision_parameters(outer, hidden),
        published_parameters=published_parameters,
        source=source,
        aliases=aliases,
        **attention,
        **mixture,
        **quantization,
    )


def _refuse_other_architectures(reader: Reader) -> None:
    """Raise where layers keep a state that is no KV cache, differ in their heads, or read an encoder's output."""
    types = reader.config.get("layer_types") or reader.config.get("layers_block_type") or []
    known = ("full_attention", "sliding_attention", "chunked_attention", "attention")
    other = sorted({str(kind) for kind in types} - set(known)) if isinstance(types, list) else [str(types)]
    if other:
        raise reader.error(f"layers of type {', '.join(other)} are not supported; supported: {', '.join(known)}")
    for key in ("hybrid_override_pattern", "block_configs", "ssm_cfg", "linear_attn_config", "mamba_d_state"):
        if reader.config.get(key):
            raise reader.error(f"{key}: models whose layers are not all attention of one shape are not supported")
    if not all(reader.integers("attn_type_list")) or reader.config.get("linear_num_key_heads"):
        raise reader.error("layers of linear attention are not supported")
    if reader.boolean("is_encoder_decoder", False):
        raise reader.error("is_encoder_decoder: only decoder-only models are supported")


# What a family's configuration class fills in where the file leaves it out (transformers).
FAMILY_DEFAULTS: dict[str, Config] = {
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
}

# Families with two matrices in an MLP, which is four times as wide as the model where the config does not say.
UNGATED = (
    "gpt2",
    "gptj",
    "gpt_neox",
    "gpt_bigcode",
    "bloom",
    "opt",
    "phi",
    "falcon",
    "starcoder2",
    "nemotron",
    "arcee",
)

# Families that tie embeddings unless the config says otherwise.
TIED = ("gemma", "cohere", "gpt2", "gpt_bigcode", "bloom", "opt", "falcon", "starcoder2")

_SHARED_KEYS = ("torch_dtype", "dtype", "quantization_config", "compression_config", "model_type", "architectures")


def _attention(reader: Reader, hidden: int) -> dict[str, int]:
    heads = reader.integer("num_attention_heads", "n_head", "n_heads")
    kv_rank = reader.integer("kv_lora_rank", default=0, minimum=0)
    if kv_rank:
        nope, rope = reader.integer("qk_nope_head_dim"), reader.integer("qk_rope_head_dim")
        return {
            "num_attention_heads": heads,
            "num_kv_heads": heads,
            "head_dim": nope + rope,
            "v_head_dim": reader.integer("v_head_dim"),
            "kv_lora_rank": kv_rank,
            "q_lora_rank": reader.integer("q_lora_rank", default=0, minimum=0),
            "qk_nope_head_dim": nope,
            "qk_rope_head_dim": rope,
        }
    multi_query = reader.boolean("multi_query", False)
    kv_heads = reader.integer("num_key_value_heads", "n_head_kv", "num_kv_heads", default=1 if multi_query else heads)
    if heads % kv_heads:
        raise reader.error(f"num_attention_heads ({heads}) must be a multiple of num_key_value_heads ({kv_heads})")
    head_dim = reader.integer("head_dim", default=0)
    if not head_dim:
        if hidden % heads:
            raise reader.error(f"hidden_size ({hidden}) must be a multiple of num_attention_heads ({heads})")
        head_dim = hidden // heads
    return {
        "num_attention_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": head_dim,
        "v_head_dim": reader.integer("v_head_dim", default=head_dim),
    }


def _mixture(reader: Reader, layers: int) -> dict[str, Any]:
    experts = reader.integer("n_routed_experts", "num_local_experts", "num_experts", default=0, minimum=0)
    if experts <= 1:
        _refuse_unknown_mixture(reader)
        return {"intermediate_size": _dense_width(reader), "moe_layers": ()}
    top_k = reader.integer("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "experts_per_token")
    if top_k > experts:
        raise reader.error(f"num_experts_per_tok ({top_k}) must be at most the number of experts ({experts})")
    moe_layers = _moe_layers(reader, layers)
    # Where there is no width for experts, intermediate_size is theirs (Mixtral, gpt-oss, MiniMax, Llama-4).
    width = reader.integer("moe_intermediate_size", default=0, minimum=0) or _dense_width(reader)
    dense = 0
    if len(moe_layers) < layers:
        dense = reader.integer("intermediate_size_mlp", default=0, minimum=0) or _dense_width(reader)
    return {
        "intermediate_size": dense,
        "num_experts": experts,
        "experts_per_token": top_k,
        "moe_intermediate_size": width,
        "shared_expert_intermediate_size": _shared_width(reader, width),
        "moe_layers": moe_layers,
    }


def _refuse_unknown_mixture(reader: Reader) -> None:
    for key, value in reader.config.items():
        if "num_experts" in key and value and value != 1 and key not in ("num_experts", "num_experts_per_tok"):
            raise reader.error(f"{key}: this way to write a mixture of experts is not supported")


def _dense_width(reader: Reader) -> int:
    default = None
    if reader.config.get("model_type") in UNGATED:
        default = 4 * reader.integer("hidden_size", "n_embd", "n_embed", "d_model")
    return reader.integer("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", default=default)


def _shared_width(reader: Reader, expert_width: int) -> int:
    stated = reader.integer("shared_expert_intermediate_size", "shared_intermediate_size", default=0, minimum=0)
    if stated:
        return stated
    if str(reader.config.get("model_type", "")).startswith("llama4"):
        return expert_width  # Llama4TextMoe always has one shared expert; its config does not say so
    return expert_width * reader.integer("n_shared_experts", "num_shared_experts", default=0, minimum=0)


def _moe_layers(reader: Reader, layers: int) -> tuple[int, ...]:
    """Indices of the layers with experts, under the conventions of the families that mix them with dense ones."""
    explicit = reader.integers("moe_layers")
    if explicit:
        if not all(0 <= layer < layers for layer in explicit):
            raise reader.error(f"moe_layers must be between 0 and {layers - 1}, got {explicit}")
        return tuple(sorted(set(explicit)))
    chosen = range(layers)
    frequency = reader.config.get("moe_layer_freq")
    if isinstance(frequency, list):
        flags = reader.integers("moe_layer_freq")
        if len(flags) != layers:
            raise reader.error(f"moe_layer_freq must have {layers} entries, got {len(flags)}")
        return tuple(layer for layer in chosen if flags[layer])
    first_dense = reader.integer("first_k_dense_replace", default=0, minimum=0)
    every = reader.integer("moe_layer_freq", default=1)
    interleave = reader.integer("interleave_moe_layer_step", default=1)
    sparse_step = reader.integer("decoder_sparse_step", default=1)
    dense = set(reader.integers("mlp_only_layers"))
    return tuple(
        layer
        for layer in chosen
        if layer >= first_dense
        and layer % every == 0
        and (layer + 1) % interleave == 0
        and (layer + 1) % sparse_step == 0
        and layer not in dense
    )


def _windows(reader: Reader, layers: int) -> tuple[int, tuple[int, ...]]:
    """(window in tokens, indices of the layers that have it); (0, ()) if every layer attends to everything."""
    chunk = reader.integer("attention_chunk_size", default=0, minimum=0)
    types = reader.config.get("layer_types")
    window = chunk or reader.integer("sliding_window", default=0, minimum=0)
    if not window or reader.config.get("use_sliding_window") is False:
        return 0, ()
    if isinstance(types, list):
        if len(types) != layers:
            raise reader.error(f"layer_types must have {layers} entries, got {len(types)}")
        chosen = [i for i, kind in enumerate(types) if kind in ("sliding_attention", "chunked_attention")]
    elif chunk:
        chosen = _llama4_chunked(reader, layers)
    else:
        chosen = _pattern(reader, layers)
    return (window, tuple(chosen)) if chosen else (0, ())


def _llama4_chunked(reader: Reader, layers: int) -> list[int]:
    # Llama-4: every fourth layer has no rotary embedding and attends to everything; a 1 marks a rotary layer.
    rope = reader.integers("no_rope_layers")
    if rope and len(rope) != layers:
        raise reader.error(f"no_rope_layers must have {layers} entries, got {len(rope)}")
    step = reader.integer("no_rope_layer_interval", default=4)
    return [i for i in range(layers) if (rope[i] if rope else (i + 1) % step)]


def _pattern(reader: Reader, layers: int) -> list[int]:
    family = str(reader.config.get("model_type", ""))
    every = {"gemma2": 2, "gpt_oss": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4}.get(family, 0)
    every = reader.integer("sliding_window_pattern", default=every, minimum=0)
    if every > 1:
        return [i for i in range(layers) if (i + 1) % every]
    if family.startswith("qwen"):
        # Qwen: layers from max_window_layers on are windowed, where use_sliding_window is on
        if not reader.boolean("use_sliding_window", False):
            return []
        return list(range(reader.integer("max_window_layers", default=0, minimum=0), layers))
    return list(range(layers))


def _max_model_len(reader: Reader) -> int:
    length = reader.integer("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
    scaling = reader.mapping("rope_scaling") or reader.mapping("rope_parameters")
    kind = str(scaling.get("rope_type", scaling.get("type", "default")))
    if kind not in ("yarn", "linear", "dynamic", "deepseek_yarn"):
        return length  # llama3, longrope and mrope state the scaled length themselves
    original = scaling.get("original_max_position_embeddings")
    factor = scaling.get("factor", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= 1e6:
        raise reader.error(f"rope_scaling.factor must be a number above 0 and at most 1e6, got {factor!r}")
    if isinstance(original, int) and not isinstance(original, bool) and original > 0:
        return max(length, int(original * factor)) if kind in ("yarn", "deepseek_yarn") else int(length * factor)
    return length if str(reader.config.get("model_type", "")).startswith("gemma3") else int(length * factor)


def _tied(outer: Reader, reader: Reader) -> bool:
    for source in (outer, reader):
        if source.config.get("tie_word_embeddings") is not None:
            return source.boolean("tie_word_embeddings", False)
    return str(reader.config.get("model_type", "")).startswith(TIED)


def _mlp_matrices(reader: Reader) -> int:
    return 2 if reader.config.get("model_type") in UNGATED else 3


def _dtype(outer: Reader, reader: Reader) -> str:
    value = reader.config.get("torch_dtype") or reader.config.get("dtype")
    value = value or outer.config.get("torch_dtype") or outer.config.get("dtype") or "bfloat16"
    # vLLM serves float32 checkpoints in 16 bit (--dtype auto), so 32-bit weights never reach the GPU.
    names = {"bfloat16": "bf16", "float16": "fp16", "float32": "bf16"}
    value = value.removeprefix("torch.") if isinstance(value, str) else repr(value)
    if value not in names:
        raise reader.error(f"torch_dtype must be one of {', '.join(names)}, got {value!r}")
    return names[value]


# -- vision towers ----------------------------------------------------------------------------------------------


def _vision_parameters(outer: Reader, hidden: int) -> int:
    """Parameters of a vision transformer and its projector to the text model's width, 0 where the config does not
    give its size. Position embeddings are left out; the projector counts as one matrix to the text model's width and
    one square one behind it, which is right within 0.1% of every model shipped."""
    vision = Reader(outer.mapping("vision_config"), f"{outer.field}: vision_config")
    if not vision.config:
        return 0
    width = vision.integer("embed_dim", "hidden_size", "vt_hidden_size", default=0, minimum=0)
    depth = vision.integer("num_hidden_layers", "vt_num_hidden_layers", "depth", default=0, minimum=0)
    inner = vision.integer("intermediate_size", "vt_intermediate_size", default=4 * width, minimum=0)
    if not width or not depth:
        return 0
    gated = str(vision.config.get("hidden_act", "gelu")) == "silu"
    layers = depth * (4 * width * width + (3 if gated else 2) * width * inner)
    patch = vision.integer("patch_size", default=14)
    return layers + 3 * patch * patch * width + width * hidden + hidden * hidden
