"""What the command line shows of the catalog: models and GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from planner.report import names
from planner.report.layout import line, table
from sim.catalog import GPUSpec, ModelSpec, gpu_names, load_gpu, load_model, model_names

if TYPE_CHECKING:
    from rich.console import Console

GIB = 2**30
MODELS_WIDE = 128  # columns from which every figure of a model fits
GPUS_WIDE = 92


def print_models(console: Console) -> None:
    """The catalog's models: size, shape, context, and what weights and KV cache take at TP=1."""
    models = [load_model(name) for name in model_names()]
    columns = [
        ("Billion\nparams", [names.number(model.num_parameters / 1e9) for model in models]),
        ("GiB of\nweights", [names.number(model.weight_bytes_per_gpu() / GIB) for model in models]),
        ("\nContext", [f"{model.max_model_len:,}" for model in models]),
    ]
    if console.width >= MODELS_WIDE:
        columns += [
            ("Billion\nactive", [names.number(model.active_parameters / 1e9) for model in models]),
            ("KiB KV\na token", [names.number(model.kv_bytes_per_token_per_gpu() / 1024) for model in models]),
            ("\nKind", [model_kind(model) for model in models]),
        ]
    _print(console, "Model", [model.name for model in models], columns)
    line(console, "Any other model: give the path of its config.json as `model`.")


def model_kind(model: ModelSpec) -> str:
    """Attention, experts, window and number format of a model, in a few words."""
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
    gpus = [load_gpu(name) for name in gpu_names()]
    columns = [
        ("$/h", [names.money(gpu.price_usd_per_hour) for gpu in gpus]),
        ("Memory\nGiB", [f"{gpu.memory_bytes / GIB:.1f}" for gpu in gpus]),
        ("Memory\nTB/s", [f"{gpu.memory_bandwidth_bytes_per_s / 1e12:.2f}" for gpu in gpus]),
        ("16-bit\nTFLOP/s", _peaks(gpus, "bf16_flops_per_s")),
        ("fp8\nTFLOP/s", _peaks(gpus, "fp8_flops_per_s")),
        ("Link\nGB/s", [f"{gpu.interconnect_bytes_per_s / 1e9:.0f}" for gpu in gpus]),
    ]
    if console.width >= GPUS_WIDE:
        columns += [
            ("\nLink", [gpu.interconnect for gpu in gpus]),
            ("fp4\nTFLOP/s", _peaks(gpus, "fp4_flops_per_s")),
        ]
    _print(console, "GPU", [gpu.name for gpu in gpus], columns)
    notes = "Dense peaks, never the sparse ones; links per GPU and direction; a space's `prices` overrides the price."
    line(console, notes)


def _peaks(gpus: Sequence[GPUSpec], name: str) -> list[str]:
    peaks = [getattr(gpu, name) / 1e12 for gpu in gpus]
    return [f"{peak:,.0f}" if peak else "-" for peak in peaks]


def _width(heading: str, values: Sequence[str]) -> int:
    return max(map(len, (*heading.split("\n"), *values)))


def _print(console: Console, first: str, keys: Sequence[str], columns: Sequence[tuple[str, Sequence[str]]]) -> None:
    grid = table()
    grid.add_column(f"\n{first}", overflow="fold")
    for heading, values in columns:
        text = heading if "\n" in heading else f"\n{heading}"
        align: Literal["left", "right"] = "left" if heading in ("\nKind", "\nLink") else "right"
        grid.add_column(text, justify=align, no_wrap=True, min_width=_width(text, values))
    for index, key in enumerate(keys):
        grid.add_row(key, *(values[index] for _, values in columns))
    console.print(grid)
