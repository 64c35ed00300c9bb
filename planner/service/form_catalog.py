"""What the form of a space can offer: models, GPUs, policies, workloads, metrics and parameters."""

from __future__ import annotations

import inspect
from importlib import resources
from typing import Any, get_args

from planner.export import TARGETS
from planner.goals import OPERATORS, metric_senses
from planner.parameters import DEFAULTS, GATEWAYS, PARAMETERS, POLICIES
from planner.report import names
from planner.report.catalog import GIB, model_kind
from planner.space import SearchSettings
from sim.catalog import gpu_names, load_gpu, load_model, model_names
from sim.catalog.model import KV_DTYPE_BYTES
from sim.cluster import policy_class, policy_defaults, policy_names
from sim.workload import PRESETS, SLO_CLASS_PRIORITY, WORKLOAD_KINDS, Arrival

EXAMPLES = "search_spaces"


def catalog() -> dict[str, Any]:
    """Everything that a space may name."""
    process = Arrival.model_fields["process"].annotation
    return {
        "models": [_model(name) for name in model_names()],
        "gpus": [_gpu(name) for name in gpu_names()],
        "policies": {kind: [_policy(kind, name) for name in policy_names(kind)] for kind in POLICIES},
        "presets": [{"name": name, "workload": workload} for name, workload in PRESETS.items()],
        "workload_kinds": list(WORKLOAD_KINDS),
        "arrival_processes": list(get_args(process)),
        "slo_classes": list(SLO_CLASS_PRIORITY),
        "metrics": [
            {"name": name, "sense": sense, "label": names.axis_label(name)} for name, sense in metric_senses().items()
        ],
        "parameters": [_parameter(name) for name in PARAMETERS],
        "methods": list(get_args(SearchSettings.model_fields["method"].annotation)),
        "operators": list(OPERATORS),
        "export_targets": list(TARGETS),
    }


def _model(name: str) -> dict[str, Any]:
    model = load_model(name)
    return {
        "name": model.name,
        "billion_parameters": model.num_parameters / 1e9,
        "billion_active": model.active_parameters / 1e9,
        "weights_gib": model.weight_bytes_per_gpu() / GIB,
        "kv_kib_per_token": model.kv_bytes_per_token_per_gpu() / 1024,
        "max_model_len": model.max_model_len,
        "kind": model_kind(model),
    }


def _gpu(name: str) -> dict[str, Any]:
    gpu = load_gpu(name)
    return {
        "name": gpu.name,
        "price_usd_per_hour": gpu.price_usd_per_hour,
        "memory_gib": gpu.memory_bytes / GIB,
        "memory_bandwidth_tb_per_s": gpu.memory_bandwidth_bytes_per_s / 1e12,
        "bf16_tflops": gpu.bf16_flops_per_s / 1e12,
        "fp8_tflops": gpu.fp8_flops_per_s / 1e12,
        "interconnect": gpu.interconnect,
    }


def _policy(kind: str, name: str) -> dict[str, Any]:
    text = inspect.getdoc(policy_class(kind, name)) or ""
    parameters = {key: _plain(value) for key, value in policy_defaults(kind, name).items()}
    return {"name": name, "description": " ".join(text.partition("\n\n")[0].split()), "parameters": parameters}


def _plain(value: Any) -> Any:
    """A default as JSON has it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else str(value)


def _parameter(name: str) -> dict[str, Any]:
    choices: list[Any] | None = None
    if name == "gpu":
        choices = gpu_names()
    elif name in POLICIES:
        choices = policy_names(name)
    elif name == "gateway":
        choices = list(GATEWAYS)
    elif name == "kv_cache_dtype":
        choices = list(KV_DTYPE_BYTES)
    elif isinstance(DEFAULTS.get(name), bool):
        choices = [True, False]
    return {"name": name, "default": DEFAULTS.get(name), "choices": choices, "policy": name in POLICIES}


def examples() -> list[dict[str, str]]:
    """The search spaces that the package brings, the quickstart first."""
    found = []
    for file in resources.files(EXAMPLES).iterdir():
        name = file.name.removesuffix(".yaml")
        if name != file.name:
            text = file.read_text(encoding="utf-8")
            title = text.partition("\n")[0].lstrip("# ").strip()
            found.append({"name": name, "title": title, "yaml": text})
    return sorted(found, key=lambda example: (example["name"] != "quickstart", example["name"]))
