"""The `vllm bench serve` command that sends a plan's workload, and what it cannot do the same."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.export._base import SimulatedPlan
from planner.export.replay import session_remarks
from planner.export.timed_trace import chunk_tokens, trace_lines
from planner.goals import request_slo
from sim.workload import LengthsSpec, SharedPrefixSpec
from sim.workload.distributions import Constant

TRACE_FILE = "requests.jsonl"
RESULT_FILE = "bench.json"
PERCENTILES = "50,90,95,99"
_GOODPUT_NAMES = {"ttft_ms": "ttft", "tpot_ms": "tpot", "e2e_ms": "e2el"}


@dataclass(slots=True)
class Bench:
    """How to send a workload: the flags of its dataset and load, files they need, and remarks for the reader."""

    flags: list[list[str]]
    files: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def bench_for(plan: SimulatedPlan) -> Bench:
    """The dataset and load of `plan`: vLLM's own generators where they make the same requests, else a replay."""
    bench = _generated(plan) or _replayed(plan)
    workload = plan.workload
    if workload.think_time_ps:
        bench.remarks.append("Users of the simulation think between requests; here they send the next one at once.")
    bench.remarks += session_remarks(workload)
    if workload.time_limit_ps:
        seconds = workload.time_limit_ps / 1e12
        bench.remarks.append(
            f"The simulation ends after {seconds:g} s; this run goes on until every request is served."
        )
    if workload.priority is not None and len(set(workload.priority.tolist())) > 1:
        bench.remarks.append("Requests are simulated with priorities by SLO class; here all have the same one.")
    return bench


def _generated(plan: SimulatedPlan) -> Bench | None:
    """The `random` dataset, where lengths are fixed and at most one prefix is shared, and the arrivals are vLLM's."""
    spec = plan.workload_spec
    if not isinstance(spec, LengthsSpec) or spec.arrival is None or spec.arrival.stages or spec.arrival.shape:
        return None
    prefix = 0
    if spec.prefix is not None:
        if spec.prefix.groups != 1 or not isinstance(spec.prefix.tokens, Constant):
            return None
        prefix = spec.prefix.tokens.value
    if not isinstance(spec.input, Constant) or not isinstance(spec.output, Constant):
        return None
    load = _load(plan)
    if load is None:
        return None
    flags, remarks = load
    dataset = [
        ["--dataset-name", "random"],
        ["--random-input-len", str(spec.input.value)],
        ["--random-output-len", str(spec.output.value)],
        ["--random-prefix-len", str(prefix)],
        ["--random-range-ratio", "0.0"],
    ]
    return Bench([*dataset, *flags], remarks=remarks)


def _load(plan: SimulatedPlan) -> tuple[list[list[str]], list[str]] | None:
    """Flags and remarks of an arrival process that vLLM generates itself; None where it has no such process.

    Without a ramp, vLLM rescales its gaps so that the requests span num-prompts / rate exactly, which is what
    `normalized-poisson` is.
    """
    arrival = plan.workload_spec.arrival
    assert arrival is not None
    if arrival.process == "closed":
        return [["--request-rate", "inf"], ["--max-concurrency", str(arrival.users)]], []
    if arrival.process == "weibull" or arrival.rate_rps is None:
        return None
    shape = {"gamma": 1 / arrival.cv**2 if arrival.cv else 1.0, "constant": float("inf")}.get(arrival.process, 1.0)
    flags = [["--request-rate", repr(float(arrival.rate_rps))], ["--burstiness", repr(shape)]]
    if arrival.process in ("normalized-poisson", "constant"):
        return flags, []
    return flags, ["vLLM rescales the gaps so that the requests span num-prompts / rate; the simulation does not."]


def _replayed(plan: SimulatedPlan) -> Bench:
    """The simulated requests themselves, from a file: the same lengths, shared prefixes and times."""
    workload = plan.workload
    chunk = chunk_tokens(workload, int(plan.deployment["block_size"]))
    flags = [
        ["--dataset-name", "timed_trace"],
        ["--dataset-path", TRACE_FILE],
        ["--timed-trace-chunk-hash-size", str(chunk)],
        ["--timed-trace-sec-multiplier", "1"],
    ]
    if workload.users:
        flags += [["--request-rate", "inf"], ["--max-concurrency", str(workload.users)]]
    else:
        flags += [["--self-timed"]]
    remarks = [f"Replays the simulated requests in {TRACE_FILE}: lengths, shared prefixes and times are the same."]
    remarks += ["Needs a vLLM client whose `vllm bench serve` has the dataset timed_trace (vLLM PR 39795, 2026)."]
    remarks += _without_timed_trace(plan)
    return Bench(flags, {TRACE_FILE: "".join(trace_lines(workload, chunk))}, remarks)


def _without_timed_trace(plan: SimulatedPlan) -> list[str]:
    spec = plan.workload_spec
    if not isinstance(spec, SharedPrefixSpec):
        return []
    lengths = (spec.system_prompt_len, spec.question_len, spec.output_len)
    if not all(isinstance(length, Constant) for length in lengths):
        return []
    system, question, output = (length.value for length in lengths if isinstance(length, Constant))
    return [
        "Without it, the nearest is: --dataset-name prefix_repetition"
        f" --prefix-repetition-prefix-len {system} --prefix-repetition-suffix-len {question}"
        f" --prefix-repetition-num-prefixes {spec.num_groups} --prefix-repetition-output-len {output}.",
        "That differs: its suffixes are new for each request, where the simulated prompts repeat and are cached"
        " after their first use.",
    ]


def goodput(plan: SimulatedPlan) -> list[str]:
    """The flag that has vLLM count the requests within the SLO; empty where the SLO has no limit a request."""
    limits: Mapping[str, float] = request_slo(plan.plan.constraints)
    pairs = [f"{_GOODPUT_NAMES[name]}:{limit:g}" for name, limit in limits.items() if name in _GOODPUT_NAMES]
    return ["--goodput", *pairs] if pairs else []


def bench_rows(plan: SimulatedPlan, bench: Bench) -> list[list[str]]:
    """The flags of the one ``vllm bench serve`` that measures the plan, the server's address left out."""
    return [
        ["--backend", "openai"],
        ["--endpoint", "/v1/completions"],
        ["--model", plan.served_model],
        *bench.flags,
        ["--num-prompts", str(len(plan.workload))],
        ["--percentile-metrics", "ttft,tpot,itl,e2el"],
        ["--metric-percentiles", PERCENTILES],
        *([goodput(plan)] if goodput(plan) else []),
        ["--ignore-eos"],
        ["--seed", str(plan.plan.seed)],
        ["--save-result"],
        ["--save-detailed"],
        ["--result-filename", RESULT_FILE],
    ]


def bench_script(plan: SimulatedPlan, bench: Bench, remarks: list[str]) -> str:
    """The script that measures the served plan, one ``vllm bench serve``."""
    rows = bench_rows(plan, bench)
    command = [
        "PYTHONHASHSEED=0 vllm bench serve",
        '  --base-url "$BASE_URL"',
        *("  " + shlex.join(row) for row in rows),
    ]
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            f"# Measures plan {plan.id} of {plan.run_name} under the workload it was simulated with.",
            *(f"# {remark}" for remark in (*remarks, *bench.remarks)),
            "set -euo pipefail",
            'cd "$(dirname "$0")"',
            'BASE_URL="${1:-http://127.0.0.1:8000}"',
            "",
            " \\\n".join(command),
            "",
        ]
    )
