"""`vllm serve` command lines: written from a deployment, and read back."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any

from planner.export._base import SimulatedPlan
from sim.errors import InputError
from sim.memory import engine_release

FIRST_PORT = 8000

# Deployment parameter -> vLLM's flag. Every one is written, also where it has vLLM's default: defaults differ
# between versions of vLLM and kinds of GPU.
_VALUES = {
    "tensor_parallel_size": ("--tensor-parallel-size", int),
    "max_num_seqs": ("--max-num-seqs", int),
    "max_num_batched_tokens": ("--max-num-batched-tokens", int),
    "max_model_len": ("--max-model-len", int),
    "gpu_memory_utilization": ("--gpu-memory-utilization", float),
    "block_size": ("--block-size", int),
    "kv_cache_dtype": ("--kv-cache-dtype", str),
    "quantization": ("--quantization", str),
    "long_prefill_token_threshold": ("--long-prefill-token-threshold", int),
    "num_gpu_blocks_override": ("--num-gpu-blocks-override", int),
}
_SWITCHES = {"enable_prefix_caching": "enable-prefix-caching", "async_scheduling": "async-scheduling"}
_SCHEDULING = "--scheduling-policy"
_OFFLOAD_SIZE, _OFFLOAD_BACKEND = "--kv-offloading-size", "--kv-offloading-backend"
_OFFLOADS_SINCE = (0, 14)  # that version's CacheConfig has both

# Names that the simulator understands and vLLM's --quantization does not have.
_NOT_METHODS = frozenset({"int8", "int4", "nvfp4"})


def scheduling_policy(plan: SimulatedPlan) -> str:
    """vLLM's ``--scheduling-policy``, which decides both who is scheduled and who is preempted. Raises InputError."""
    scheduling, preemption = plan.policy("scheduling"), plan.policy("preemption")
    if scheduling not in ("fcfs", "priority"):
        raise plan.refuse("scheduling", f"{scheduling} exists in the simulator only; vLLM has fcfs and priority")
    if preemption != scheduling:
        reason = f"{preemption} cannot be combined with scheduling {scheduling} in vLLM: one flag sets both"
        raise plan.refuse("preemption", reason)
    return scheduling


def flags(plan: SimulatedPlan) -> list[list[str]]:
    """The flags of one replica, one list a flag with its value. Raises InputError where vLLM has no counterpart."""
    deployment = plan.deployment
    method = deployment["quantization"]
    if method in _NOT_METHODS:
        raise plan.refuse("quantization", f"{method} is not a method of vLLM; serve a checkpoint quantised that way")
    values = {**deployment, "max_model_len": plan.max_model_len}
    written = [[flag, str(values[name])] for name, (flag, _) in _VALUES.items() if values[name] is not None]
    written += [[f"--{'' if deployment[name] else 'no-'}{flag}"] for name, flag in _SWITCHES.items()]
    return [*written, *_offloading(plan), [_SCHEDULING, scheduling_policy(plan)]]


def _offloading(plan: SimulatedPlan) -> list[list[str]]:
    """vLLM's own offloading to host memory, whose size counts all GPUs of a replica. Raises InputError for others."""
    name, parameters = plan.policy("kv_offload"), plan.policy_parameters("kv_offload")
    if name == "none":
        return []
    if name != "tiered":
        raise plan.refuse("kv_offload", f"{name} has no counterpart in vLLM")
    for tier in ("peer", "disk"):
        if parameters.get(f"{tier}_gib"):
            raise plan.refuse("kv_offload", f"vLLM itself offloads to host memory only, not to a {tier}")
    if engine_release(plan.deployment["engine_version"]) < _OFFLOADS_SINCE:
        raise plan.refuse("kv_offload", "needs vLLM 0.14 or later, which has --kv-offloading-size")
    size = parameters.get("host_gib", 0)
    return [[_OFFLOAD_SIZE, f"{size:g}"], [_OFFLOAD_BACKEND, "native"]] if size else []


def ports(plan: SimulatedPlan) -> list[int]:
    """A port a replica: the first one where there is one replica, those after it where a router takes the first."""
    replicas = int(plan.deployment["replicas"])
    return [FIRST_PORT] if replicas == 1 else [FIRST_PORT + 1 + index for index in range(replicas)]


def placement(plan: SimulatedPlan) -> list[tuple[int, list[int]]]:
    """Of each replica: the machine, and its GPUs there. Raises InputError where a replica does not fit a machine."""
    size, per_node = int(plan.deployment["tensor_parallel_size"]), plan.gpus_per_node
    if size > per_node:
        reason = f"{size} GPUs a replica span machines of {per_node}; that needs a Ray cluster, which is not exported"
        raise plan.refuse("tensor_parallel_size", reason)
    a_node = per_node // size
    places = []
    for replica in range(int(plan.deployment["replicas"])):
        node, slot = divmod(replica, a_node)
        places.append((node, list(range(slot * size, (slot + 1) * size))))
    return places


