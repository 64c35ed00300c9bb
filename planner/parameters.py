"""Deployment parameters as users write them: checked, resolved to every field, and brought to one form."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from planner.documents import check_keys, check_number, describe
from sim.catalog import GPUSpec, ModelSpec, load_gpu
from sim.catalog.model import KV_DTYPE_BYTES
from sim.checks import check_engine_version
from sim.deployment import PREFILL_SETTINGS, Deployment, PolicySpec
from sim.errors import InputError
from sim.names import nearest

POLICIES = (
    "kv_offload",
    "scheduling",
    "preemption",
    "routing",
    "admission",
    "flow_control",
    "disaggregation",
    "prefill_routing",
)
GATEWAYS = ("none", "llm-d")
LONGEST_MS = 8e9  # what a simulation can last

# Policies that never look at a replica's state, so that how stale a snapshot is cannot matter to them.
_BLIND = {
    "routing": ("round-robin", "random"),
    "admission": ("always-admit", "token-bucket"),
    "flow_control": ("none",),
    "disaggregation": ("always", "prefix-based"),
    "prefill_routing": ("round-robin", "random"),
}

# Parameters that say nothing unless there is a prefill pool.
OF_DISAGGREGATION = (
    *(f"prefill_{name}" for name in PREFILL_SETTINGS),
    "disaggregation",
    "prefill_routing",
    "kv_transfer_gb_per_s",
    "kv_transfer_latency_ms",
)

Parameters = dict[str, Any]


def _gpu(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise InputError(field, f"must be the name of a GPU, got {describe(value)}")
    return load_gpu(value, field).name


def _whole(value: Any, field: str, minimum: int, maximum: int = 2**31, optional: bool = False) -> int | None:
    if value is None and optional:
        return None
    return int(check_number(value, field, whole=True, minimum=minimum, maximum=maximum))


def _real(value: Any, field: str, **bounds: Any) -> float:
    return float(check_number(value, field, **bounds))


def _flag(value: Any, field: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(field, f"must be true or false, got {describe(value)}")
    return value


def _one_of(value: Any, field: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed or not isinstance(value, str):
        hint = nearest(value, allowed) if isinstance(value, str) else ""
        raise InputError(field, f"must be one of {', '.join(allowed)}, got {describe(value)}{hint}")
    return value


def _word(value: Any, field: str, optional: bool = False) -> str | None:
    if value is None and optional:
        return None
    if isinstance(value, float) and not isinstance(value, bool):
        raise InputError(field, f"must be a word; write it in quotes: '{value:g}'")
    if not isinstance(value, str) or not value:
        raise InputError(field, f"must be a word, got {describe(value)}")
    return value


def _engine_version(value: Any, field: str) -> str | None:
    version = _word(value, field)
    check_engine_version(str(version), field)
    return version


def _policy(value: Any, field: str, kind: str) -> str | dict[str, Any]:
    """A policy as its name, or a dict of `name` and those parameters that differ from its defaults."""
    from sim.cluster import check_policy, policy_defaults

    spec = policy_spec(value, field)
    check_policy(kind, spec, field)
    if not spec.parameters:
        return spec.name
    defaults = policy_defaults(kind, spec.name)
    own = {key: item for key, item in spec.parameters.items() if key not in defaults or defaults[key] != item}
    return {"name": spec.name, **own} if own else spec.name


def policy_spec(value: Any, field: str) -> PolicySpec:
    """The policy that `value` names: ``weighted`` or ``{name: weighted, queue: 2}``, parameters optionally under
    `parameters`. Whether there is such a policy is not looked at here."""
    if isinstance(value, str) and value:
        return PolicySpec(value)
    if not isinstance(value, Mapping):
        raise InputError(field, f"must be a policy's name, or a mapping of name and parameters, got {describe(value)}")
    if not isinstance(value.get("name"), str):
        raise InputError(f"{field}.name", "is missing; give the policy's name")
    parameters = {key: item for key, item in value.items() if key not in ("name", "parameters")}
    nested = value.get("parameters")
    if nested is not None:
        if not isinstance(nested, Mapping):
            raise InputError(f"{field}.parameters", f"must be a mapping, got {describe(nested)}")
        parameters.update(nested)
    return PolicySpec(value["name"], parameters)


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "gpu": _gpu,
    "tensor_parallel_size": partial(_whole, minimum=1, maximum=1024),
    "replicas": partial(_whole, minimum=1, maximum=100_000),
    "max_num_seqs": partial(_whole, minimum=1),
    "max_num_batched_tokens": partial(_whole, minimum=1),
    "max_model_len": partial(_whole, minimum=1, optional=True),
    "gpu_memory_utilization": partial(_real, above=0, maximum=1),
    "block_size": partial(_whole, minimum=1, maximum=65_536),
    "enable_prefix_caching": _flag,
    "kv_cache_dtype": partial(_one_of, allowed=tuple(KV_DTYPE_BYTES)),
    "quantization": partial(_word, optional=True),
    "kv_offload": partial(_policy, kind="kv_offload"),
    "async_scheduling": _flag,
    "long_prefill_token_threshold": partial(_whole, minimum=0),
    "num_gpu_blocks_override": partial(_whole, minimum=1, optional=True),
    "engine_version": _engine_version,
    "scheduling": partial(_policy, kind="scheduling"),
    "preemption": partial(_policy, kind="preemption"),
    "routing": partial(_policy, kind="routing"),
    "admission": partial(_policy, kind="admission"),
    "flow_control": partial(_policy, kind="flow_control"),
    "gateway": partial(_one_of, allowed=GATEWAYS),
    "snapshot_interval_ms": partial(_real, minimum=0, maximum=LONGEST_MS),
    "prefill_replicas": partial(_whole, minimum=0, maximum=100_000),
    "prefill_tensor_parallel_size": partial(_whole, minimum=1, maximum=1024, optional=True),
    "prefill_max_num_seqs": partial(_whole, minimum=1, optional=True),
    "prefill_max_num_batched_tokens": partial(_whole, minimum=1, optional=True),
    "disaggregation": partial(_policy, kind="disaggregation"),
    "prefill_routing": partial(_policy, kind="prefill_routing"),
    "kv_transfer_gb_per_s": partial(_real, minimum=1e-6, maximum=1e6),
    "kv_transfer_latency_ms": partial(_real, minimum=0, maximum=LONGEST_MS),
}
PARAMETERS = tuple(field.name for field in dataclasses.fields(Deployment) if field.name != "model")


def _defaults() -> Parameters:
    values = {field.name: field.default for field in dataclasses.fields(Deployment) if field.name in PARAMETERS}
    return {
        name: value.name if isinstance(value, PolicySpec) else value
        for name, value in values.items()
        if value is not dataclasses.MISSING
    }


DEFAULTS = _defaults()


def check_parameter(name: str, value: Any, field: str) -> Any:
    """`value` of deployment parameter `name` in its one form. Raises InputError on `field`."""
    return _CHECKS[name](value, field)


def resolve(given: Mapping[str, Any], field: str = "deployment") -> Parameters:
    """Every parameter of a deployment: those given, checked, and vLLM's defaults. Raises InputError."""
    check_keys(given, PARAMETERS, field)
    if "gpu" not in given:
        raise InputError(f"{field}.gpu", "is missing; give the name of a GPU (`planner hardware` lists them)")
    checked = {name: check_parameter(name, value, f"{field}.{name}") for name, value in given.items()}
    return {name: checked.get(name, DEFAULTS.get(name)) for name in PARAMETERS}


