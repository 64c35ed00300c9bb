"""Target `aiperf`: a replay of the simulated requests, beside the commands that serve the plan."""

from __future__ import annotations

import re
import shlex
from typing import Any

from planner.export._base import Exporter, SimulatedPlan
from planner.export.replay import TRACE_FILE, chunk_of, parse_replayed, replay_remarks, replayed
from planner.export.vllm import router, with_servers
from sim.errors import InputError


class AiperfExporter(Exporter):
    """aiperf 0.13: `aiperf.sh`, `requests.jsonl`, `serve.sh`, `plan.yaml`, `README.md`."""

    name = "aiperf"

    def files(self, plan: SimulatedPlan) -> dict[str, str]:
        own = {
            "aiperf.sh": aiperf_script(plan),
            TRACE_FILE: replayed(plan, milliseconds=True),
        }
        address = " ADDRESS_OF_THE_GATEWAY" if router(plan) == "llm-d" else ""
        steps = [
            f"`./aiperf.sh{address}` sends the requests and writes `artifacts/`.",
            "`planner validate RESULTS artifacts` compares; aiperf's inter-token latency is the TPOT of a request.",
        ]
        return with_servers(plan, own, steps)


def aiperf_script(plan: SimulatedPlan) -> str:
    """The script: a fixed schedule at the simulated times, or as many requests in flight as there are users."""
    users = plan.workload.users
    load = (
        [["--no-fixed-schedule"], ["--concurrency", str(users)], ["--request-count", str(len(plan.workload))]]
        if users
        else [["--fixed-schedule"]]
    )
    rows = [
        ["--model", plan.served_model],
        ["--endpoint-type", "completions"],
        ["--streaming"],
        ["--input-file", TRACE_FILE],
        ["--custom-dataset-type", "mooncake_trace"],
        ["--isl-block-size", str(chunk_of(plan))],
        *load,
        ["--extra-inputs", "ignore_eos:true"],
        ["--random-seed", str(plan.plan.seed)],
        ["--artifact-dir", "artifacts"],
    ]
    command = ["aiperf profile", '  --url "$BASE_URL"', *("  " + shlex.join(row) for row in rows)]
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            f"# Measures plan {plan.id} of {plan.run_name} with the requests that it was simulated with.",
            *(f"# {remark}" for remark in replay_remarks(plan)),
            "set -euo pipefail",
            'cd "$(dirname "$0")"',
            'BASE_URL="${1:-http://127.0.0.1:8000}"',
            "",
            " \\\n".join(command),
            "",
        ]
    )


def parse_aiperf(files: dict[str, str]) -> dict[str, Any]:
    """`model`, `users` (0: at given times), `chunk` and `requests` (as `parse_replayed`) in exported files."""
    script = files["aiperf.sh"].replace("\\\n", " ")
    found = re.search(r"^aiperf profile (.*)$", script, re.MULTILINE)
    if found is None:
        raise InputError("aiperf.sh", "there is no `aiperf profile` command")
    words = shlex.split(found[1])
    values = {word: words[index + 1] for index, word in enumerate(words[:-1]) if word.startswith("--")}
    return {
        "model": values["--model"],
        "users": int(values.get("--concurrency", 0)),
        "chunk": int(values["--isl-block-size"]),
        "requests": parse_replayed(files[values["--input-file"]], milliseconds=True),
    }
