"""Spaces, plans and the parameters in them: what is read, and what is refused with the field's name."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.documents import apply_overrides, load_document, parse_yaml
from planner.evaluate import make_evaluator, plan_of
from planner.goals import Constraint, judge, request_slo
from planner.parameters import canonical, gpu_count, resolve
from planner.plan import dump_plan, load_plan
from planner.space import Space, load_space, parse_space
from sim.catalog import load_model
from sim.errors import InputError

SPACES = sorted((Path(__file__).parent.parent / "search_spaces").glob("*.yaml"))


def document(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "name": "test",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "workload": {"preset": "chatbot", "arrival": {"process": "poisson", "rate_rps": 4}, "num_requests": 20},
        "slo": ["ttft_mean_ms <= 300", "gpus <= 4"],
        "objectives": [{"maximize": "output_tokens_per_s"}, {"minimize": "gpus"}],
        "space": {"gpu": "H100", "tensor_parallel_size": [1, 2], "replicas": {"min": 1, "max": 3}},
    }
    return base | changes


def space(**changes: Any) -> Space:
    return parse_space(document(**changes), Path())


def in_space(**parameters: Any) -> Space:
    return space(space={"gpu": "H100-SXM-80GB", **parameters})


def options(parsed: Space, name: str) -> tuple[Any, ...]:
    return next(variable.options for variable in parsed.variables if variable.name == name)


# -- what is read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_a_shipped_space_loads_with_its_model_and_workload(path: Path) -> None:
    parsed = load_space(path)
    evaluator = make_evaluator(parsed)
    assert len(evaluator.workload) > 0
    assert parsed.size > 1


def test_a_list_is_a_choice_a_mapping_a_range_and_a_scalar_is_fixed() -> None:
    parsed = in_space(tensor_parallel_size=[1, 4], replicas={"min": 2, "max": 6, "step": 2}, max_num_seqs=64)
    assert options(parsed, "tensor_parallel_size") == (1, 4)
    assert options(parsed, "replicas") == (2, 4, 6)
    assert options(parsed, "max_num_seqs") == (64,)
    assert parsed.size == 6


def test_a_log2_range_doubles_and_keeps_its_ends() -> None:
    parsed = in_space(max_num_batched_tokens={"min": 1024, "max": 8192, "scale": "log2"})
    assert options(parsed, "max_num_batched_tokens") == (1024, 2048, 4096, 8192)


def test_steps_of_a_tenth_are_the_decimals_that_a_person_would_write() -> None:
    parsed = in_space(gpu_memory_utilization={"min": 0.7, "max": 0.9, "step": 0.1})
    assert options(parsed, "gpu_memory_utilization") == (0.7, 0.8, 0.9)


def test_a_policy_whose_parameters_are_choices_stands_for_each_combination() -> None:
    parsed = in_space(
        replicas=2, routing=["random", {"name": "weighted", "queue": [1, 4], "parameters": {"prefix": [0, 9]}}]
    )
    weighted = [option for option in options(parsed, "routing") if isinstance(option, dict)]
    assert [(option["queue"], option["prefix"]) for option in weighted] == [(1, 0), (1, 9), (4, 0), (4, 9)]


def test_an_aliased_gpu_is_the_catalogs() -> None:
    assert options(space(), "gpu") == ("H100-SXM-80GB",)


def test_what_the_space_leaves_out_takes_vllms_default() -> None:
    parameters = space().parameters((0, 0, 0))
    assert (parameters["max_num_seqs"], parameters["max_num_batched_tokens"]) == (256, 2048)


def test_numbers_may_be_written_with_an_exponent() -> None:
    assert parse_yaml("a: 1e3\nb: 2.5e-1") == {"a": 1000.0, "b": 0.25}
    assert options(in_space(max_num_batched_tokens=[1e4]), "max_num_batched_tokens") == (10_000,)


def test_overrides_reach_any_field_and_make_what_is_missing() -> None:
    changed = document()
    apply_overrides(
        changed, ["workload.arrival.rate_rps=8", "space.tensor_parallel_size=[4]", "slo.0=gpus <= 9", "search.seed=3"]
    )
    assert changed["workload"]["arrival"]["rate_rps"] == 8
    assert changed["space"]["tensor_parallel_size"] == [4]
    assert changed["slo"][0] == "gpus <= 9"
    assert changed["search"] == {"seed": 3}


def test_the_request_slo_is_the_tightest_limit_of_each_latency() -> None:
    limits = [
        Constraint("ttft_mean_ms", "<=", 300),
        Constraint("ttft_p99_ms", "<=", 900),
        Constraint("tpot_p90_ms", "<", 40),
        Constraint("e2e_mean_ms", ">=", 5),
        Constraint("gpus", "<=", 4),
    ]
    assert request_slo(limits) == {"ttft_ms": 300, "tpot_ms": 40}


def test_a_violation_is_the_excess_as_a_share_of_the_limit_and_no_value_is_the_worst() -> None:
    limit = Constraint("ttft_mean_ms", "<=", 200)
    assert limit.violation(200) == 0
    assert limit.violation(300) == pytest.approx(0.5)
    assert limit.violation(float("nan")) == float("inf")
    assert Constraint("gpus", "<", 4).violation(4) > 0
    violation, why_not = judge([limit, Constraint("gpus", "<=", 4)], {"ttft_mean_ms": 300.0, "gpus": 6.0})
    assert violation == pytest.approx(1.0)
    assert why_not == "ttft_mean_ms is 300, must be <= 200; gpus is 6, must be <= 4"


# -- the same deployment ----------------------------------------------------------------------------------------


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return canonical(resolve({"gpu": "H100", **first})) == canonical(resolve({"gpu": "H100", **second}))


def test_one_replica_is_the_same_however_it_is_routed_to() -> None:
    assert same({"routing": "random"}, {"routing": "weighted", "snapshot_interval_ms": 500})
    assert not same({"replicas": 2, "routing": "random"}, {"replicas": 2, "routing": "weighted"})


def test_defaults_spelled_out_are_the_same_deployment() -> None:
    assert same({}, {"max_num_seqs": 256, "scheduling": {"name": "fcfs"}, "snapshot_interval_ms": 50})
    default = {"replicas": 2, "routing": "weighted"}
    assert same(default, {"replicas": 2, "routing": {"name": "weighted", "queue": 2, "kv": 2.0}})
    assert not same(default, {"replicas": 2, "routing": {"name": "weighted", "queue": 3}})


def test_the_age_of_snapshots_matters_only_to_policies_that_look_at_them() -> None:
    assert same({"replicas": 2}, {"replicas": 2, "snapshot_interval_ms": 500})
    assert not same(
        {"replicas": 2, "routing": "least-loaded"},
        {"replicas": 2, "routing": "least-loaded", "snapshot_interval_ms": 500},
    )
    assert not same({"admission": "probabilistic"}, {"admission": "probabilistic", "snapshot_interval_ms": 500})


def test_a_chunk_limit_beyond_the_token_budget_is_no_limit() -> None:
    assert same({}, {"long_prefill_token_threshold": 2048})
    assert not same({}, {"long_prefill_token_threshold": 512})


def test_without_a_prefill_pool_nothing_that_describes_one_matters() -> None:
    pool = {
        "prefill_tensor_parallel_size": 2,
        "prefill_max_num_seqs": 8,
        "disaggregation": {"name": "prefix-based", "non_cached_tokens": 100},
        "prefill_routing": "weighted",
        "kv_transfer_gb_per_s": 50,
        "kv_transfer_latency_ms": 1,
        "snapshot_interval_ms": 500,
    }
    assert same({}, pool)
    for name, value in pool.items():
        if name not in ("prefill_routing", "snapshot_interval_ms"):
            assert not same({"prefill_replicas": 1}, {"prefill_replicas": 1, name: value}), name
    assert same({"prefill_replicas": 1}, {"prefill_replicas": 1, "prefill_routing": "weighted"})
    assert not same({"prefill_replicas": 2}, {"prefill_replicas": 2, "prefill_routing": "weighted"})
    assert not same({"prefill_replicas": 2}, {"prefill_replicas": 2, "snapshot_interval_ms": 500})


def test_a_prefill_pool_like_the_decode_pool_is_the_same_spelled_out() -> None:
    decode = {"tensor_parallel_size": 2, "max_num_seqs": 64, "prefill_replicas": 1}
    assert same(decode, {**decode, "prefill_tensor_parallel_size": 2, "prefill_max_num_seqs": 64})
    assert not same(decode, {**decode, "prefill_tensor_parallel_size": 1})


def test_gpus_are_those_of_both_pools() -> None:
    assert gpu_count(resolve({"gpu": "H100", "tensor_parallel_size": 2, "replicas": 3})) == 6
    pool = {"tensor_parallel_size": 2, "replicas": 3, "prefill_replicas": 2}
    assert gpu_count(resolve({"gpu": "H100", **pool})) == 10
    assert gpu_count(resolve({"gpu": "H100", **pool, "prefill_tensor_parallel_size": 1})) == 8


# -- what is refused --------------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"objectivs": []}, "objectivs", "objectives"),
    ({"model": 7}, "model", "text"),
    ({"name": "../x"}, "name", "letters"),
    ({"workload": [1]}, "workload", "mapping"),
    ({"slo": "gpus <= 4"}, "slo", "list"),
    ({"slo": ["gpus"]}, "slo[0]", "metric <= number"),
    ({"slo": ["gpus <= many"]}, "slo[0]", "not a number"),
    ({"slo": ["gpus <= nan"]}, "slo[0]", "finite"),
    ({"slo": ["gpus <= -1"]}, "slo[0]", "at least 0"),
    ({"slo": ["gpus == 4"]}, "slo[0]", "=="),
    ({"slo": ["ttft_men_ms <= 300"]}, "slo[0]", "ttft_mean_ms"),
    ({"slo": ["gpus <= 4", "gpus <= 5"]}, "slo[1]", "already"),
    ({"objectives": []}, "objectives", "empty"),
    ({"objectives": [{"maximise": "gpus"}]}, "objectives[0]", "maximize"),
    ({"objectives": [{"minimize": "gpu"}]}, "objectives[0].minimize", "gpus"),
    ({"objectives": [{"minimize": "gpus"}, {"maximize": "gpus"}]}, "objectives[1]", "already"),
    ({"space": {}}, "space", "empty"),
    ({"space": {"replicas": 1}}, "space.gpu", "missing"),
    ({"space": {"gpu": "H100", "tensor_paralel_size": 1}}, "space.tensor_paralel_size", "tensor_parallel_size"),
    ({"space": {"gpu": "H1000"}}, "space.gpu", "H100"),
    ({"space": {"gpu": "H100", "engine_version": "banana"}}, "space.engine_version", "0.15.1"),
    ({"space": {"gpu": ["H100", "H100-SXM"]}}, "space.gpu", "twice"),
    ({"search": {"method": "exhaustiv"}}, "search.method", "exhaustive"),
    ({"search": {"sede": 1}}, "search.sede", "seed"),
    ({"search": {"budget": 0}}, "search.budget", "at least 1"),
    ({"search": {"seed": -1}}, "search.seed", "at least 0"),
    ({"prices": {"H100": -1}}, "prices.H100", "at least 0"),
    ({"prices": {"H10": 1}}, "prices.H10", "H100"),
]
WRONG_PARAMETERS: list[tuple[dict[str, Any], str, str]] = [
    ({"replicas": []}, "space.replicas", "empty"),
    ({"replicas": [0]}, "space.replicas[0]", "at least 1"),
    ({"replicas": -2}, "space.replicas", "at least 1"),
    ({"replicas": "two"}, "space.replicas", "whole number"),
    ({"replicas": 1.5}, "space.replicas", "whole number"),
    ({"replicas": True}, "space.replicas", "whole number"),
    ({"replicas": float("nan")}, "space.replicas", "whole number"),
    ({"replicas": [2, 2]}, "space.replicas", "twice"),
    ({"replicas": None}, "space.replicas", "empty"),
    ({"replicas": {"min": 3, "max": 1}}, "space.replicas.max", "at least min"),
    ({"replicas": {"min": 1}}, "space.replicas.max", "missing"),
    ({"replicas": {"min": 1, "max": 3, "setp": 2}}, "space.replicas.setp", "step"),
    ({"replicas": {"min": 1, "max": 3, "step": 0}}, "space.replicas.step", "greater than 0"),
    ({"replicas": {"min": 1, "max": float("inf")}}, "space.replicas.max", "number"),
    ({"replicas": {"min": 1, "max": 8, "scale": "log10"}}, "space.replicas.scale", "log2"),
    ({"replicas": {"min": 1, "max": 10**9}}, "space.replicas", "values"),
    ({"gpu_memory_utilization": 1.5}, "space.gpu_memory_utilization", "at most 1"),
    ({"gpu_memory_utilization": {"min": 0.5, "max": 0.9}}, "space.gpu_memory_utilization.step", "missing"),
    ({"enable_prefix_caching": "yes please"}, "space.enable_prefix_caching", "true or false"),
    ({"kv_cache_dtype": "fp9"}, "space.kv_cache_dtype", "fp8"),
    ({"gateway": "llmd"}, "space.gateway", "llm-d"),
    ({"engine_version": 0.15}, "space.engine_version", "quotes"),
    ({"routing": "round-robbin"}, "space.routing", "round-robin"),
    ({"routing": {"weight": 1}}, "space.routing.name", "missing"),
    ({"routing": {"name": "weighted", "queu": 1}}, "space.routing.queu", "queue"),
    ({"routing": {"name": "weighted", "queue": float("nan")}}, "space.routing.queue", "finite"),
    ({"admission": ["always-admit", 3]}, "space.admission[1]", "policy"),
    ({"snapshot_interval_ms": -1}, "space.snapshot_interval_ms", "at least 0"),
]


@pytest.mark.parametrize(("changes", "field", "hint"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_a_wrong_field_is_named_with_what_is_allowed(changes: dict[str, Any], field: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        space(**changes)
    assert caught.value.field == field
    assert hint in caught.value.problem
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "field", "hint"), WRONG_PARAMETERS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_wrong_parameter_is_named_with_what_is_allowed(parameters: dict[str, Any], field: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        in_space(**parameters)
    assert caught.value.field == field
    assert hint in caught.value.problem


def test_a_missing_section_is_named() -> None:
    for section in ("model", "workload", "objectives", "space"):
        partial = document()
        del partial[section]
        with pytest.raises(InputError, match=f"^{section}: is missing"):
            parse_space(partial, Path())


def test_an_unknown_model_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"model: unknown model .*Llama-3\.1-8B-Instruct"):
        make_evaluator(space(model="meta-llama/Llama-3.1-8B-Instrct"))


def test_a_listed_tensor_parallel_size_must_divide_the_heads_but_a_range_skips_what_does_not() -> None:
    with pytest.raises(InputError, match="tensor_parallel_size: must divide the 32 attention heads"):
        make_evaluator(in_space(tensor_parallel_size=[1, 3]))
    make_evaluator(in_space(tensor_parallel_size={"min": 1, "max": 4}))


def test_the_workloads_errors_name_their_field() -> None:
    with pytest.raises(InputError, match=r"workload\.arrival\.rate_rps"):
        make_evaluator(space(workload={"preset": "chatbot", "arrival": {"process": "poisson", "rate_rps": 0}}))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a: 1\na: 2\n", "line 2: the key 'a' stands twice"),
        ("a: [1, 2\n", "line 2: not valid YAML"),
        ("3: x\n", "keys must be words"),
        ("a: !!python/object/apply:os.system [ls]\n", "not valid YAML"),
        ("&a [*a]\n", "nested more than"),
        ("[" * 2000 + "]" * 2000, "nested more than"),
        ("a: {&a b: 1}\nc: {d: !!set {x}}\n", "c.d: must be text"),
        ("a: !!timestamp 2024-13-45\n", "not valid YAML"),
        ("a: [1, 0x" + "f" * 6000 + "]", "a[1]: is a number of more than 300 digits"),
    ],
)
def test_broken_yaml_is_refused_in_one_line(text: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_alias_bomb_is_refused_before_anybody_walks_through_it() -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    for level in range(1, 12):
        text += f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n"
    with pytest.raises(InputError, match="holds more than"):
        parse_yaml(text)


def test_a_document_of_too_many_values_is_refused_before_they_are_made() -> None:
    started = time.process_time()
    with pytest.raises(InputError, match="holds more than"):
        parse_yaml("a: [" + "1," * 480_000 + "1]")
    assert time.process_time() - started < 10  # all of them take a minute


def test_a_date_is_text_as_in_yaml_1_2() -> None:
    assert parse_yaml("a: 2024-12-01\nb: 2024-13-45\n") == {"a": "2024-12-01", "b": "2024-13-45"}


def test_an_override_of_one_of_two_aliases_leaves_the_other_alone(tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text("a: &shared {x: 1}\nb: *shared\n")
    document = load_document(tmp_path / "file.yaml")
    apply_overrides(document, ["a.x=2"])
    assert document == {"a": {"x": 2}, "b": {"x": 1}}


@pytest.mark.parametrize("name", ["x" * 300 + "/config.json", "~no-such-user/config.json"])
def test_a_path_that_no_file_system_takes_is_no_file(name: str) -> None:
    with pytest.raises(InputError, match="model: "):
        make_evaluator(space(model=name))


def test_a_file_without_an_end_is_not_read_to_its_end() -> None:
    endless = Path("/dev/zero")
    if not endless.exists():
        pytest.skip("needs /dev/zero")
    with pytest.raises(InputError, match="at most"):
        load_document(endless)
    with pytest.raises(InputError, match="at most"):
        load_model(endless)


def test_a_file_that_is_no_document_is_refused(tmp_path: Path) -> None:
    big, binary, scalar = tmp_path / "big.yaml", tmp_path / "binary.yaml", tmp_path / "scalar.yaml"
    big.write_text("a: " + "x" * 1_100_000)
    binary.write_bytes(b"\xff\xfe\x00")
    scalar.write_text("hello")
    for path, hint in ((big, "at most"), (binary, "UTF-8"), (scalar, "mapping"), (tmp_path, "directory")):
        with pytest.raises(InputError, match=hint):
            load_document(path)
    with pytest.raises(InputError, match="no such file"):
        load_document(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("replicas", "path=value"),
        ("=1", "path=value"),
        ("name.x=1", "name is 'test', not a mapping"),
        ("slo.7=gpus <= 1", "position"),
        ("a=[1", "not valid YAML"),
    ],
)
def test_a_wrong_override_is_refused(override: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        apply_overrides(document(), [override])
    assert caught.value.field.startswith("--set")
    assert hint in caught.value.problem


# -- plans ------------------------------------------------------------------------------------------------------


def test_a_plan_written_and_read_is_the_same_plan(tmp_path: Path) -> None:
    parsed = in_space(
        replicas=[1, 2], routing=[{"name": "weighted", "queue": 5}], max_model_len=[None, 4096], engine_version="0.15.1"
    )
    for choice in parsed.choices():
        parameters = parsed.parameters(choice)
        path = tmp_path / "plan.yaml"
        path.write_text(dump_plan(plan_of(parsed, parameters)))
        plan = load_plan(path)
        assert plan.deployment == parameters
        assert (plan.model, plan.seed, plan.slo) == (parsed.model, parsed.seed, parsed.slo)
        assert plan.workload == parsed.workload


def test_a_plan_finds_its_trace_wherever_it_lies(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n0.0,10,5\n")
    workload = {"kind": "clients", "clients": [{"kind": "trace", "trace": "trace.csv", "format": "csv"}]}
    parsed = parse_space(document(workload=workload), tmp_path)
    written = yaml.safe_load(dump_plan(plan_of(parsed, parsed.parameters((0, 0, 0)))))
    assert Path(written["workload"]["clients"][0]["trace"]) == (tmp_path / "trace.csv").resolve()


def test_a_plan_keeps_the_price_that_the_space_gave_its_gpu() -> None:
    parsed = space(prices={"H100": 1.25, "L4": 0.5})
    written = yaml.safe_load(dump_plan(plan_of(parsed, parsed.parameters((0, 0, 0)))))
    assert written["prices"] == {"H100-SXM-80GB": 1.25}
