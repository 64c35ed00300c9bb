"""A workload in words, from its specification as the user wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.report.names import number


def workload_words(workload: Mapping[str, Any]) -> str:
    """One line: what the requests are, how they arrive, and how many; kinds it does not know by their name."""
    what = "sessions" if workload.get("kind") == "sessions" else "requests"
    parts = [_content(workload), _arrival(workload.get("arrival") or {}, what), _end(workload)]
    return ", ".join(part for part in parts if part)


def _content(workload: Mapping[str, Any]) -> str:
    kind = workload.get("kind") or next((key for key in ("preset", "trace", "clients") if key in workload), "")
    if kind == "shared_prefix":
        prompts = int(workload.get("num_groups", 1)) * int(workload.get("num_prompts_per_group", 1))
        shared, question, output = (
            _length(workload.get(f"{name}_len")) for name in ("system_prompt", "question", "output")
        )
        return f"{number(prompts)} prompts of {shared} shared + {question} tokens, {output} out"
    if kind == "preset":
        return f"preset {workload.get('preset')}"
    if kind == "lengths":
        prefix = workload.get("prefix")
        shared = f"{_length(prefix.get('tokens'))} shared + " if isinstance(prefix, Mapping) else ""
        return f"{shared}{_length(workload.get('input'))} tokens in, {_length(workload.get('output'))} out"
    if kind == "sessions":
        first = f"{_length(workload['first_input'])}, then " if "first_input" in workload else ""
        tokens = f"{first}{_length(workload.get('input'))} tokens in, {_length(workload.get('output'))} out"
        return f"sessions of {_length(workload.get('turns'))} turns of {tokens}"
    if kind == "trace":
        return f"trace {str(workload.get('trace')).rsplit('/', 1)[-1]}"
    if kind == "clients":
        return f"{len(workload.get('clients') or [])} kinds of clients"
    return str(kind)


def _length(spec: Any) -> str:
    if not isinstance(spec, Mapping):
        return number(spec)
    mean = spec.get("mean", spec.get("value"))
    return f"about {number(mean)}" if mean is not None else str(spec.get("dist", "drawn"))


def _arrival(arrival: Mapping[str, Any], what: str) -> str:
    process = str(arrival.get("process", "poisson")) if arrival else ""
    if process == "closed":
        return f"{number(arrival.get('users'))} users"
    stages = arrival.get("stages")
    if stages:
        rates = ", ".join(number(stage.get("rate_rps")) for stage in stages)
        return f"{process} at {rates} {what}/s in turn"
    if arrival.get("rate_rps") is None:
        return process
    cv = f" (cv {number(arrival['cv'])})" if arrival.get("cv") is not None else ""
    shape = f" ({arrival['shape'].get('kind')})" if isinstance(arrival.get("shape"), Mapping) else ""
    return f"{process}{cv} at {number(arrival['rate_rps'])} {what}/s{shape}"


def _end(workload: Mapping[str, Any]) -> str:
    if workload.get("num_requests"):
        return f"{number(workload['num_requests'])} requests"
    if workload.get("num_sessions"):
        return f"{number(workload['num_sessions'])} sessions"
    if workload.get("duration_s"):
        return f"{number(workload['duration_s'])} s"
    return ""
