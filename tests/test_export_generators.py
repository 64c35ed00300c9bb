"""What leaves for vLLM's sweep, KServe, guidellm and aiperf reads back to what was simulated."""

from __future__ import annotations

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cli import main
from planner.export import load_exporter, parse_serve_command
from planner.export._base import SimulatedPlan
from planner.export.aiperf import parse_aiperf
from planner.export.guidellm import SCENARIO_FILE
from planner.export.kserve import SERVICE_FILE, parse_kserve
from planner.export.replay import TRACE_FILE, parse_replayed
from planner.export.vllm_sweep import BENCH_FILE, SCRIPT_FILE, SERVE_FILE, VllmSweepExporter, parse_sweep
from planner.parameters import resolve
from planner.plan import Plan
from sim.errors import InputError

SHARED = {
    "kind": "shared_prefix",
    "num_groups": 2,
    "num_prompts_per_group": 2,
    "system_prompt_len": 100,
    "question_len": 60,
    "output_len": 20,
    "arrival": {"process": "normalized-poisson", "rate_rps": 5},
    "num_requests": 12,
}
CLOSED = {"kind": "lengths", "input": 64, "output": 8, "arrival": {"process": "closed", "users": 3}, "num_requests": 9}
MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def simulated(deployment: dict | None = None, workload: dict | None = None, plan_id: str = "p1") -> SimulatedPlan:
    plan = Plan(
        model=MODEL,
        workload=workload or SHARED,
        deployment=resolve({"gpu": "H100-SXM-80GB", **(deployment or {})}),
        seed=7,
    )
    return SimulatedPlan(plan_id, 1, "My run", plan, {}, "seed: 7\n")


def expected(plan: SimulatedPlan) -> dict:
    return {**plan.deployment, "max_model_len": plan.max_model_len, "model": MODEL}


engines = st.fixed_dictionaries(
    {
        "tensor_parallel_size": st.sampled_from([1, 2, 4]),
        "max_num_seqs": st.integers(1, 512),
        "max_num_batched_tokens": st.integers(512, 16384),
        "gpu_memory_utilization": st.floats(0.7, 0.95).map(lambda share: round(share, 2)),
        "enable_prefix_caching": st.booleans(),
        "async_scheduling": st.booleans(),
        "kv_cache_dtype": st.sampled_from(["auto", "fp8"]),
        "quantization": st.sampled_from([None, "fp8"]),
        "scheduling": st.sampled_from(["fcfs"]),
        "engine_version": st.sampled_from(["0.15.1", "0.22.1"]),
    }
)


@settings(max_examples=40, deadline=None)
@given(engines)
def test_a_sweep_serves_each_plan_as_it_was_simulated(deployment: dict) -> None:
    plan = simulated(deployment)
    found = parse_sweep(load_exporter("vllm-sweep").files(plan))
    assert found == {"p1": {name: expected(plan)[name] for name in found["p1"]}}
    assert len(found["p1"]) >= 11


def test_one_sweep_measures_all_the_plans() -> None:
    plans = [simulated({"max_num_seqs": seats}, plan_id=f"p{seats}") for seats in (16, 64, 256)]
    files = VllmSweepExporter().together(plans)
    assert {plan: found["max_num_seqs"] for plan, found in parse_sweep(files).items()} == {
        "p16": 16,
        "p64": 64,
        "p256": 256,
    }
    words = shlex.split(files[SCRIPT_FILE].replace("\\\n", " "), comments=True)
    options = dict(pairwise(words))
    assert (options["--serve-params"], options["--bench-params"]) == (SERVE_FILE, BENCH_FILE)
    assert set(files) >= {SERVE_FILE, BENCH_FILE, SCRIPT_FILE, "requests.jsonl"}
    sent = shlex.split(options["--bench-cmd"])
    assert sent[:3] == ["vllm", "bench", "serve"]
    assert sent[sent.index("--num-prompts") + 1] == "12"
    assert json.loads(files[BENCH_FILE]) == [{"seed": 7}]


def test_a_sweep_does_not_pretend_to_have_replicas() -> None:
    with pytest.raises(InputError, match="one engine"):
        load_exporter("vllm-sweep").files(simulated({"replicas": 2}))


@settings(max_examples=40, deadline=None)
@given(engines, st.integers(1, 4))
def test_an_inference_service_reads_back_to_the_simulated_deployment(deployment: dict, replicas: int) -> None:
    plan = simulated({**deployment, "replicas": replicas, "routing": "random"})
    found = parse_kserve(load_exporter("kserve").files(plan)[SERVICE_FILE])
    own = {**expected(plan), "routing": {"name": "random"}}
    assert found == {name: own[name] for name in found}


def test_an_inference_service_has_its_gpus_and_never_scales() -> None:
    text = load_exporter("kserve").files(simulated({"tensor_parallel_size": 4}))[SERVICE_FILE]
    service = yaml.safe_load(text)
    predictor = service["spec"]["predictor"]
    assert predictor["minReplicas"] == predictor["maxReplicas"] == 1
    assert predictor["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", service["metadata"]["name"])


