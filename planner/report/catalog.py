"""What the command line shows of the catalog: models and GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.report import names
from planner.report.layout import line, table
from sim.catalog import ModelSpec, gpu_names, load_gpu, load_model, model_names

if TYPE_CHECKING:
    from rich.console import Console

GIB = 2**30


def print_models(console: Console) -> None:
    """The catalog's models: size, shape, context, and what weights and KV cache take at TP=1."""
    grid = table()
    grid.add_column("Model", overflow="fold")
    grid.add_column("Kind")
    for heading in ("Params\n1e9", "Active\n1e9", "Weights\nGiB", "KV a token\nKiB", "Context\ntokens"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for name in model_names():
        model = load_model(name)
        grid.add_row(
            model.name,
            _kind(model),
            names.number(model.num_parameters / 1e9),
            names.number(model.active_parameters / 1e9),
            names.number(model.weight_bytes_per_gpu() / GIB),
            names.number(model.kv_bytes_per_token_per_gpu() / 1024),
            names.number(model.max_model_len),
        )
    console.print(grid)
    line(console, "Any other model: give the path of its config.json as `model`.")


def _kind(model: ModelSpec) -> str:
    attention = "MLA" if model.is_mla else "GQA" if model.num_kv_heads < model.num_attention_heads else "MHA"
    parts = [attention]
    if model.num_moe_layers:
        parts.append(f"MoE {model.experts_per_token}/{model.num_experts}")
    if model.window:
        parts.append(f"window {model.window}")
    parts.append(model.weight_format or model.dtype)
    return " ".join(parts)


def print_hardware(console: Console) -> None:
    """The catalog's GPUs with the datasheet figures that the simulator uses, and the price that a plan is charged."""
    grid = table()
    grid.add_column("GPU", no_wrap=True)
    headings = (
        "16-bit\nTFLOP/s",
        "fp8\nTFLOP/s",
        "fp4\nTFLOP/s",
        "Memory\nGiB",
        "Bandwidth\nTB/s",
        "Link\nGB/s",
        "\n$/h",
    )
    for heading in headings:
        grid.add_column(heading, justify="right", no_wrap=True)
    grid.add_column("\nLink")
    for name in gpu_names():
        gpu = load_gpu(name)
        peaks = (gpu.bf16_flops_per_s, gpu.fp8_flops_per_s, gpu.fp4_flops_per_s)
        grid.add_row(
            gpu.name,
            *(names.number(peak / 1e12) if peak else "-" for peak in peaks),
            names.number(gpu.memory_bytes / GIB),
            names.number(gpu.memory_bandwidth_bytes_per_s / 1e12),
            names.number(gpu.interconnect_bytes_per_s / 1e9),
            names.money(gpu.price_usd_per_hour),
            gpu.interconnect,
        )
    console.print(grid)
    line(
        console, "Dense peaks, never the sparse ones; link figures are per GPU and direction; prices can be overridden."
    )
