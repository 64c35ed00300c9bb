"""Exported plans say what was simulated, and read back to it."""

from __future__ import annotations

import json
import math
import shlex
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.export import load_exporter, parse_serve_command
from planner.export._base import SimulatedPlan
from planner.export.timed_trace import chunk_tokens, trace_lines
from planner.export.vllm_serve import placement, ports, serve_script
from planner.goals import Constraint
from planner.parameters import OF_DISAGGREGATION, resolve, to_deployment
from planner.plan import Plan
from sim.catalog import load_gpu
from sim.errors import InputError
from sim.memory import kv_capacity
from sim.workload import Workload

CODEGEN = {
    "kind": "shared_prefix",
    "num_groups": 3,
    "num_prompts_per_group": 2,
    "system_prompt_len": 100,
    "question_len": 466,
    "output_len": 247,
    "arrival": {"process": "normalized-poisson", "rate_rps": 5},
    "num_requests": 20,
}
FIXED = {
    "kind": "lengths",
    "input": 512,
    "output": 128,
    "arrival": {"process": "normalized-poisson", "rate_rps": 2.5},
    "num_requests": 40,
}


def simulated(
    deployment: dict | None = None,
    workload: dict | None = None,
    metrics: dict | None = None,
    model: str = "meta-llama/Llama-2-70b-hf",
) -> SimulatedPlan:
    constraints = (Constraint("ttft_mean_ms", "<=", 300.0), Constraint("gpus", "<=", 8.0))
    plan = Plan(
        model=model,
        workload=workload or CODEGEN,
        deployment=resolve({"gpu": "H100-SXM-80GB", "tensor_parallel_size": 4, **(deployment or {})}),
        seed=7,
        constraints=constraints,
    )
    return SimulatedPlan("p1", 1, "run", plan, metrics or {}, "seed: 7\n")


def flag(script: str, name: str) -> str | None:
    words = shlex.split(script.replace("\\\n", " "), comments=True)
    return words[words.index(name) + 1] if name in words else None


deployments = st.fixed_dictionaries(
    {
        "gpu": st.sampled_from(["H100-SXM-80GB", "A100-SXM-80GB", "L40S", "H200"]),
        "tensor_parallel_size": st.sampled_from([1, 2, 4, 8]),
        "replicas": st.integers(1, 12),
        "max_num_seqs": st.integers(1, 4096),
        "max_num_batched_tokens": st.integers(1, 65536),
        "max_model_len": st.integers(1, 200_000),
        "gpu_memory_utilization": st.floats(0.05, 1.0),
        "block_size": st.sampled_from([8, 16, 32, 64]),
        "enable_prefix_caching": st.booleans(),
        "kv_cache_dtype": st.sampled_from(["auto", "bfloat16", "fp8", "fp8_e4m3"]),
        "quantization": st.sampled_from([None, "fp8", "awq", "gptq_marlin"]),
        "async_scheduling": st.booleans(),
        "long_prefill_token_threshold": st.integers(0, 8192),
        "num_gpu_blocks_override": st.sampled_from([None, 20_000, 200_000]),
        "engine_version": st.sampled_from(["0.15.1", "0.22.1", "0.11.0rc2"]),
    }
)


@settings(max_examples=200, deadline=None)
@given(deployments, st.sampled_from(["fcfs", "priority"]))
def test_exported_flags_read_back_to_the_simulated_parameters(values: dict, scheduling: str) -> None:
    plan = simulated({**values, "scheduling": scheduling, "preemption": scheduling})
    found = parse_serve_command(serve_script(plan))
    expected = {**plan.deployment, "max_model_len": plan.max_model_len, "model": "meta-llama/Llama-2-70b-hf"}
    assert found == {name: expected[name] for name in found}
    not_of_the_engine = {"gpu", "routing", "admission", "flow_control", "gateway", "snapshot_interval_ms"}
    not_of_the_engine |= {"prefill_replicas", *OF_DISAGGREGATION}
    assert set(found) == set(expected) - not_of_the_engine


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 20))
def test_no_two_replicas_share_a_gpu_or_an_address(size: int, replicas: int) -> None:
    plan = simulated({"tensor_parallel_size": size, "replicas": replicas})
    places = placement(plan)
    gpus = [(node, gpu) for node, local in places for gpu in local]
    assert len(set(gpus)) == size * replicas
    assert all(gpu < plan.gpus_per_node for _, gpu in gpus)
    assert len(set(ports(plan))) == replicas


