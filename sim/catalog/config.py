"""From a Hugging Face config.json to a `ModelSpec`: the keys, and the defaults that model families leave unsaid."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from typing import Any

from sim.catalog.model import ModelSpec
from sim.errors import InputError

Config = Mapping[str, Any]
MISSING = object()


class _Reader:
    """Typed access to a config's keys; what is wrong is an `InputError` that names the key."""

    def __init__(self, config: Config, field: str) -> None:
        self.config = config
        self.field = field

    def error(self, problem: str) -> InputError:
        return InputError(self.field, problem)

    def integer(self, *keys: str, default: int | None = None, minimum: int = 1) -> int:
        """The first of `keys` that is there and not null, as an integer of at least `minimum`."""
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise self.error(f"{key} must be an integer, got {value!r}")
            if value < minimum:
                raise self.error(f"{key} must be at least {minimum}, got {value}")
            return value
        if default is None:
            raise self.error(f"missing key {' or '.join(keys)}")
        return default

    def integers(self, key: str) -> list[int]:
        value = self.config.get(key) or []
        if not isinstance(value, list) or any(isinstance(v, bool) or not isinstance(v, int) for v in value):
            raise self.error(f"{key} must be a list of integers, got {value!r}")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        value = self.config.get(key, default)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(f"{key} must be true or false, got {value!r}")
        return value

    def mapping(self, key: str) -> Config:
        value = self.config.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.error(f"{key} must be an object, got {value!r}")
        return value


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
    outer = _Reader(config, field)
    text = outer.mapping("text_config") or outer.mapping("llm_config") or outer.mapping("language_config")
    reader = _Reader({**{k: v for k, v in config.items() if k in _SHARED_KEYS}, **text} if text else config, field)
    layers = reader.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    hidden = reader.integer("hidden_size", "n_embd", "d_model")
    attention = _attention(reader, hidden)
    mixture = _mixture(reader, layers)
    window, windowed = _windows(reader, layers)
    quantization = _quantization(outer, reader, moe=bool(mixture["moe_layers"]))
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


_SHARED_KEYS = ("torch_dtype", "dtype", "quantization_config", "compression_config", "model_type", "architectures")


def _attention(reader: _Reader, hidden: int) -> dict[str, int]:
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
    head_dim = reader.integer("head_dim", default=0, minimum=0)
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


def _mixture(reader: _Reader, layers: int) -> dict[str, Any]:
    experts = reader.integer("n_routed_experts", "num_local_experts", "num_experts", default=0, minimum=0)
    if experts <= 1:
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


def _dense_width(reader: _Reader) -> int:
    return reader.integer("intermediate_size", "ffn_hidden_size", "n_inner")


def _shared_width(reader: _Reader, expert_width: int) -> int:
    if reader.config.get("shared_expert_intermediate_size"):
        return reader.integer("shared_expert_intermediate_size")
    if str(reader.config.get("model_type", "")).startswith("llama4"):
        return expert_width  # Llama4TextMoe always has one shared expert; its config does not say so
    return expert_width * reader.integer("n_shared_experts", "num_shared_experts", default=0, minimum=0)


def _moe_layers(reader: _Reader, layers: int) -> tuple[int, ...]:
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


def _windows(reader: _Reader, layers: int) -> tuple[int, tuple[int, ...]]:
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


def _llama4_chunked(reader: _Reader, layers: int) -> list[int]:
    # Llama-4: every fourth layer has no rotary embedding and attends to everything; a 1 marks a rotary layer.
    rope = reader.integers("no_rope_layers")
    if rope and len(rope) != layers:
        raise reader.error(f"no_rope_layers must have {layers} entries, got {len(rope)}")
    step = reader.integer("no_rope_layer_interval", default=4)
    return [i for i in range(layers) if (rope[i] if rope else (i + 1) % step)]


def _pattern(reader: _Reader, layers: int) -> list[int]:
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


