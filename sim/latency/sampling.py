"""Which models sample from a truncated distribution unless a request says otherwise."""

from __future__ import annotations

from sim.catalog import ModelSpec

# vLLM takes a request's defaults from the checkpoint's generation_config.json. Families whose files (on the Hugging
# Face Hub, 2026) set top_p below 1 or top_k: every step then sorts the logits of each row. The others (Mistral,
# Mixtral, CodeLlama, Yi, Phi, gpt-oss, ...) sample from the whole distribution, or set nothing.
TRUNCATING_FAMILIES = (
    "llama-2-",
    "llama-3",
    "llama-4",
    "qwen2",
    "qwen3",
    "gemma-3",
    "deepseek-r1",
    "deepseek-v3",
    "minimax-m2",
)


def truncates(model: ModelSpec) -> bool:
    """Whether `model`'s own generation_config.json asks for top-p or top-k sampling, judged by its name."""
    name = model.name.lower()
    return any(family in name for family in TRUNCATING_FAMILIES)