def test_a_left_out_context_length_is_exported_as_the_engine_would_resolve_it() -> None:
    assert simulated().max_model_len == 4096  # the model's own
    assert simulated({"max_model_len": 1000}).max_model_len == 1000
    one = {"gpu": "L4", "tensor_parallel_size": 1}
    plan = simulated(one, model="meta-llama/Llama-3.1-8B-Instruct")  # 131,072 tokens, more than an L4 has room for
    capacity = kv_capacity(to_deployment(plan.deployment, plan.model, {"L4": load_gpu("L4")}))
    assert plan.max_model_len == capacity.max_model_len < 131_072


def test_exported_scripts_are_valid_bash() -> None:
    for deployment in ({}, {"replicas": 2}, {"replicas": 5}):
        for name, text in load_exporter("vllm").files(simulated(deployment)).items():
            if name.endswith(".sh"):
                checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
                assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    ("deployment", "parameter", "words"),
    [
        ({"scheduling": "sjf"}, "scheduling", "vLLM has fcfs and priority"),
        ({"scheduling": "fcfs", "preemption": "priority"}, "preemption", "one flag sets both"),
        ({"quantization": "int4"}, "quantization", "not a method of vLLM"),
    ],
)
def test_policies_that_vllm_does_not_have_are_refused_with_the_reason(
    deployment: dict, parameter: str, words: str
) -> None:
    with pytest.raises(InputError, match=words) as error:
        load_exporter("vllm").files(simulated(deployment))
    assert error.value.field == f"plan p1: deployment.{parameter}"


@pytest.mark.parametrize(
    "text",
    [
        "echo hello",
        "vllm serve",
        "vllm serve m --max-num-seqs",
        "vllm serve m --max-num-seqs x",
        "vllm serve m --no-such 1",
    ],
)
def test_a_broken_serve_command_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_serve_command(text)


def test_replicas_with_different_flags_are_refused() -> None:
    with pytest.raises(InputError, match="differ"):
        parse_serve_command("vllm serve m --max-num-seqs 8 &\nvllm serve m --max-num-seqs 9 &\n")


def test_host_memory_becomes_vllms_own_offloading_and_reads_back() -> None:
    offload = {"name": "tiered", "host_gib": 200}
    script = serve_script(simulated({"kv_offload": offload}))
    assert flag(script, "--kv-offloading-size") == "200"
    assert flag(script, "--kv-offloading-backend") == "native"
    assert parse_serve_command(script)["kv_offload"] == offload
    assert "offloading" not in serve_script(simulated())


