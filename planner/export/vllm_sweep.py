"""Target `vllm-sweep`: the parameter files with which `vllm bench sweep serve` measures the best plans in turn."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

from planner.export._base import Exporter, SimulatedPlan
from planner.export.vllm import readme
from planner.export.vllm_bench import Bench, bench_for, bench_rows
from planner.export.vllm_serve import flags, parse_serve_command
from sim.errors import InputError

SERVE_FILE, BENCH_FILE, SCRIPT_FILE = "serve-params.json", "bench-params.json", "sweep.sh"


class VllmSweepExporter(Exporter):
    """vLLM's sweep: `serve-params.json`, `bench-params.json`, `sweep.sh`; a folder a plan, and all of them above."""

    name = "vllm-sweep"

    def files(self, plan: SimulatedPlan) -> dict[str, str]:
        files = {**sweep_files([plan]), "plan.yaml": plan.text}
        steps = [f"`./{SCRIPT_FILE}` starts the engine, sends the workload, and writes a result under `results/`."]
        return {**files, "README.md": readme(plan, steps, files)}

    def together(self, plans: Sequence[SimulatedPlan]) -> dict[str, str]:
        """The sweep of all the plans, an entry each in their order; one model is served, and one workload sent."""
        return sweep_files(plans)


def sweep_files(plans: Sequence[SimulatedPlan]) -> dict[str, str]:
    """The files of a sweep over plans of one run. Raises InputError for what a sweep cannot serve."""
    first = plans[0]
    serve = [serve_parameters(plan) for plan in plans]
    bench = bench_for(first)
    return {
        SERVE_FILE: json.dumps(serve, indent=2) + "\n",
        BENCH_FILE: json.dumps([{"seed": first.plan.seed}], indent=2) + "\n",
        SCRIPT_FILE: sweep_script(plans, bench),
        **bench.files,
    }


def serve_parameters(plan: SimulatedPlan) -> dict[str, Any]:
    """The plan's flags as a sweep's parameter file has them: underscores, switches as true or false."""
    deployment = plan.deployment
    plan.must_be_one_pool("a sweep")
    if int(deployment["replicas"]) > 1:
        reason = f"{deployment['replicas']} replicas are more than the one engine that a sweep starts; export for vllm"
        raise plan.refuse("replicas", reason)
    if plan.policy("admission") != "always-admit":
        raise plan.refuse("admission", f"{plan.policy('admission')} has no counterpart in vLLM")
    found: dict[str, Any] = {}
    for flag, *value in flags(plan):
        name = flag.removeprefix("--").replace("-", "_")
        if value:
            found[name] = _typed(value[0])
        else:
            found[name.removeprefix("no_")] = not name.startswith("no_")
    return found


def _typed(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def sweep_script(plans: Sequence[SimulatedPlan], bench: Bench) -> str:
    """The script that measures every entry of the parameter files once; it says whose each is."""
    plan = plans[0]
    serve = f"vllm serve {shlex.quote(plan.served_model)} --port 8000"
    rows = [row for row in bench_rows(plan, bench) if row[0] not in ("--seed", "--result-filename", "--save-result")]
    sent = " ".join(["vllm bench serve --base-url http://127.0.0.1:8000", *(shlex.join(row) for row in rows)])
    version = plan.deployment["engine_version"]
    lines = [
        "#!/usr/bin/env bash",
        f"# Measures these plans of {plan.run_name}, in the order of {SERVE_FILE}, on this machine:",
        *(f"#   {each.id}" for each in plans),
        f"# Simulated as vLLM {version}; the sweep needs a vLLM that has `vllm bench sweep`.",
        *(f"# {remark}" for remark in bench.remarks),
        "set -euo pipefail",
        'cd "$(dirname "$0")"',
        "export PYTHONHASHSEED=0",
        "",
        "vllm bench sweep serve \\",
        f"  --serve-cmd {shlex.quote(serve)} \\",
        f"  --bench-cmd {shlex.quote(sent)} \\",
        f"  --serve-params {SERVE_FILE} \\",
        f"  --bench-params {BENCH_FILE} \\",
        "  --num-runs 1 --server-ready-timeout 1800 --output-dir results",
        "",
    ]
    return "\n".join(lines)


def parse_sweep(files: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Plan id -> the deployment parameters that the sweep serves it with. Raises InputError."""
    words = shlex.split(files[SCRIPT_FILE].replace("\\\n", " "), comments=True)
    if "--serve-cmd" not in words:
        raise InputError(SCRIPT_FILE, "has no --serve-cmd")
    command = words[words.index("--serve-cmd") + 1]
    ids = re.findall(r"^#   (\S+)$", files[SCRIPT_FILE], re.MULTILINE)
    found = {}
    for plan, parameters in zip(ids, json.loads(files[SERVE_FILE]), strict=True):
        given = [command]
        for name, value in parameters.items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                given.append(f"--{'' if value else 'no-'}{flag}")
            else:
                given.append(f"--{flag} {shlex.quote(str(value))}")
        found[plan] = parse_serve_command(" ".join(given))
    return found