def serve_script(plan: SimulatedPlan) -> str:
    """The script that starts every replica, with its GPUs and port. Raises InputError."""
    places, arguments = placement(plan), flags(plan)
    nodes = 1 + max(node for node, _ in places)
    deployment = plan.deployment
    lines = [
        "#!/usr/bin/env bash",
        f"# Plan {plan.id} of {plan.run_name}: {deployment['replicas']} x TP={deployment['tensor_parallel_size']} "
        f"on {deployment['gpu']}.",
        "# Every simulated parameter is written out, defaults included.",
        *([f"# Usage: serve.sh NODE, with NODE from 0 to {nodes - 1}: one run a machine."] if nodes > 1 else []),
        "set -euo pipefail",
        f"VLLM_VERSION={shlex.quote(str(deployment['engine_version']))}  # as simulated",
        'installed="$(vllm --version 2>/dev/null | tail -n 1 || true)"',
        '[ "$installed" = "$VLLM_VERSION" ] || echo "simulated: vLLM $VLLM_VERSION; installed: ${installed:-none}" >&2',
        "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT",
        *(['NODE="${1:?which machine: a number from 0}"'] if nodes > 1 else []),
        "",
    ]
    for (node, gpus), port in zip(places, ports(plan), strict=True):
        lines += [f'[ "$NODE" != {node} ] ||'] if nodes > 1 else []
        lines += [_command(plan, gpus, port, arguments), ""]
    return "\n".join([*lines, "wait", ""])


def _command(plan: SimulatedPlan, gpus: Iterable[int], port: int, arguments: list[list[str]]) -> str:
    head = f"CUDA_VISIBLE_DEVICES={','.join(map(str, gpus))} vllm serve {shlex.quote(plan.served_model)}"
    rows = [["--port", str(port)], *arguments]
    return " \\\n".join([head, *("  " + shlex.join(row) for row in rows)]) + " &"


def parse_serve_command(text: str) -> dict[str, Any]:
    """The deployment parameters in `text`: ``vllm serve`` command lines, one a replica, or a script of them.

    Returns `model`, `replicas` (the number of commands) and every parameter that has a flag; `preemption` follows from
    ``--scheduling-policy``, and `engine_version` is given where the text sets VLLM_VERSION. Raises InputError if
    there is no command, if replicas differ, or if a flag is unknown or wrong.
    """
    commands = [_parse(words) for words in _commands(text)]
    if not commands:
        raise InputError("", "there is no `vllm serve` command")
    if any(command != commands[0] for command in commands[1:]):
        raise InputError("", "the replicas differ in their flags")
    found = {**commands[0], "replicas": len(commands)}
    version = re.search(r"^VLLM_VERSION=(\S+)", text, re.MULTILINE)
    return {**found, "engine_version": shlex.split(version[1])[0]} if version else found


def _commands(text: str) -> list[list[str]]:
    """The words behind ``vllm serve`` of every command, continuation lines joined."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("#") or "vllm serve" not in line:
            continue
        words = shlex.split(line, comments=True)
        for index in range(len(words) - 1):
            if words[index : index + 2] == ["vllm", "serve"]:
                rest = words[index + 2 :]
                found.append(rest[: rest.index("&")] if "&" in rest else rest)
    return found


def _size(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(_OFFLOAD_SIZE, f"must be a number of GiB, got {value!r}") from None


def _parse(words: list[str]) -> dict[str, Any]:
    if not words or words[0].startswith("--"):
        raise InputError("", "`vllm serve` names no model")
    values: dict[str, Any] = {"model": words[0], "quantization": None, "num_gpu_blocks_override": None}
    values["kv_offload"] = "none"
    by_flag = {flag: (name, kind) for name, (flag, kind) in _VALUES.items()}
    switches = {f"--{prefix}{flag}": (name, not prefix) for name, flag in _SWITCHES.items() for prefix in ("", "no-")}
    rest = [part for word in words[1:] for part in (word.split("=", 1) if word.startswith("--") else [word])]
    while rest:
        flag = rest.pop(0)
        if flag in switches:
            name, on = switches[flag]
            values[name] = on
            continue
        if not rest:
            raise InputError(flag, "needs a value")
        value = rest.pop(0)
        if flag in by_flag:
            name, kind = by_flag[flag]
            try:
                values[name] = kind(value)
            except ValueError:
                raise InputError(flag, f"must be {kind.__name__}, got {value!r}") from None
        elif flag == _OFFLOAD_SIZE:
            values["kv_offload"] = {"name": "tiered", "host_gib": _size(value)}
        elif flag == _OFFLOAD_BACKEND:
            if value != "native":
                raise InputError(flag, f"must be native, the one that a plan sets, got {value!r}")
        elif flag == _SCHEDULING:
            values["scheduling"] = values["preemption"] = value
        elif flag not in ("--port", "--host", "--served-model-name"):
            raise InputError(flag, "is not a flag that a plan sets")
    return values
