"""Target `vllm`: the command that serves a plan, the one that measures it, and what to expect of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from planner.export._base import Exporter, SimulatedPlan
from planner.export.nginx import METHODS, nginx_config
from planner.export.vllm_bench import RESULT_FILE, bench_for, bench_script
from planner.export.vllm_serve import scheduling_policy, serve_script
from planner.report import names

# Metric of the simulation -> key in the result file of `vllm bench serve`.
RESULT_KEYS = {
    "ttft_mean_ms": "mean_ttft_ms",
    "ttft_p50_ms": "median_ttft_ms",
    "ttft_p90_ms": "p90_ttft_ms",
    "ttft_p99_ms": "p99_ttft_ms",
    "tpot_mean_ms": "mean_tpot_ms",
    "tpot_p99_ms": "p99_tpot_ms",
    "itl_mean_ms": "mean_itl_ms",
    "e2e_mean_ms": "mean_e2el_ms",
    "e2e_p99_ms": "p99_e2el_ms",
    "requests_per_s": "request_throughput",
    "output_tokens_per_s": "output_throughput",
    "total_tokens_per_s": "total_token_throughput",
    "goodput_rps": "request_goodput",
}


class VllmExporter(Exporter):
    """Plain vLLM: `serve.sh`, `bench.sh`, `plan.yaml`, `README.md`, and `nginx.conf` where requests are spread."""

    name = "vllm"

    def files(self, plan: SimulatedPlan) -> dict[str, str]:
        scheduling_policy(plan)
        spread = router(plan)
        bench = bench_for(plan)
        files = {
            "serve.sh": serve_script(plan),
            "bench.sh": bench_script(plan, bench, _gateway_remarks(plan)),
            "plan.yaml": plan.text,
            **bench.files,
        }
        if spread == "nginx":
            files["nginx.conf"] = nginx_config(plan)
        return {**files, "README.md": readme(plan, [*start_steps(plan, spread), _bench_step(plan, spread)], files)}


def with_servers(plan: SimulatedPlan, own: Mapping[str, str], steps: Sequence[str]) -> dict[str, str]:
    """A load generator's `own` files, with those that serve the plan for it; `steps` follow the servers' start."""
    spread = router(plan)
    files = {**own, "serve.sh": serve_script(plan), "plan.yaml": plan.text}
    if spread == "nginx":
        files["nginx.conf"] = nginx_config(plan)
    return {**files, "README.md": readme(plan, [*start_steps(plan, spread), *steps], files)}


def router(plan: SimulatedPlan) -> str:
    """What stands before the replicas: "" | "nginx" | "llm-d". Raises InputError where nothing routes like that."""
    plan.must_be_one_pool("plain vLLM")
    admission, routing = plan.policy("admission"), plan.policy("routing")
    if admission != "always-admit":
        hint = "; the target llm-d has it" if admission == "probabilistic" else ""
        raise plan.refuse("admission", f"{admission} has no counterpart in vLLM, which admits every request{hint}")
    if plan.policy("flow_control") != "none":
        raise plan.refuse("flow_control", "vLLM has none: it queues what it is sent")
    if int(plan.deployment["replicas"]) == 1:
        return ""
    if routing in METHODS:
        return "nginx"
    if routing == "weighted":
        return "llm-d"
    raise plan.refuse("routing", f"{routing} exists in the simulator only")


def _gateway_remarks(plan: SimulatedPlan) -> list[str]:
    if plan.deployment["gateway"] == "none":
        return []
    return [
        "The simulation includes the latency of a gateway (llm-d); give its address as the first argument, or expect",
        "a lower TTFT from the engine alone.",
    ]


def start_steps(plan: SimulatedPlan, spread: str) -> list[str]:
    """How to start the engines, and what stands before them (`spread`, as `router` says)."""
    steps = ["`./serve.sh` starts the engines; wait until each answers on `/health`."]
    if spread == "nginx":
        steps.append('`nginx -c "$PWD/nginx.conf"` spreads the requests over them on port 8000.')
    if spread == "llm-d":
        steps.append("Put the llm-d router in front (`planner export --target llm-d` writes its configuration).")
    elif plan.deployment["gateway"] != "none":
        gateway = plan.deployment["gateway"]
        steps.append(f"The simulation includes the gateway {gateway}: put it in front, or expect a lower TTFT without.")
    return steps


def _bench_step(plan: SimulatedPlan, spread: str) -> str:
    address = " ADDRESS_OF_THE_GATEWAY" if spread == "llm-d" or plan.deployment["gateway"] != "none" else ""
    return f"`./bench.sh{address}` sends the workload and writes `{RESULT_FILE}`."


def readme(plan: SimulatedPlan, steps: Sequence[str], files: Mapping[str, str]) -> str:
    """What to do with the files, and the numbers to compare with, by key of `vllm bench serve`'s result file."""
    deployment = plan.deployment
    rows = [
        f"| {names.metric_name(metric)} | `{key}` | {names.measure(metric, plan.metrics[metric])} |"
        for metric, key in RESULT_KEYS.items()
        if not math.isnan(plan.metrics.get(metric, math.nan))
    ]
    return "\n".join(
        [
            f"# Plan {plan.id} of {plan.run_name}",
            "",
            f"{plan.served_model} on {deployment['gpu']}, {_replicas(deployment)}, "
            f"vLLM {deployment['engine_version']}.",
            "",
            *(f"{number}. {step}" for number, step in enumerate(steps, start=1)),
            "",
            "| expected | key in the result of `vllm bench serve` | simulated |",
            "|---|---|---|",
            *rows,
            "",
            "Files: " + ", ".join(f"`{name}`" for name in files) + ".",
            "`planner simulate plan.yaml` gives the simulated numbers again.",
            "",
        ]
    )


def _replicas(deployment: Mapping[str, Any]) -> str:
    if deployment["prefill_replicas"]:
        return names.pools(deployment)
    count = int(deployment["replicas"])
    return f"{count} replica{'' if count == 1 else 's'} of TP={deployment['tensor_parallel_size']}"
