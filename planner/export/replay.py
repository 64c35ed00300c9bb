"""The simulated requests as load generators replay them, and what a replay leaves out of the simulation."""

from __future__ import annotations

import json
from typing import Any

from planner.export._base import SimulatedPlan
from planner.export.timed_trace import chunk_tokens, trace_lines
from sim.workload import Workload

TRACE_FILE = "requests.jsonl"
MS_PER_S = 1e3


def chunk_of(plan: SimulatedPlan) -> int:
    """Prompt tokens that one hash id of the plan's trace stands for."""
    return chunk_tokens(plan.workload, int(plan.deployment["block_size"]))


def replayed(plan: SimulatedPlan, *, milliseconds: bool) -> str:
    """The trace: a JSON line a request, its time in seconds or milliseconds.

    In a closed loop times mean nothing: in milliseconds, as aiperf wants it, they are left out, lest they be followed;
    in seconds, as guidellm wants it, they are kept, since it insists on a column of them and its streams ignore it.
    """
    lines = []
    for line in trace_lines(plan.workload, chunk_of(plan)):
        request: dict[str, Any] = json.loads(line)
        if milliseconds and plan.workload.users:
            del request["timestamp"]
        elif milliseconds:
            request["timestamp"] = round(request["timestamp"] * MS_PER_S, 6)
        lines.append(json.dumps(request, separators=(",", ":")) + "\n")
    return "".join(lines)


def replay_remarks(plan: SimulatedPlan) -> list[str]:
    """In what a replay differs from the simulation, in sentences."""
    workload = plan.workload
    remarks = []
    if workload.think_time_ps:
        remarks.append("Users of the simulation think between requests; here they send the next one at once.")
    remarks += session_remarks(workload)
    if workload.time_limit_ps:
        remarks.append(
            f"The simulation ends after {workload.time_limit_ps / 1e12:g} s; this run goes on until every request is "
            "served."
        )
    if workload.priority is not None and len(set(workload.priority.tolist())) > 1:
        remarks.append("Requests are simulated with priorities by SLO class; here all have the same one.")
    return remarks


def session_remarks(workload: Workload) -> list[str]:
    """What a replay leaves out of sessions, in sentences; empty where there are none."""
    if workload.follows is None:
        return []
    return [
        "Turns of a session wait for the answer before in the simulation; here they come at the earliest times that "
        "their users' thinking allows, or whenever there is room. Their prompts share what the prompts before had, not "
        "the answers."
    ]


def parse_replayed(text: str, *, milliseconds: bool) -> list[tuple[float | None, int, int, list[int]]]:
    """(time in s or None, prompt tokens, output tokens, hash ids) of each request of a trace."""
    requests = []
    for line in text.splitlines():
        request = json.loads(line)
        time = request.get("timestamp")
        seconds = None if time is None else time / (MS_PER_S if milliseconds else 1.0)
        requests.append((seconds, request["input_length"], request["output_length"], request["hash_ids"]))
    return requests
