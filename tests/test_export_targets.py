"""What leaves for llm-d and inference-perf reads back to what was simulated."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.export import load_exporter
from planner.export._base import SimulatedPlan
from planner.export.inference_perf import CONFIG_FILE, parse_inference_perf
from planner.export.llm_d import EPP_FILE, OBJECTIVES_FILE, VALUES_FILE, endpoint_picker_config, parse_llm_d
from planner.parameters import resolve
from planner.plan import Plan
from sim.errors import InputError
from sim.workload import build_workload, parse_workload

CODEGEN = {
    "kind": "shared_prefix",
    "num_groups": 10,
    "num_prompts_per_group": 10,
    "system_prompt_len": 100,
    "question_len": 466,
    "output_len": 247,
    "arrival": {"process": "normalized-poisson", "rate_rps": 5},
    "num_requests": 50,
}
SHEDDABLE = {
    "kind": "clients",
    "arrival": {"process": "poisson", "rate_rps": 5},
    "num_requests": 40,
    "clients": [
        {"share": 0.5, "kind": "lengths", "slo_class": "critical", "input": 64, "output": 8},
        {"share": 0.5, "kind": "lengths", "slo_class": "sheddable", "input": 64, "output": 8},
    ],
}


def simulated(deployment: dict | None = None, workload: dict | None = None) -> SimulatedPlan:
    plan = Plan(
        model="meta-llama/Llama-2-70b-hf",
        workload=workload or CODEGEN,
        deployment=resolve(
            {"gpu": "H100-SXM-80GB", "tensor_parallel_size": 4, "gateway": "llm-d", **(deployment or {})}
        ),
    )
    return SimulatedPlan("p1", 1, "run", plan, {}, "seed: 0\n")


weights = st.fixed_dictionaries({name: st.floats(0.1, 20) for name in ("queue", "kv", "prefix")})
routing = st.one_of(
    st.just({"name": "least-loaded"}), st.just({"name": "random"}), weights.map(lambda w: {"name": "weighted", **w})
)
admission = st.one_of(
    st.just({"name": "always-admit"}),
    st.fixed_dictionaries(
        {
            "name": st.just("probabilistic"),
            "queue_depth_threshold": st.integers(1, 50).map(float),
            "kv_cache_util_threshold": st.floats(0.1, 1),
            "power": st.floats(0.5, 9),
            "k": st.floats(1, 1000),
        }
    ),
)


@settings(max_examples=100, deadline=None)
@given(routing, admission, st.integers(1, 6), st.integers(1, 512), st.sampled_from(["0.15.1", "0.22.1"]))
def test_llm_d_files_read_back_to_the_simulated_deployment(
    routing: dict, admission: dict, replicas: int, seats: int, version: str
) -> None:
    given = {"routing": routing, "admission": admission, "replicas": replicas, "max_num_seqs": seats}
    plan = simulated({**given, "engine_version": version})
    found = parse_llm_d(load_exporter("llm-d").files(plan))
    expected = {**plan.deployment, "max_model_len": plan.max_model_len, "model": "meta-llama/Llama-2-70b-hf", **given}
    assert found == {name: expected[name] for name in found}


def test_weights_left_out_are_the_router_s_defaults() -> None:
    (profile,) = endpoint_picker_config(simulated({"replicas": 2, "routing": "weighted"}))["schedulingProfiles"]
    scorers = {entry["pluginRef"]: entry.get("weight") for entry in profile["plugins"]}
    assert scorers == {
        "queue-scorer": 2.0, "kv-cache-utilization-scorer": 2.0, "prefix-cache-scorer": 3.0, "max-score-picker": None
    }  # fmt: skip


def test_a_scorer_of_weight_zero_is_left_out() -> None:
    plan = simulated({"replicas": 2, "routing": {"name": "weighted", "prefix": 0.0}})
    text = load_exporter("llm-d").files(plan)[EPP_FILE]
    assert "prefix-cache" not in text
    assert parse_llm_d(load_exporter("llm-d").files(plan))["routing"]["prefix"] == 0.0


def test_every_plugin_that_is_referred_to_is_declared() -> None:
    for deployment in ({"routing": "weighted"}, {"routing": "least-loaded"}, {"admission": "probabilistic"}):
        config = endpoint_picker_config(simulated({"replicas": 2, "routing": "random", **deployment}))
        declared = {plugin["type"] for plugin in config["plugins"]}
        (profile,) = config["schedulingProfiles"]
        used = {entry["pluginRef"] for entry in profile["plugins"]}
        detector = config.get("flowControl", {}).get("saturationDetector", {}).get("pluginRef")
        assert used | ({detector} if detector else set()) <= declared


def test_the_saturation_detector_does_not_shed_before_the_probabilistic_admitter() -> None:
    config = endpoint_picker_config(simulated({"admission": "probabilistic"}))
    (detector,) = (plugin for plugin in config["plugins"] if plugin["type"] == "utilization-detector")
    assert detector["parameters"]["queueDepthThreshold"] > 1e8


def test_classes_that_may_be_shed_get_an_objective_of_negative_priority() -> None:
    files = load_exporter("llm-d").files(simulated({"admission": "probabilistic"}, SHEDDABLE))
    (objective,) = yaml.safe_load_all(files[OBJECTIVES_FILE])
    assert (objective["metadata"]["name"], objective["spec"]["priority"]) == ("sheddable", -2)


def test_scorers_with_their_parameters_read_back() -> None:
    routing = {
        "name": "weighted",
        "queue": 0.0,
        "kv": 1.0,
        "prefix": 2.0,
        "scorers": {
            "prefix-cache-scorer": {"weight": 2.0, "match_length_weight": 0.5, "match_length_scale_tokens": 4096},
            "token-load-scorer": {"weight": 1.5, "queue_threshold_tokens": 100000},
            "active-request-scorer": {"weight": 1.0, "idle_threshold": 2, "max_busy_score": 0.5},
        },
        "picker": "weighted-random-picker",
    }
    plan = simulated({"replicas": 2, "routing": routing, "admission": "reject-negative"}, SHEDDABLE)
    files = load_exporter("llm-d").files(plan)
    found = parse_llm_d(files)
    assert (found["routing"], found["admission"]) == (routing, {"name": "reject-negative"})
    plugins = {plugin["type"]: plugin.get("parameters") for plugin in yaml.safe_load(files[EPP_FILE])["plugins"]}
    assert plugins["token-load-scorer"] == {"queueThresholdTokens": 100000}
    assert {"inflight-load-producer", "approx-prefix-cache-producer"} <= set(plugins)
    assert "queue-scorer" not in plugins


@settings(max_examples=60, deadline=None)
@given(
    routing,
    routing,
    st.sampled_from(["always", {"name": "prefix-based", "non_cached_tokens": 512}]),
    st.integers(1, 4),
    st.sampled_from([2, 4, 8]),
    st.integers(1, 64),
)
def test_llm_d_files_of_two_pools_read_back_to_the_simulated_deployment(
    routing: dict, prefill_routing: dict, decider: object, replicas: int, size: int, seats: int
) -> None:
    given = {"routing": routing, "prefill_routing": prefill_routing, "replicas": 2, "prefill_replicas": replicas}
    pool = {"prefill_tensor_parallel_size": size, "prefill_max_num_seqs": seats, "prefill_max_num_batched_tokens": 8192}
    plan = simulated({**given, **pool, "disaggregation": decider})
    found = parse_llm_d(load_exporter("llm-d").files(plan))
    expected = {**plan.deployment, **given, "max_model_len": plan.max_model_len, "model": "meta-llama/Llama-2-70b-hf"}
    expected |= {"admission": {"name": "always-admit"}}
    expected["disaggregation"] = {"name": decider} if isinstance(decider, str) else decider
    if replicas == 1 and prefill_routing["name"] == "random":
        expected["prefill_routing"] = {"name": "random"}
    assert found == {name: expected[name] for name in found}
    assert {"prefill_replicas", "disaggregation", "prefill_routing", *pool} <= set(found)


def test_a_router_between_pools_selects_decode_and_prefill_replicas_by_llm_d_s_plugins() -> None:
    decider = {"name": "prefix-based", "non_cached_tokens": 256}
    plan = simulated({"replicas": 2, "routing": "weighted", "prefill_replicas": 2, "disaggregation": decider})
    files = load_exporter("llm-d").files(plan)
    config, values = (yaml.safe_load(files[name]) for name in (EPP_FILE, VALUES_FILE))
    plugins = {plugin["type"]: plugin.get("parameters") for plugin in config["plugins"]}
    assert plugins["disagg-profile-handler"] == {"deciders": {"prefill": "prefix-based-pd-decider"}}
    assert plugins["prefix-based-pd-decider"] == {"nonCachedTokens": 256}
    assert "approx-prefix-cache-producer" in plugins
    first = {profile["name"]: profile["plugins"][0]["pluginRef"] for profile in config["schedulingProfiles"]}
    assert first == {"prefill": "prefill-filter", "decode": "decode-filter"}
    declared = {plugin.get("name", plugin["type"]) for plugin in config["plugins"]}
    assert {entry["pluginRef"] for profile in config["schedulingProfiles"] for entry in profile["plugins"]} <= declared
    assert values["routing"]["proxy"]["connector"] == "nixlv2"
    for pool in ("prefill", "decode"):
        (container,) = values[pool]["containers"]
        assert "NixlConnector" in container["args"][container["args"].index("--kv-transfer-config") + 1]
    assert "2 x TP4 prefill + 2 x TP4 decode" in files["README.md"]


@pytest.mark.parametrize("target", ["vllm", "vllm-sweep", "kserve", "inference-perf", "guidellm", "aiperf"])
def test_what_routes_between_no_pools_refuses_a_plan_that_has_two(target: str) -> None:
    with pytest.raises(InputError, match=r"prefill_replicas: .*the target llm-d does"):
        load_exporter(target).files(simulated({"gateway": "none", "prefill_replicas": 1}))


@pytest.mark.parametrize(
    ("deployment", "parameter"),
    [
        ({"replicas": 2, "routing": "round-robin"}, "routing"),
        ({"prefill_replicas": 2, "prefill_routing": "round-robin"}, "prefill_routing"),
        (
            {
                "prefill_replicas": 1,
                "disaggregation": {"name": "prefix-based", "non_cached_tokens": 1, "prefix_index": "precise"},
            },
            "disaggregation.prefix_index",
        ),
        ({"flow_control": "static"}, "flow_control"),
        ({"replicas": 2, "routing": {"name": "weighted", "prefix_index": "precise"}}, "routing.prefix_index"),
        (
            {"replicas": 2, "routing": {"name": "weighted", "scorers": {"session-affinity-scorer": 1}}},
            "routing.scorers.session-affinity-scorer",
        ),
        ({"admission": "token-bucket"}, "admission"),
        ({"replicas": 2, "routing": "weighted", "snapshot_interval_ms": 0}, "snapshot_interval_ms"),
        ({"scheduling": "sjf"}, "scheduling"),
    ],
)
def test_what_llm_d_does_not_have_is_refused(deployment: dict, parameter: str) -> None:
    with pytest.raises(InputError) as error:
        load_exporter("llm-d").files(simulated(deployment))
    assert error.value.field == f"plan p1: deployment.{parameter}"


def test_another_scrape_interval_is_said_to_need_its_flag() -> None:
    files = load_exporter("llm-d").files(simulated({"replicas": 2, "routing": "weighted", "snapshot_interval_ms": 500}))
    assert "--refresh-metrics-interval=500ms" in files["README.md"]


@settings(max_examples=50, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "num_groups": st.integers(1, 5),
            "num_prompts_per_group": st.integers(1, 5),
            "system_prompt_len": st.integers(1, 200),
            "question_len": st.integers(1, 200),
            "output_len": st.integers(1, 50),
        }
    ),
    st.sampled_from(["normalized-poisson", "poisson"]),
    st.lists(
        st.fixed_dictionaries({"rate_rps": st.integers(1, 9), "duration_s": st.integers(1, 9)}), min_size=1, max_size=3
    ),
)
def test_inference_perf_files_read_back_to_the_same_requests(shape: dict, process: str, stages: list) -> None:
    workload = {"kind": "shared_prefix", **shape, "arrival": {"process": process, "stages": stages}}
    again = parse_inference_perf(load_exporter("inference-perf").files(simulated(workload=workload))[CONFIG_FILE])
    assert parse_workload(again).to_dict() == parse_workload(workload).to_dict()


def test_a_number_of_requests_becomes_a_stage_that_has_them() -> None:
    text = load_exporter("inference-perf").files(simulated())[CONFIG_FILE]
    again = build_workload(parse_workload(parse_inference_perf(text)), 0)
    assert len(again) == 50
    assert (again.arrival_ps == simulated().workload.arrival_ps).all()


def test_workloads_that_inference_perf_cannot_make_are_refused() -> None:
    for workload in (SHEDDABLE, {**CODEGEN, "arrival": {"process": "gamma", "rate_rps": 5, "cv": 2}}):
        with pytest.raises(InputError, match=r"no .*counterpart in inference-perf"):
            load_exporter("inference-perf").files(simulated(workload=workload))
