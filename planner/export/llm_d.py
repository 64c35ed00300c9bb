"""Target `llm-d`: the router's EndpointPickerConfig, the model servers' values, objectives for sheddable classes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from planner.export._base import Exporter, SimulatedPlan
from planner.export.llm_d_pools import (
    DECIDERS,
    KV_PORTS,
    KV_TRANSFER,
    SIDE_CHANNEL,
    of_profile,
    read_decider,
    two_profiles,
)
from planner.export.vllm import readme
from planner.export.vllm_bench import bench_for, bench_script
from planner.export.vllm_serve import flags, parse_serve_command
from sim.deployment import PREFILL_SETTINGS
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
    plugins, profile = _routing(plan, "routing")
    profiles = {"default": profile}
    pool = plan.prefill_pool
    if pool is not None:
        plugins, profiles = two_profiles(_decider(plan), (plugins, profile), _routing(pool, "prefill_routing"))
    config: dict[str, Any] = {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": plugins,
        "schedulingProfiles": [{"name": name, "plugins": used} for name, used in profiles.items()],
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


def _decider(plan: SimulatedPlan) -> dict[str, Any]:
    """The plugin that decides whether a prompt is prefilled in the prefill pool."""
    decider, given = plan.policy("disaggregation"), plan.policy_parameters("disaggregation")
    if decider not in DECIDERS:
        raise plan.refuse("disaggregation", f"{decider} has no counterpart in llm-d")
    if "prefix_index" in given:
        raise plan.refuse("disaggregation.prefix_index", "is not exported; the approximate one is")
    parameters = {_camel(name): int(value) for name, value in given.items()}
    return {"type": DECIDERS[decider]} | ({"parameters": parameters} if parameters else {})


def _routing(plan: SimulatedPlan, kind: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Plugins, and their use in the scheduling profile, of the plan's one pool; `kind` is the parameter's name."""
    routing = plan.policy("routing")
    one = int(plan.deployment["replicas"]) == 1
    if routing == "weighted":
        if plan.deployment["snapshot_interval_ms"] == 0 and not one:
            raise plan.refuse("snapshot_interval_ms", "0 (a live view) exists in the simulator only; llm-d scrapes")
        used = _scorers(plan, kind)
        needed = {producer for scorer in used for producer in _PRODUCERS.get(scorer, ())}
        plugins: list[dict[str, Any]] = [{"type": producer} for producer in sorted(needed)]
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
        raise plan.refuse(kind, f"{routing} has no counterpart in llm-d")
    return [*plugins, {"type": picker}], [*profile, {"pluginRef": picker}]


def _scorers(plan: SimulatedPlan, kind: str) -> dict[str, tuple[float, dict[str, Any]]]:
    """Scorer -> (weight, parameters) of routing policy `weighted`, in llm-d's words."""
    given = plan.policy_parameters("routing")
    for name in given:
        if name not in (*_SCORERS, "scorers", "picker"):
            raise plan.refuse(f"{kind}.{name}", "is not exported; weights, scorers and the picker are")
    used: dict[str, tuple[float, dict[str, Any]]] = {}
    for name, (scorer, default) in _SCORERS.items():
        used[scorer] = (float(given.get(name, default)), {})
    for scorer, value in given.get("scorers", {}).items():
        if scorer not in (*used, *_OTHER_SCORERS):
            raise plan.refuse(f"{kind}.scorers.{scorer}", "has no counterpart in llm-d without experimental plugins")
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
    pool = plan.prefill_pool
    routing = {"routing": {"proxy": {"connector": "nixlv2", "secure": False}}} if pool is not None else {}
    return {
        "modelArtifacts": {"uri": f"hf://{plan.served_model}", "name": plan.served_model},
        **routing,
        "decode": _pool_values(plan, moves_kv=pool is not None),
        "prefill": {"create": False} if pool is None else _pool_values(pool, moves_kv=True),
    }


def _pool_values(plan: SimulatedPlan, moves_kv: bool) -> dict[str, Any]:
    """Values of the engines of one pool."""
    arguments = [word for row in flags(plan) if row[0] != "--tensor-parallel-size" for word in row]
    deployment = plan.deployment
    container = {
        "name": "vllm",
        "image": f"vllm/vllm-openai:v{deployment['engine_version']}",
        "modelCommand": "vllmServe",
        "args": [*arguments, *KV_TRANSFER] if moves_kv else arguments,
        **({"env": SIDE_CHANNEL, "ports": KV_PORTS} if moves_kv else {}),
    }
    return {
        "create": True,
        "replicas": int(deployment["replicas"]),
        "parallelism": {"tensor": int(deployment["tensor_parallel_size"])},
        "containers": [container],
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
    config = yaml.safe_load(files[EPP_FILE])
    found = _read_pool(values, "decode")
    if values["prefill"]["create"]:
        pool = _read_pool(values, "prefill")
        found |= {f"prefill_{name}": pool[name] for name in ("replicas", *PREFILL_SETTINGS)}
        found |= {"disaggregation": read_decider(config), "prefill_routing": _read_routing(config, "prefill")}
    admission = _read_admission(config, OBJECTIVES_FILE in files)
    return {**found, "routing": _read_routing(config, "decode"), "admission": admission}


def _read_pool(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The engine's parameters and the number of replicas of pool `name`."""
    pool = values[name]
    (container,) = pool["containers"]
    arguments = [word for word in container["args"] if word not in KV_TRANSFER]
    return parse_serve_command(" ".join(["vllm serve", values["modelArtifacts"]["name"], *arguments])) | {
        "tensor_parallel_size": pool["parallelism"]["tensor"],
        "replicas": pool["replicas"],
        "engine_version": container["image"].rpartition(":v")[2],
    }


def _read_routing(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The routing policy of pool `name`, or of the only one."""
    config, profile = of_profile(config, name)
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