def policy_name(value: Any) -> str:
    """The name of a policy in its one form."""
    return str(value["name"]) if isinstance(value, Mapping) else str(value)


def canonical(parameters: Mapping[str, Any]) -> Parameters:
    """The one form of all parameters that make the same deployment: what cannot matter is set to its default."""
    same = dict(parameters)
    if not same["enable_prefix_caching"] or _is_empty(same["kv_offload"]):
        same["kv_offload"] = DEFAULTS["kv_offload"]
    if same["replicas"] == 1:
        same["routing"] = DEFAULTS["routing"]
    if same["prefill_replicas"] == 0:
        same |= {name: DEFAULTS[name] for name in OF_DISAGGREGATION}
    for name in PREFILL_SETTINGS:
        if same[f"prefill_{name}"] == same[name]:
            same[f"prefill_{name}"] = None
    if same["prefill_replicas"] < 2:
        same["prefill_routing"] = DEFAULTS["prefill_routing"]
    if all(policy_name(same[kind]) in _BLIND[kind] for kind in _deciding(same)):
        same["snapshot_interval_ms"] = DEFAULTS["snapshot_interval_ms"]
    budget = max(same["max_num_batched_tokens"], same["prefill_max_num_batched_tokens"] or 0)
    if same["long_prefill_token_threshold"] >= budget:
        same["long_prefill_token_threshold"] = 0  # a chunk is never longer than the step's token budget
    return same


def _is_empty(offload: Any) -> bool:
    """Whether the shipped tiers have no room."""
    sizes = ("host_gib", "peer_gib", "disk_gib")
    given = offload if isinstance(offload, Mapping) else {}
    return policy_name(offload) == "tiered" and not any(given.get(size, 0) for size in sizes)


def _deciding(parameters: Mapping[str, Any]) -> list[str]:
    """The policies of the gateway that have something to decide."""
    pools = {"disaggregation": 1, "prefill_routing": 2}  # replicas that it takes
    return [kind for kind in _BLIND if parameters["prefill_replicas"] >= pools.get(kind, 0)]


def prefill_parameters(parameters: Mapping[str, Any]) -> Parameters:
    """The prefill pool as a deployment of its own, as `Deployment.prefill_pool` says; there is one."""
    own = {name: parameters[f"prefill_{name}"] for name in PREFILL_SETTINGS}
    pool = dict(parameters) | {name: value for name, value in own.items() if value is not None}
    pool |= {"replicas": parameters["prefill_replicas"], "routing": parameters["prefill_routing"]}
    none = {name: DEFAULTS[name] for name in OF_DISAGGREGATION}
    return pool | none | {"prefill_replicas": 0, "num_gpu_blocks_override": None}


def gpu_count(parameters: Mapping[str, Any]) -> int:
    """GPUs of a deployment, those of its prefill pool included."""
    size = int(parameters.get("tensor_parallel_size", 1))
    prefill = int(parameters.get("prefill_replicas") or 0) * int(parameters.get("prefill_tensor_parallel_size") or size)
    return size * int(parameters.get("replicas", 1)) + prefill


def content_id(*parts: Any) -> str:
    """A short name for JSON-like `parts`, the same on every machine: 50 bits of their SHA-256."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return base64.b32encode(hashlib.sha256(text.encode()).digest()).decode().lower()[:10]


def to_deployment(parameters: Mapping[str, Any], model: ModelSpec, gpus: Mapping[str, GPUSpec]) -> Deployment:
    """The deployment of `model` that resolved `parameters` describe, its GPU taken from `gpus`."""
    values = dict(parameters)
    for kind in POLICIES:
        values[kind] = policy_spec(values[kind], kind)
    gpu = gpus[values.pop("gpu")]
    return Deployment(model=model, gpu=gpu, **values)
