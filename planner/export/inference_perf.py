"""Target `inference-perf`: its configuration for the same workload, beside the commands that serve the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from planner.export._base import Exporter, SimulatedPlan
from planner.export.vllm import with_servers
from planner.export.vllm_serve import FIRST_PORT
from sim.errors import InputError
from sim.workload import SharedPrefixSpec
from sim.workload.distributions import Constant

CONFIG_FILE = "inference-perf.yaml"
_LOADS = {"normalized-poisson": "constant", "poisson": "poisson"}
_LENGTHS = ("system_prompt_len", "question_len", "output_len")


class InferencePerfExporter(Exporter):
    """inference-perf: `inference-perf.yaml`, `serve.sh`, `plan.yaml`, `README.md`."""

    name = "inference-perf"

    def files(self, plan: SimulatedPlan) -> dict[str, str]:
        own = {
            CONFIG_FILE: yaml.safe_dump(inference_perf_config(plan), sort_keys=False, width=120),
        }
        steps = [
            f"`inference-perf --config_file {CONFIG_FILE}` sends the workload and writes `reports/`.",
            "Compare TTFT and E2E with `summary_lifecycle_metrics.json`, which counts in seconds; take TPOT as "
            "(E2E - TTFT) / (output tokens - 1), since its own figure counts stream chunks.",
        ]
        return with_servers(plan, own, steps)


def inference_perf_config(plan: SimulatedPlan) -> dict[str, Any]:
    """The configuration of inference-perf 0.7. Raises InputError for a workload that it cannot make the same."""
    spec = plan.workload_spec
    if not isinstance(spec, SharedPrefixSpec):
        raise _cannot(plan, "kind", f"{spec.kind} has no exact counterpart in inference-perf; export it for vllm")
    lengths = {name: getattr(spec, name) for name in _LENGTHS}
    for name, length in lengths.items():
        if not isinstance(length, Constant):
            raise _cannot(plan, name, "must be one number to be the same in inference-perf")
    model = plan.served_model
    return {
        "api": {"type": "completion", "streaming": True},
        "server": {
            "type": "vllm",
            "model_name": model,
            "base_url": f"http://127.0.0.1:{FIRST_PORT}",
            "ignore_eos": True,
        },
        "tokenizer": {"pretrained_model_name_or_path": model},
        "data": {
            "type": "shared_prefix",
            "shared_prefix": {
                "num_groups": spec.num_groups,
                "num_prompts_per_group": spec.num_prompts_per_group,
                **{name: length.value for name, length in lengths.items()},
            },
        },
        "load": _load(plan),
        "report": {
            "request_lifecycle": {
                "summary": True,
                "per_stage": True,
                "per_request": True,
                "percentiles": [50, 90, 95, 99],
            }
        },
        "storage": {"local_storage": {"path": "reports"}},
    }


def _load(plan: SimulatedPlan) -> dict[str, Any]:
    spec = plan.workload_spec
    arrival = spec.arrival
    if arrival is None or arrival.process not in _LOADS:
        process = arrival.process if arrival else "none"
        raise _cannot(plan, "arrival.process", f"{process} has no counterpart in inference-perf (constant, poisson)")
    if arrival.shape is not None:
        raise _cannot(plan, "arrival.shape", "has no counterpart in inference-perf")
    if arrival.stages:
        stages = [{"rate": stage.rate_rps, "duration": stage.duration_s} for stage in arrival.stages]
    else:
        assert arrival.rate_rps is not None
        duration = spec.duration_s or len(plan.workload) / arrival.rate_rps
        stages = [{"rate": arrival.rate_rps, "duration": duration}]
    for stage in stages:
        if not float(stage["duration"]).is_integer():
            raise _cannot(
                plan, "num_requests", f"takes {stage['duration']:g} s; inference-perf's stages last whole seconds"
            )
        stage["duration"] = int(stage["duration"])
    return {"type": _LOADS[arrival.process], "stages": stages}


def _cannot(plan: SimulatedPlan, field: str, reason: str) -> InputError:
    return InputError(f"plan {plan.id}: workload.{field}", reason)


def parse_inference_perf(text: str) -> dict[str, Any]:
    """The `workload` section of a plan that an exported configuration describes."""
    config: Mapping[str, Any] = yaml.safe_load(text)
    process = {load: process for process, load in _LOADS.items()}[config["load"]["type"]]
    stages = [{"rate_rps": stage["rate"], "duration_s": stage["duration"]} for stage in config["load"]["stages"]]
    return {
        "kind": "shared_prefix",
        **config["data"]["shared_prefix"],
        "arrival": {"process": process, "stages": stages},
    }
