"""Target `guidellm`: a scenario that replays the simulated requests, beside the commands that serve the plan."""

from __future__ import annotations

from typing import Any

import yaml

from planner.export._base import Exporter, SimulatedPlan
from planner.export.replay import TRACE_FILE, chunk_of, replay_remarks, replayed
from planner.export.vllm import with_servers
from planner.export.vllm_serve import FIRST_PORT

SCENARIO_FILE = "guidellm.yaml"


class GuidellmExporter(Exporter):
    """guidellm 0.8: `guidellm.yaml`, `requests.jsonl`, `serve.sh`, `plan.yaml`, `README.md`."""

    name = "guidellm"

    def files(self, plan: SimulatedPlan) -> dict[str, str]:
        remarks = "".join(f"# {remark}\n" for remark in replay_remarks(plan))
        own = {
            SCENARIO_FILE: remarks + yaml.safe_dump(guidellm_scenario(plan), sort_keys=False, width=120),
            TRACE_FILE: replayed(plan, milliseconds=False),
        }
        steps = [
            f"`guidellm run --config {SCENARIO_FILE}` sends the requests and writes `benchmarks.json`.",
            "`planner validate RESULTS benchmarks.json` compares. By eye, take `inter_token_latency_ms` for TPOT: "
            "`time_per_output_token_ms` counts the first token in.",
        ]
        return with_servers(plan, own, steps)


def guidellm_scenario(plan: SimulatedPlan) -> dict[str, Any]:
    """The scenario: at the simulated times, or with as many streams as there are users."""
    users = plan.workload.users
    model = plan.served_model
    profile: dict[str, Any] = (
        {"kind": "concurrent", "streams": [users]} if users else {"kind": "replay", "schedule_turn": "timestamp"}
    )
    trace = {
        "kind": "mooncake",
        "source": {"kind": "json_file", "path": TRACE_FILE},
        "hash_id_block_size": chunk_of(plan),
    }
    return {
        "spec": {
            "backend": {
                "kind": "openai_http",
                "target": f"http://127.0.0.1:{FIRST_PORT}",
                "model": model,
                "request_format": "/v1/completions",
            },
            "profile": profile,
            "constraints": [{"kind": "max_requests", "count": len(plan.workload)}],
            "tokenizer": {"kind": "huggingface_auto", "model": model},
            "data": [trace],
            "seed": {"kind": "static", "value": plan.plan.seed},
            "outputs": [{"kind": "json", "path": "benchmarks.json"}],
        }
    }