@pytest.mark.parametrize(
    ("deployment", "parameter"),
    [
        ({"replicas": 2, "routing": "round-robin"}, "routing"),
        ({"replicas": 2, "routing": "weighted"}, "routing"),
        ({"admission": "token-bucket"}, "admission"),
        ({"gateway": "llm-d"}, "gateway"),
        ({"scheduling": "sjf"}, "scheduling"),
    ],
)
def test_what_kserve_does_not_have_is_refused(deployment: dict, parameter: str) -> None:
    with pytest.raises(InputError) as error:
        load_exporter("kserve").files(simulated(deployment))
    assert error.value.field == f"plan p1: deployment.{parameter}"


def same_requests(plan: SimulatedPlan, requests: list, chunk: int) -> None:
    """The replayed requests are the simulated ones: times, lengths, and as much in common as the prompts have."""
    workload = plan.workload
    assert [prompt for _, prompt, _, _ in requests] == workload.prompt_tokens.tolist()
    assert [output for _, _, output, _ in requests] == workload.output_tokens.tolist()
    if not workload.users:
        assert np.allclose([time for time, *_ in requests], workload.arrival_ps / 1e12, atol=1e-6)
    for time, prompt, _, ids in requests:
        assert len(ids) == -(-prompt // chunk), time
    # Prompts of one group share the system prompt; a prompt that repeats shares its whole chunks.
    for a in range(len(requests)):
        for b in range(a):
            same = sum(x == y for x, y in zip(requests[a][3], requests[b][3], strict=False))
            shared = 0
            for (piece, tokens), (other, more) in zip(
                workload.contents[int(workload.content[a])], workload.contents[int(workload.content[b])], strict=False
            ):
                if piece != other:
                    break
                shared += min(tokens, more)
            assert same == shared // chunk


@pytest.mark.parametrize("workload", [SHARED, CLOSED])
def test_aiperf_replays_the_simulated_requests(workload: dict) -> None:
    plan = simulated(workload=workload)
    found = parse_aiperf(load_exporter("aiperf").files(plan))
    assert (found["model"], found["users"]) == (MODEL, plan.workload.users)
    same_requests(plan, found["requests"], found["chunk"])
    assert all(
        (time is None) == bool(found["users"]) for time, *_ in found["requests"]
    )  # no times that it would follow


@pytest.mark.parametrize("workload", [SHARED, CLOSED])
def test_guidellm_replays_the_simulated_requests(workload: dict) -> None:
    plan = simulated(workload=workload)
    files = load_exporter("guidellm").files(plan)
    spec = yaml.safe_load(files[SCENARIO_FILE])["spec"]
    (trace,) = spec["data"]
    same_requests(plan, parse_replayed(files[TRACE_FILE], milliseconds=False), trace["hash_id_block_size"])
    users = plan.workload.users
    assert spec["profile"] == (
        {"kind": "concurrent", "streams": [users]} if users else {"kind": "replay", "schedule_turn": "timestamp"}
    )
    assert trace["source"]["path"] == TRACE_FILE


def test_guidellm_itself_takes_the_scenario(tmp_path: Path) -> None:
    schemas = pytest.importorskip("guidellm.schemas.benchmark")
    for workload in (SHARED, CLOSED):
        files = load_exporter("guidellm").files(simulated(workload=workload))
        (tmp_path / SCENARIO_FILE).write_text(files[SCENARIO_FILE])
        spec = yaml.safe_load(files[SCENARIO_FILE])["spec"]
        assert schemas.BenchmarkArgs.model_validate(spec).data[0].kind == "mooncake"


@pytest.mark.parametrize("target", ["aiperf", "guidellm"])
def test_generators_come_with_the_servers_that_they_measure(target: str) -> None:
    plan = simulated({"replicas": 2, "max_num_seqs": 17})
    files = load_exporter(target).files(plan)
    found = parse_serve_command(files["serve.sh"])
    own = {**expected(plan), "preemption": "fcfs"}
    assert found == {name: own[name] for name in found}
    assert "nginx.conf" in files


def test_the_command_writes_a_sweep_over_its_folders(tmp_path: Path) -> None:
    space = {
        "name": "sweep",
        "model": MODEL,
        "workload": {"kind": "lengths", "input": 64, "output": 8, "arrival": {"process": "poisson", "rate_rps": 5}},
        "objectives": [{"minimize": "cost_per_hour"}, {"minimize": "ttft_mean_ms"}],
        "space": {"gpu": ["L4", "H100-SXM-80GB"]},
    }
    space["workload"]["num_requests"] = 20
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(space))
    run = str(tmp_path / "run")
    assert main(["search", str(tmp_path / "space.yaml"), "--out", run, "--executor", "serial", "--quiet"]) == 0
    assert main(["export", run, "--target", "vllm-sweep", "--top-k", "2"]) == 0
    out = tmp_path / "run" / "export"
    folders = sorted(path.name for path in out.iterdir() if path.is_dir())
    files = {path.name: path.read_text() for path in out.iterdir() if path.is_file()}
    assert list(parse_sweep(files)) == [name.split("-", 1)[1] for name in folders]
