"""Target `kserve`: an InferenceService that runs the plan's engines, and the benchmark through it."""

from __future__ import annotations

import re
from typing import Any

import yaml

from planner.export._base import Exporter, SimulatedPlan
from planner.export.vllm import readme
from planner.export.vllm_bench import bench_for, bench_script
from planner.export.vllm_serve import flags, parse_serve_command

SERVICE_FILE = "inferenceservice.yaml"
GPU_RESOURCE = "nvidia.com/gpu"


class KserveExporter(Exporter):
    """KServe: `inferenceservice.yaml`, `bench.sh`, `plan.yaml`, `README.md`."""

    name = "kserve"

    def files(self, plan: SimulatedPlan) -> dict[str, str]:
        bench = bench_for(plan)
        files = {
            SERVICE_FILE: yaml.safe_dump(inference_service(plan), sort_keys=False, width=120),
            "bench.sh": bench_script(plan, bench, ["Give the service's address as the first argument."]),
            "plan.yaml": plan.text,
            **bench.files,
        }
        steps = [
            f"`kubectl apply -f {SERVICE_FILE}`, and wait until the service is ready: "
            f"`kubectl wait --for=condition=Ready inferenceservice/{service_name(plan)} --timeout=30m`.",
            "`./bench.sh ADDRESS_OF_THE_SERVICE` sends the workload.",
        ]
        return {**files, "README.md": readme(plan, steps, files)}


def service_name(plan: SimulatedPlan) -> str:
    """A name that Kubernetes takes: lower case, digits and hyphens, at most 50 characters."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{plan.run_name}-{plan.id}".lower()).strip("-")
    return (name if name[:1].isalpha() else f"plan-{name}")[:50].strip("-")


def inference_service(plan: SimulatedPlan) -> dict[str, Any]:
    """The manifest: as many engines as the plan has replicas, never scaled. Raises InputError for other policies.

    In KServe's standard mode a Kubernetes service stands before the engines, which picks one at random.
    """
    _check_policies(plan)
    deployment = plan.deployment
    gpus = int(deployment["tensor_parallel_size"])
    if gpus > plan.gpus_per_node:
        reason = f"{gpus} GPUs a replica span machines of {plan.gpus_per_node}; that is not exported"
        raise plan.refuse("tensor_parallel_size", reason)
    container = {
        "name": "kserve-container",
        "image": f"vllm/vllm-openai:v{deployment['engine_version']}",
        "command": ["vllm", "serve", plan.served_model],
        "args": ["--port", "8080", *(word for row in flags(plan) for word in row)],
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "resources": {"limits": {GPU_RESOURCE: str(gpus)}, "requests": {GPU_RESOURCE: str(gpus)}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}, "failureThreshold": 180, "periodSeconds": 10},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    replicas = int(deployment["replicas"])
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": service_name(plan),
            "annotations": {"serving.kserve.io/deploymentMode": "RawDeployment"},
        },
        "spec": {
            "predictor": {
                "minReplicas": replicas,
                "maxReplicas": replicas,
                "containers": [container],
                # Tensor-parallel workers talk through shared memory, of which a container has 64 MB otherwise.
                "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
            }
        },
    }


def _check_policies(plan: SimulatedPlan) -> None:
    plan.must_be_one_pool("an InferenceService")
    admission, routing = plan.policy("admission"), plan.policy("routing")
    if admission != "always-admit":
        raise plan.refuse("admission", f"{admission} has no counterpart in KServe, which admits every request")
    if int(plan.deployment["replicas"]) > 1 and routing != "random":
        hint = "search with routing random, or export to llm-d"
        raise plan.refuse("routing", f"{routing} has no counterpart in KServe, whose service picks at random; {hint}")
    if plan.deployment["gateway"] != "none":
        raise plan.refuse("gateway", f"{plan.deployment['gateway']} is not part of an InferenceService; use llm-d")


def parse_kserve(text: str) -> dict[str, Any]:
    """The deployment parameters in an exported manifest: the engine's, `replicas`, and `routing` where it matters."""
    predictor = yaml.safe_load(text)["spec"]["predictor"]
    (container,) = predictor["containers"]
    found = parse_serve_command(" ".join([*container["command"], *container["args"]]))
    found |= {
        "replicas": int(predictor["minReplicas"]),
        "engine_version": container["image"].rpartition(":v")[2],
        "tensor_parallel_size": int(container["resources"]["limits"][GPU_RESOURCE]),
    }
    return found | ({"routing": {"name": "random"}} if found["replicas"] > 1 else {})
