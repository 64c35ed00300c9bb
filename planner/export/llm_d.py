"""Target `llm-d`: the router's EndpointPickerConfig, the model servers' values, objectives for sheddable classes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from planner.export._base import Exporter, SimulatedPlan
from planner.export.vllm import readme
from planner.export.vllm_bench import bench_for, bench_script
from planner.export.vllm_serve import flags, parse_serve_command
from sim.workload import SLO_CLASS_PRIORITY

EPP_FILE, VALUES_FILE, OBJECTIVES_FILE = "epp-config.yaml", "modelservice-values.yaml", "objectives.yaml"
DEFAULT_SCRAPE_MS = 50.0
_UNREACHABLE_QUEUE = 999_999_999

# Weight of routing policy `weighted` -> (llm-d's scorer, default weight of both).
_SCORERS = {
    "queue": ("queue-scorer", 2.0),
    "kv": ("kv-cache-utilization-scorer", 2.0),
    "prefix": ("prefix-cache-scorer", 3.0),
}
# Parameter of admission policy `probabilistic` -> (llm-d's, default of both, its type there).
_ADMITTER = {
    "queue_depth_threshold": ("queueDepthThreshold", 5.0, int),
    "kv_cache_util_threshold": ("kvCacheUtilThreshold", 0.8, float),
    "power": ("power", 5.0, float),
    "k": ("k", 300.0, float),
}


class LlmDExporter(Exporter):
    """llm-d: router configuration, model-service values, the benchmark through the gateway, the plan and a README."""

    name = "llm-d"

    def files(self, plan: SimulatedPlan) -> dict[str, str]:
        config = endpoint_picker_config(plan)
        bench = bench_for(plan)
        remarks = ["Give the gateway's address as the first argument."]
        files = {
            EPP_FILE: "".join(f"# {remark}\n" for remark in _router_remarks(plan)) + _dump(config),
            VALUES_FILE: _dump(model_service_values(plan)),
            "bench.sh": bench_script(plan, bench, remarks),
            "plan.yaml": plan.text,
            **bench.files,
        }
        objectives = inference_objectives(plan)
        if objectives:
            files[OBJECTIVES_FILE] = "---\n".join(_dump(objective) for objective in objectives)
        steps = [
            f"Deploy the model servers with the llm-d model-service chart and `{VALUES_FILE}`.",
            f"Give the router `{EPP_FILE}`{_flag_words(plan)}.",
            *([f"Apply `{OBJECTIVES_FILE}`."] if objectives else []),
            "`./bench.sh ADDRESS_OF_THE_GATEWAY` sends the workload.",
        ]
        return {**files, "README.md": readme(plan, steps, files)}


def endpoint_picker_config(plan: SimulatedPlan) -> dict[str, Any]:
    """The router's configuration. Raises InputError where llm-d has no such policy."""
    if plan.policy("flow_control") != "none":
        raise plan.refuse("flow_control", "is not exported; simulated flow control is for comparing policies")
    plugins, profile = _routing(plan)
    config: dict[str, Any] = {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": plugins,
        "schedulingProfiles": [{"name": "default", "plugins": profile}],
    }
    admission = plan.policy("admission")
    if admission == "probabilistic":
        plugins.append({"type": "probabilistic-admitter", "parameters": _admitter_parameters(plan)})
        # The default detector would refuse sheddable requests at saturation 1, before the admitter is asked.
        unreachable = {"queueDepthThreshold": _UNREACHABLE_QUEUE, "kvCacheUtilThreshold": 1.0}
        plugins.append({"type": "utilization-detector", "parameters": unreachable})
        config["flowControl"] = {"saturationDetector": {"pluginRef": "utilization-detector"}}
    elif admission != "always-admit":
        raise plan.refuse("admission", f"{admission} has no counterpart in llm-d, which has the probabilistic one")
    return config