@pytest.mark.parametrize(
    ("deployment", "reason"),
    [
        ({"kv_offload": {"name": "tiered", "host_gib": 10, "disk_gib": 100}}, "host memory only, not to a disk"),
        ({"kv_offload": {"name": "tiered", "peer_gib": 100}}, "host memory only, not to a peer"),
        ({"kv_offload": {"name": "tiered", "host_gib": 10}, "engine_version": "0.10.2"}, "needs vLLM 0.14"),
        ({"kv_offload": "tests.test_offload:ColdStore"}, "no counterpart"),
    ],
)
def test_tiers_that_vllm_does_not_have_are_refused(deployment: dict, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as refused:
        serve_script(simulated(deployment))
    assert "kv_offload" in str(refused.value)


def test_flags_may_be_written_with_an_equals_sign() -> None:
    assert parse_serve_command("vllm serve m --max-num-seqs=8")["max_num_seqs"] == 8


# -- bench.sh ---------------------------------------------------------------------------------------------------


def test_fixed_lengths_become_the_random_dataset() -> None:
    files = load_exporter("vllm").files(simulated(workload=FIXED))
    bench = files["bench.sh"]
    assert "requests.jsonl" not in files
    assert flag(bench, "--dataset-name") == "random"
    assert (flag(bench, "--random-input-len"), flag(bench, "--random-output-len")) == ("512", "128")
    assert (flag(bench, "--request-rate"), flag(bench, "--burstiness")) == ("2.5", "1.0")
    assert (flag(bench, "--num-prompts"), flag(bench, "--seed")) == ("40", "7")
    assert flag(bench, "--goodput") == "ttft:300"


def test_burstiness_is_the_shape_of_the_gamma_distribution_with_that_cv() -> None:
    workload = {**FIXED, "arrival": {"process": "gamma", "rate_rps": 4, "cv": 2.0}}
    shape = float(flag(load_exporter("vllm").files(simulated(workload=workload))["bench.sh"], "--burstiness") or "nan")
    assert 1 / math.sqrt(shape) == pytest.approx(2.0)


def test_a_closed_loop_becomes_a_limit_on_concurrency() -> None:
    workload = {**FIXED, "arrival": {"process": "closed", "users": 12}}
    bench = load_exporter("vllm").files(simulated(workload=workload))["bench.sh"]
    assert (flag(bench, "--request-rate"), flag(bench, "--max-concurrency")) == ("inf", "12")


@pytest.mark.parametrize(
    "workload",
    [
        CODEGEN,
        {**FIXED, "input": {"dist": "normal", "mean": 300, "sd": 90, "min": 2, "max": 900}},
        {
            **FIXED,
            "num_requests": None,
            "arrival": {"process": "poisson", "stages": [{"rate_rps": 3, "duration_s": 9}]},
        },
    ],
)
def test_what_vllm_cannot_generate_is_replayed_request_by_request(workload: dict) -> None:
    workload = {key: value for key, value in workload.items() if value is not None}
    plan = simulated(workload=workload)
    files = load_exporter("vllm").files(plan)
    assert flag(files["bench.sh"], "--dataset-name") == "timed_trace"
    assert "--self-timed" in files["bench.sh"]
    rows = [json.loads(line) for line in files["requests.jsonl"].splitlines()]
    assert [row["input_length"] for row in rows] == plan.workload.prompt_tokens.tolist()
    assert [row["output_length"] for row in rows] == plan.workload.output_tokens.tolist()
    assert [round(row["timestamp"] * 1e12) for row in rows] == pytest.approx(
        plan.workload.arrival_ps.tolist(), abs=1000
    )
    chunk = int(flag(files["bench.sh"], "--timed-trace-chunk-hash-size") or 0)
    # vLLM cuts a prompt short where the ids run out.
    assert all(len(row["hash_ids"]) * chunk >= row["input_length"] for row in rows)


def shared_tokens(workload: Workload, a: int, b: int) -> int:
    """Leading tokens that two prompts have in common, by the definition of a workload's pieces."""
    total = 0
    pairs = zip(workload.contents[workload.content[a]], workload.contents[workload.content[b]], strict=False)
    for (left, left_tokens), (right, right_tokens) in pairs:
        if left != right:
            break
        total += min(left_tokens, right_tokens)
        if left_tokens != right_tokens:
            break
    return total


piece_lists = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 90)), max_size=4)


@settings(max_examples=200, deadline=None)
@given(st.lists(piece_lists, min_size=1, max_size=5), st.sampled_from([1, 8, 16]), st.data())
def test_replayed_prompts_share_the_full_blocks_that_the_simulated_ones_share(
    contents: list, block: int, data: st.DataObject
) -> None:
    content = data.draw(st.lists(st.integers(0, len(contents) - 1), min_size=2, max_size=8))
    lengths = [sum(tokens for _, tokens in contents[c]) + data.draw(st.integers(1, 40)) for c in content]
    workload = Workload(
        name="w",
        arrival_ps=np.zeros(len(content), np.int64),
        prompt_tokens=np.array(lengths),
        output_tokens=np.ones(len(content), np.int64),
        content=np.array(content),
        contents=[tuple(pieces) for pieces in contents],
    )
    chunk = chunk_tokens(workload, block)
    ids = [json.loads(line)["hash_ids"] for line in trace_lines(workload, chunk)]
    for a in range(len(content)):
        for b in range(a):
            same = 0
            while same < min(len(ids[a]), len(ids[b])) and ids[a][same] == ids[b][same]:
                same += 1
            assert same * chunk // block == shared_tokens(workload, a, b) // block


def test_the_readme_lists_only_what_was_simulated() -> None:
    readme = load_exporter("vllm").files(simulated(metrics={"ttft_mean_ms": 88.8, "tpot_mean_ms": math.nan}))[
        "README.md"
    ]
    assert "`mean_ttft_ms` | 88.8 ms" in readme
    assert "mean_tpot_ms" not in readme


def test_an_unknown_target_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'vllm"):
        load_exporter("vlm")


def test_think_time_and_time_limits_are_said_to_differ() -> None:
    closed = {"process": "closed", "users": 3, "think_time_s": 2}
    bench = load_exporter("vllm").files(simulated(workload={**FIXED, "arrival": closed, "time_limit_s": 60}))[
        "bench.sh"
    ]
    assert "send the next one at once" in bench
    assert "ends after 60 s" in bench