def _max_model_len(reader: _Reader) -> int:
    length = reader.integer("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
    scaling = reader.mapping("rope_scaling") or reader.mapping("rope_parameters")
    kind = str(scaling.get("rope_type", scaling.get("type", "default")))
    if kind not in ("yarn", "linear", "dynamic", "deepseek_yarn"):
        return length  # llama3, longrope and mrope state the scaled length themselves
    original = scaling.get("original_max_position_embeddings")
    factor = scaling.get("factor", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or factor <= 0:
        raise reader.error(f"rope_scaling.factor must be a number greater than 0, got {factor!r}")
    if isinstance(original, int) and not isinstance(original, bool) and original > 0:
        return max(length, int(original * factor)) if kind in ("yarn", "deepseek_yarn") else int(length * factor)
    return length if str(reader.config.get("model_type", "")).startswith("gemma3") else int(length * factor)


def _tied(outer: _Reader, reader: _Reader) -> bool:
    for source in (outer, reader):
        if source.config.get("tie_word_embeddings") is not None:
            return source.boolean("tie_word_embeddings", False)
    # Gemma ties without saying so (the default of its configuration class); others do not.
    return str(reader.config.get("model_type", "")).startswith("gemma")


def _mlp_matrices(reader: _Reader) -> int:
    family = str(reader.config.get("model_type", ""))
    return 2 if family in ("gpt2", "gpt_neox", "gpt_bigcode", "bloom", "opt", "phi", "falcon", "starcoder2") else 3


def _dtype(outer: _Reader, reader: _Reader) -> str:
    value = reader.config.get("torch_dtype") or reader.config.get("dtype")
    value = value or outer.config.get("torch_dtype") or outer.config.get("dtype") or "bfloat16"
    # vLLM serves float32 checkpoints in 16 bit (--dtype auto), so 32-bit weights never reach the GPU.
    names = {"bfloat16": "bf16", "float16": "fp16", "float32": "bf16"}
    if value not in names:
        raise reader.error(f"torch_dtype must be one of {', '.join(names)}, got {value!r}")
    return names[value]


# -- quantised checkpoints --------------------------------------------------------------------------------------

_MODULES = {
    "attention": ("self_attn.q_proj", "self_attn.o_proj", "self_attn.q_b_proj"),
    "mlp": ("mlp.gate_proj", "mlp.down_proj", "feed_forward.gate_proj"),
    "experts": ("mlp.experts.0.gate_proj", "block_sparse_moe.experts.0.w1", "feed_forward.experts.0.gate_proj"),
    "shared_experts": ("mlp.shared_experts.gate_proj", "feed_forward.shared_expert.gate_proj"),
}


def _quantization(outer: _Reader, reader: _Reader, moe: bool) -> dict[str, Any]:
    settings = reader.mapping("quantization_config") or reader.mapping("compression_config")
    settings = settings or outer.mapping("quantization_config")
    if not settings:
        return {"weight_format": "", "quantized_parts": (), "quantization_group_size": 0}
    name, group = _checkpoint_format(settings, reader)
    ignored: list[str] = []
    for key in ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules"):
        value = settings.get(key) or []
        if not isinstance(value, list):
            raise reader.error(f"quantization_config.{key} must be a list, got {value!r}")
        ignored += [str(item) for item in value]
    parts = [part for part, modules in _MODULES.items() if not any(_matches(p, m) for p in ignored for m in modules)]
    if name == "mxfp4":
        parts = [part for part in parts if part == "experts" or not moe]  # vLLM reads MXFP4 in experts only
    return {"weight_format": name, "quantized_parts": tuple(parts), "quantization_group_size": group}


def _matches(pattern: str, module: str) -> bool:
    """Whether an entry of an ignore list covers `module` of every layer: a regular expression (``re:``), a glob, or
    a name. An entry for one numbered layer covers that layer only, unless it is the first kind of many."""
    full = f"model.layers.1.{module}"
    if pattern.startswith("re:"):
        try:
            return re.match(pattern[3:], full) is not None or re.match(pattern[3:], f"language_model.{full}") is not None
        except re.error:
            return False
    pattern = pattern.removeprefix("language_model.")
    if "*" in pattern:
        return fnmatch.fnmatch(full, pattern) or fnmatch.fnmatch(full, pattern.rstrip("*") + ".*")
    return full == pattern or full.startswith(pattern + ".") or module == pattern or module.startswith(pattern + ".")


def _checkpoint_format(settings: Config, reader: _Reader) -> tuple[str, int]:
    method = str(settings.get("quant_method", "")).lower()
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8", 0
    if method == "mxfp4":
        return "mxfp4", 0
    if method in ("awq", "gptq", "auto-round", "bitsandbytes", "auto_awq"):
        bits = settings.get("bits", settings.get("w_bit", 4 if settings.get("load_in_8bit") is not True else 8))
        group = settings.get("group_size", settings.get("q_group_size", 128))
        four = "awq" if "awq" in method else "int4"
        return ("int8" if bits == 8 else four), group if isinstance(group, int) and group > 0 else 0
    if method == "modelopt":
        algorithm = str(settings.get("quant_algo", "")).upper()
        return ("nvfp4" if "FP4" in algorithm else "fp8"), 0
    if method == "compressed-tensors":
        return _compressed_tensors(settings, reader)
    raise reader.error(f"quantization_config.quant_method {method!r} is not known")


def _compressed_tensors(settings: Config, reader: _Reader) -> tuple[str, int]:
    groups = settings.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise reader.error("quantization_config.config_groups is missing")
    first = next(iter(groups.values()))
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        raise reader.error("quantization_config.config_groups has no weights")
    bits, kind = weights.get("num_bits"), weights.get("type")
    group = weights.get("group_size")
    size = group if isinstance(group, int) and group > 0 else 0
    if bits == 8:
        return ("fp8" if kind == "float" else "int8"), 0
    if bits == 4:
        return ("nvfp4", 0) if kind == "float" else ("int4", size)
    raise reader.error(f"quantization_config: {bits!r}-bit {kind!r} weights are not known")


# -- vision towers ----------------------------------------------------------------------------------------------


def _vision_parameters(outer: _Reader, hidden: int) -> int:
    """Parameters of a vision transformer and its projector to the text model's width, 0 where the config does not
    give its size. Position embeddings are left out; the projector counts as two square-ish matrices."""
    vision = _Reader(outer.mapping("vision_config"), f"{outer.field}: vision_config")
    if not vision.config:
        return 0
    width = vision.integer("hidden_size", "vt_hidden_size", "embed_dim", default=0, minimum=0)
    depth = vision.integer("num_hidden_layers", "vt_num_hidden_layers", "depth", default=0, minimum=0)
    inner = vision.integer("intermediate_size", "vt_intermediate_size", default=4 * width, minimum=0)
    if not width or not depth:
        return 0
    gated = str(vision.config.get("hidden_act", "gelu")) == "silu"
    layers = depth * (4 * width * width + (3 if gated else 2) * width * inner)
    patch = vision.integer("patch_size", default=14)
    return layers + 3 * patch * patch * width + width * hidden + hidden * hidden