def _routing(plan: SimulatedPlan) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Plugins, and their use in the scheduling profile."""
    routing = plan.policy("routing")
    one = int(plan.deployment["replicas"]) == 1
    if routing == "weighted":
        if plan.deployment["snapshot_interval_ms"] == 0 and not one:
            raise plan.refuse("snapshot_interval_ms", "0 (a live view) exists in the simulator only; llm-d scrapes")
        given = plan.policy_parameters("routing")
        for name in given:
            if name not in _SCORERS:
                raise plan.refuse(f"routing.{name}", "is not exported; queue, kv and prefix are")
        weights = {name: float(given.get(name, default)) for name, (_, default) in _SCORERS.items()}
        plugins = [{"type": "approx-prefix-cache-producer"}] if weights["prefix"] else []
        used = [(_SCORERS[name][0], weight) for name, weight in weights.items() if weight]
        plugins += [{"type": scorer} for scorer, _ in used]
        profile: list[dict[str, Any]] = [{"pluginRef": scorer, "weight": weight} for scorer, weight in used]
        picker = "max-score-picker"
    elif routing == "least-loaded":
        plugins = [{"type": "inflight-load-producer"}, {"type": "active-request-scorer"}]
        profile = [{"pluginRef": "active-request-scorer", "weight": 1.0}]
        picker = "max-score-picker"
    elif routing == "random" or one:
        plugins, profile, picker = [], [], "random-picker"
    else:
        raise plan.refuse("routing", f"{routing} has no counterpart in llm-d")
    return [*plugins, {"type": picker}], [*profile, {"pluginRef": picker}]


def _admitter_parameters(plan: SimulatedPlan) -> dict[str, Any]:
    given = plan.policy_parameters("admission")
    values: dict[str, Any] = {}
    for name, (key, default, kind) in _ADMITTER.items():
        value = float(given.get(name, default))
        if kind is int and not value.is_integer():
            raise plan.refuse(f"admission.{name}", f"{value:g} must be a whole number in llm-d")
        values[key] = kind(value)
    return values


def model_service_values(plan: SimulatedPlan) -> dict[str, Any]:
    """Values of the llm-d model-service chart: replicas, GPUs a replica, image, and vLLM's arguments."""
    arguments = [word for row in flags(plan) if row[0] != "--tensor-parallel-size" for word in row]
    deployment = plan.deployment
    container = {
        "name": "vllm",
        "image": f"vllm/vllm-openai:v{deployment['engine_version']}",
        "modelCommand": "vllmServe",
        "args": arguments,
    }
    return {
        "modelArtifacts": {"uri": f"hf://{plan.served_model}", "name": plan.served_model},
        "decode": {
            "create": True,
            "replicas": int(deployment["replicas"]),
            "parallelism": {"tensor": int(deployment["tensor_parallel_size"])},
            "containers": [container],
        },
        "prefill": {"create": False},
    }


def inference_objectives(plan: SimulatedPlan) -> list[dict[str, Any]]:
    """One InferenceObjective for each class of the workload that may be shed; without one a request has priority 0."""
    if plan.policy("admission") == "always-admit":
        return []
    return [
        {
            "apiVersion": "inference.networking.x-k8s.io/v1alpha2",
            "kind": "InferenceObjective",
            "metadata": {"name": name},
            "spec": {"priority": SLO_CLASS_PRIORITY[name], "poolRef": {"name": "POOL"}},
        }
        for name in plan.workload.slo_classes
        if SLO_CLASS_PRIORITY[name] < 0
    ]


def _flag_words(plan: SimulatedPlan) -> str:
    interval = float(plan.deployment["snapshot_interval_ms"])
    if interval in (0.0, DEFAULT_SCRAPE_MS):
        return ""
    return f" and start it with `--refresh-metrics-interval={interval:g}ms`"


def _router_remarks(plan: SimulatedPlan) -> list[str]:
    remarks = [
        f"Plan {plan.id} of {plan.run_name}: routing {plan.policy('routing')}, admission {plan.policy('admission')}."
    ]
    if _flag_words(plan):
        remarks.append(f"Simulated with{_flag_words(plan).removeprefix(' and start it with')}.")
    return remarks


def parse_llm_d(files: Mapping[str, str]) -> dict[str, Any]:
    """The deployment parameters in exported files: the engine's, `replicas`, `routing` and `admission` with parameters.

    A policy is a dict of `name` and all its parameters. One replica's routing reads back as `random`: it is no choice.
    """
    values = yaml.safe_load(files[VALUES_FILE])
    decode = values["decode"]
    (container,) = decode["containers"]
    command = " ".join(["vllm serve", values["modelArtifacts"]["name"], *container["args"]])
    found = parse_serve_command(command)
    found |= {
        "tensor_parallel_size": decode["parallelism"]["tensor"],
        "replicas": decode["replicas"],
        "engine_version": container["image"].rpartition(":v")[2],
    }
    config = yaml.safe_load(files[EPP_FILE])
    return {**found, "routing": _read_routing(config), "admission": _read_admission(config)}


def _read_routing(config: Mapping[str, Any]) -> dict[str, Any]:
    (profile,) = config["schedulingProfiles"]
    used = {entry["pluginRef"]: entry.get("weight") for entry in profile["plugins"]}
    if "random-picker" in used:
        return {"name": "random"}
    if "active-request-scorer" in used:
        return {"name": "least-loaded"}
    return {"name": "weighted", **{name: used.get(scorer, 0.0) for name, (scorer, _) in _SCORERS.items()}}


def _read_admission(config: Mapping[str, Any]) -> dict[str, Any]:
    for plugin in config["plugins"]:
        if plugin["type"] == "probabilistic-admitter":
            given = plugin["parameters"]
            return {"name": "probabilistic", **{name: float(given[key]) for name, (key, _, _) in _ADMITTER.items()}}
    return {"name": "always-admit"}


def _dump(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(json.loads(json.dumps(document)), sort_keys=False, width=120)
