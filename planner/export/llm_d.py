"""Target `llm-d`: the router's EndpointPickerConfig, the model servers' values, objectives for sheddable classes."""

from __future__ import annotations

import json
import re
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
# The other scorers of `weighted` that llm-d has without experimental plugins -> the producer each needs besides.
_OTHER_SCORERS = {
    "running-requests-size-scorer": (),
    "load-aware-scorer": (),
    "active-request-scorer": ("inflight-load-producer",),
    "token-load-scorer": ("inflight-load-producer", "approx-prefix-cache-producer"),
    "no-hit-lru-scorer": ("approx-prefix-cache-producer",),
}
_PRODUCERS = {**_OTHER_SCORERS, "prefix-cache-scorer": ("approx-prefix-cache-producer",)}
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
    elif admission == "reject-negative" and not plan.policy_parameters("admission"):
        pass  # what llm-d does by itself, with the detector that is its default
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
        used = _scorers(plan)
        needed = {producer for scorer in used for producer in _PRODUCERS.get(scorer, ())}
        plugins = [{"type": producer} for producer in sorted(needed)]
        for scorer, (_, parameters) in used.items():
            plugins.append({"type": scorer, "parameters": parameters} if parameters else {"type": scorer})
        profile: list[dict[str, Any]] = [{"pluginRef": scorer, "weight": used[scorer][0]} for scorer in used]
        picker = str(plan.policy_parameters("routing").get("picker", "max-score-picker"))
    elif routing == "least-loaded":
        plugins = [{"type": "inflight-load-producer"}, {"type": "active-request-scorer"}]
        profile = [{"pluginRef": "active-request-scorer", "weight": 1.0}]
        picker = "max-score-picker"
    elif routing == "random" or one:
        plugins, profile, picker = [], [], "random-picker"
    else:
        raise plan.refuse("routing", f"{routing} has no counterpart in llm-d")
    return [*plugins, {"type": picker}], [*profile, {"pluginRef": picker}]


def _scorers(plan: SimulatedPlan) -> dict[str, tuple[float, dict[str, Any]]]:
    """Scorer -> (weight, parameters) of routing policy `weighted`, in llm-d's words."""
    given = plan.policy_parameters("routing")
    for name in given:
        if name not in (*_SCORERS, "scorers", "picker"):
            raise plan.refuse(f"routing.{name}", "is not exported; weights, scorers and the picker are")
    used: dict[str, tuple[float, dict[str, Any]]] = {}
    for name, (scorer, default) in _SCORERS.items():
        used[scorer] = (float(given.get(name, default)), {})
    for scorer, value in given.get("scorers", {}).items():
        if scorer not in (*used, *_OTHER_SCORERS):
            raise plan.refuse(f"routing.scorers.{scorer}", "has no counterpart in llm-d without experimental plugins")
        parameters = {"weight": value} if not isinstance(value, Mapping) else dict(value)
        weight = float(parameters.pop("weight", used.get(scorer, (1.0,))[0]))
        used[scorer] = (weight, {_camel(key): item for key, item in parameters.items()})
    return {scorer: entry for scorer, entry in used.items() if entry[0]}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)


def _snake(name: str) -> str:
    return re.sub(r"([A-Z])", lambda found: f"_{found.group(1).lower()}", name)


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
    return {**found, "routing": _read_routing(config), "admission": _read_admission(config, OBJECTIVES_FILE in files)}


def _read_routing(config: Mapping[str, Any]) -> dict[str, Any]:
    (profile,) = config["schedulingProfiles"]
    used = {entry["pluginRef"]: entry.get("weight") for entry in profile["plugins"]}
    if "random-picker" in used:
        return {"name": "random"}
    scorers = [name for name in used if name.endswith("-scorer")]
    if scorers == ["active-request-scorer"]:
        return {"name": "least-loaded"}
    found = {"name": "weighted", **{name: used.get(scorer, 0.0) for name, (scorer, _) in _SCORERS.items()}}
    parameters = {plugin["type"]: plugin.get("parameters", {}) for plugin in config["plugins"]}
    known = [scorer for scorer, _ in _SCORERS.values()]
    others = {
        name: {"weight": used[name], **{_snake(key): value for key, value in parameters[name].items()}}
        for name in scorers
        if name not in known or parameters[name]
    }
    (picker,) = (name for name in used if name.endswith("-picker"))
    extra = ({"scorers": others} if others else {}) | ({"picker": picker} if picker != "max-score-picker" else {})
    return found | extra


def _read_admission(config: Mapping[str, Any], sheds: bool) -> dict[str, Any]:
    for plugin in config["plugins"]:
        if plugin["type"] == "probabilistic-admitter":
            given = plugin["parameters"]
            return {"name": "probabilistic", **{name: float(given[key]) for name, (key, _, _) in _ADMITTER.items()}}
    return {"name": "reject-negative" if sheds else "always-admit"}


def _dump(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(json.loads(json.dumps(document)), sort_keys=False, width=120)
