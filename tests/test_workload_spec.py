"""Workload specs: what is refused and with which words, round trips, and mixes of clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.errors import InputError
from sim.workload import ClientsSpec, LengthsSpec, SharedPrefixSpec, TraceSpec, build_workload, parse_workload

POISSON = {"process": "poisson", "rate_rps": 5}
CHAT: dict[str, Any] = {"preset": "chatbot", "arrival": POISSON, "num_requests": 10}
SHARED: dict[str, Any] = {
    "kind": "shared_prefix", "num_groups": 2, "num_prompts_per_group": 2, "system_prompt_len": 10, "question_len": 5,
    "output_len": 3,
}  # fmt: skip


def arrival(**fields: Any) -> dict[str, Any]:
    return CHAT | {"arrival": fields}


@pytest.mark.parametrize(
    ("raw", "field", "problem"),
    [
        ([], "workload", "must be a mapping"),
        ({}, "workload.kind", "is required"),
        ({"kind": "shared_prefx"}, "workload.kind", "did you mean 'shared_prefix'"),
        ({"preset": ["chatbot"]}, "workload.preset", "must be one of"),
        ({"kind": [1]}, "workload.kind", "must be one of"),
        ({"preset": "chatbto"}, "workload.preset", "did you mean 'chatbot'"),
        (CHAT | {"num_request": 5}, "workload.num_request", "unknown field .did you mean 'num_requests'"),
        ({"preset": "chatbot", "num_requests": 5}, "workload.arrival", "is required"),
        ({"preset": "chatbot", "arrival": POISSON}, "workload.num_requests", "is required"),
        (CHAT | {"duration_s": 5}, "workload.duration_s", "contradicts num_requests"),
        ({"preset": "codegen", "num_requests": 5}, "workload.num_requests", "contradicts arrival.stages"),
        (CHAT | {"num_requests": 0}, "workload.num_requests", "must be at least 1, got 0"),
        (CHAT | {"num_requests": 1.5}, "workload.num_requests", "must be a whole number, got 1.5"),
        (CHAT | {"num_requests": True}, "workload.num_requests", "must be a whole number, got True"),
        (CHAT | {"num_requests": "9"}, "workload.num_requests", "must be a whole number, got '9'"),
        (CHAT | {"time_limit_s": 0}, "workload.time_limit_s", "must be at least 1e-06, got 0"),
        (CHAT | {"time_limit_s": 1e-13}, "workload.time_limit_s", "must be at least"),  # no limit, once in picoseconds
        (CHAT | {"slo_class": "urgent"}, "workload.slo_class", "must be one of critical, standard"),
        (arrival(process="poison", rate_rps=5), "workload.arrival.process", "did you mean 'poisson'"),
        (arrival(process="poisson"), "workload.arrival.rate_rps", "is required"),
        (arrival(process="poisson", rate_rps=0), "workload.arrival.rate_rps", "must be greater than 0, got 0"),
        (arrival(process="poisson", rate_rps=-1), "workload.arrival.rate_rps", "must be greater than 0, got -1"),
        (arrival(process="poisson", rate_rps=float("nan")), "workload.arrival.rate_rps", "finite number, got nan"),
        (arrival(process="poisson", rate_rps=float("inf")), "workload.arrival.rate_rps", "finite number, got inf"),
        (arrival(process="poisson", rate_rps="5"), "workload.arrival.rate_rps", "must be a number, got '5'"),
        (arrival(process="poisson", rate_rps=True), "workload.arrival.rate_rps", "must be a number, got True"),
        (arrival(process="poisson", rate_rps=5, cv=2), "workload.arrival.cv", "has no meaning with process poisson"),
        (arrival(process="poisson", rate_rps=5, users=2), "workload.arrival.users", "has no meaning"),
        (arrival(process="gamma", rate_rps=5), "workload.arrival.cv", "is required"),
        (arrival(process="gamma", rate_rps=5, cv=0), "workload.arrival.cv", "must be at least 0.01"),
        (arrival(process="closed"), "workload.arrival.users", "is required"),
        (arrival(process="closed", users=2, rate_rps=5), "workload.arrival.rate_rps", "has no meaning"),
        (arrival(process="closed", users=2, think_time_s=-1), "workload.arrival.think_time_s", "must be at least 0"),
        (arrival(process="poisson", stages=[]), "workload.arrival.stages", "needs at least 1"),
        (
            arrival(process="poisson", stages=[{"rate_rps": 1, "duration_s": 1}, {"rate_rps": 1}]),
            "workload.arrival.stages[1].duration_s",
            "is required",
        ),
        (
            arrival(process="poisson", rate_rps=1, stages=[{"rate_rps": 1, "duration_s": 1}]),
            "workload.arrival.rate_rps",
            "contradicts stages",
        ),
        (CHAT | {"input": -3}, "workload.input.value", "must be at least 0, got -3"),
        (CHAT | {"input": 10**30}, "workload.input.value", "must be at most 100,000,000"),
        (CHAT | {"input": 0}, "workload.input", "must be at least 1 token"),
        (CHAT | {"output": 0}, "workload.output", "must be at least 1 token"),
        (CHAT | {"input": "long"}, "workload.input", "must be a number of tokens or a mapping"),
        (CHAT | {"input": {"mean": 5}}, "workload.input.dist", "is required"),
        (CHAT | {"input": {"dist": "norml"}}, "workload.input.dist", "did you mean 'normal'"),
        (CHAT | {"input": {"dist": "normal", "mean": 5}}, "workload.input.sd", "is required"),
        (CHAT | {"input": {"dist": "normal", "mean": 5, "sd": 1, "std": 1}}, "workload.input.std", "unknown field"),
        (
            CHAT | {"input": {"dist": "normal", "mean": 5, "sd": 1, "min": 9, "max": 3}},
            "workload.input.max",
            r"must be at least min \(9\), got 3",
        ),
        (CHAT | {"input": {"dist": "uniform", "min": 9, "max": 3}}, "workload.input.max", "must be at least min"),
        (CHAT | {"input": {"dist": "lognormal", "mean": 9}}, "workload.input", "mean and sd, or mu and sigma"),
        (CHAT | {"input": {"dist": "empirical", "histogram": {}}}, "workload.input.histogram", "at least one length"),
        (CHAT | {"input": {"dist": "empirical", "histogram": {"a": 1}}}, "workload.input.histogram.a", "whole tokens"),
        (CHAT | {"prefix": {"groups": 0, "tokens": 5}}, "workload.prefix.groups", "must be at least 1"),
        (SHARED | {"num_groups": 0}, "workload.num_groups", "must be at least 1, got 0"),
        (SHARED | {"num_groups": 10**6, "num_prompts_per_group": 10**6}, "workload.num_prompts_per_group", "prompts"),
        (SHARED | {"output_len": 0}, "workload.output_len", "must be at least 1"),
        (SHARED | {"system_prompt_len": 0, "question_len": 0}, "workload.question_len", "must be at least 1"),
        ({"trace": "x", "format": "mooncak"}, "workload.format", "did you mean 'mooncake'"),
        ({"trace": "x", "arrival_scale": 0}, "workload.arrival_scale", "must be greater than 0"),
        ({"trace": "x", "arrival_scale": 2, "arrival": POISSON}, "workload.arrival_scale", "give one of them"),
        ({"trace": "x", "num_requests": 2, "duration_s": 2}, "workload.duration_s", "contradicts num_requests"),
        ({"clients": 3}, "workload.clients", "must be a list"),
        ({"clients": []}, "workload.clients", "needs at least 1"),
        ({"clients": [{"clients": [CHAT]}]}, "workload.clients[0]", "cannot be nested"),
        ({"clients": [CHAT | {"share": 1}]}, "workload.clients[0].share", "needs a common arrival"),
        ({"clients": [CHAT, CHAT | {"input": -1}]}, "workload.clients[1].input.value", "must be at least 0"),
        ({"clients": [CHAT], "arrival": POISSON, "num_requests": 5}, "workload.clients[0].share", "is required"),
        (
            {"clients": [CHAT | {"share": 1}], "arrival": POISSON, "num_requests": 5},
            "workload.clients[0].arrival",
            "contradicts the common arrival",
        ),
        ({"clients": [CHAT], "num_requests": 5}, "workload.num_requests", "needs a common arrival"),
        ({"clients": [CHAT], "slo_class": "batch"}, "workload.slo_class", "belongs to each of the clients"),
    ],
)
def test_bad_input_is_refused_with_its_field_and_what_is_allowed(raw: Any, field: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        parse_workload(raw)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


def test_the_field_path_starts_where_the_caller_says() -> None:
    with pytest.raises(InputError) as caught:
        parse_workload(CHAT | {"input": -1}, field="plans[2].workload")
    assert caught.value.field == "plans[2].workload.input.value"


MIX: dict[str, Any] = {
    "clients": [
        {"preset": "chatbot", "share": 0.7, "slo_class": "critical", "tenant": "shop"},
        SHARED | {"share": 0.3, "slo_class": "sheddable"},
    ],
    "arrival": POISSON,
    "num_requests": 20_000,
}


@pytest.mark.parametrize(
    "raw",
    [
        CHAT,
        {"preset": "codegen", "time_limit_s": 1800},
        SHARED | {"arrival": {"process": "closed", "users": 3, "think_time_s": 1.5}, "num_requests": 9, "name": "mine"},
        CHAT | {"input": {"dist": "empirical", "histogram": {3: 0.5, 4: 1}}, "prefix": {"groups": 2, "tokens": 9}},
        {"trace": "a.csv", "format": "azure", "arrival_scale": 0.5, "max_requests": 9},
        MIX,
    ],
)
def test_a_spec_written_out_reads_back_as_the_same_spec(raw: dict[str, Any]) -> None:
    spec = parse_workload(raw)
    assert parse_workload(spec.to_dict()) == spec


def test_a_preset_is_written_out_as_what_it_stands_for() -> None:
    written = parse_workload({"preset": "roleplay"}).to_dict()
    assert written["kind"] == "shared_prefix"
    assert (written["system_prompt_len"], written["question_len"], written["output_len"]) == (150, 600, 251)
    assert written["arrival"]["stages"] == [{"rate_rps": 6, "duration_s": 1200}]


def test_kind_may_be_left_out_where_the_fields_say_it() -> None:
    assert isinstance(parse_workload(CHAT), LengthsSpec)
    assert isinstance(parse_workload({"preset": "codegen"}), SharedPrefixSpec)
    assert isinstance(parse_workload({"trace": "x.jsonl"}), TraceSpec)
    assert isinstance(parse_workload({"clients": [CHAT]}), ClientsSpec)


def test_whole_numbers_may_be_written_as_floats() -> None:
    assert parse_workload(CHAT | {"num_requests": 1e4}).num_requests == 10_000


def test_requests_are_mixed_by_share_with_their_classes_priorities_and_tenants() -> None:
    load = build_workload(parse_workload(MIX), 0)
    assert load.slo_class is not None
    assert load.priority is not None
    assert load.tenant is not None
    critical = load.slo_class == load.slo_classes.index("critical")
    assert critical.mean() == pytest.approx(0.7, abs=0.02)
    assert set(load.priority[critical].tolist()) == {-4}
    assert set(load.priority[~critical].tolist()) == {2}
    assert set(load.prompt_tokens[~critical].tolist()) == {15}
    assert set(load.output_tokens[~critical].tolist()) == {3}
    assert np.array_equal(load.tenant == load.tenants.index("shop"), critical)
    assert not load.content[critical].any()


def test_a_client_keeps_its_requests_when_another_joins_its_lengths() -> None:
    changed = MIX | {"clients": [MIX["clients"][0] | {"input": 9}, MIX["clients"][1]]}
    a, b = build_workload(parse_workload(MIX), 0), build_workload(parse_workload(changed), 0)
    assert np.array_equal(a.arrival_ps, b.arrival_ps)
    assert np.array_equal(a.output_tokens, b.output_tokens)
    assert np.array_equal(a.slo_class, b.slo_class)  # type: ignore[arg-type]


def test_clients_with_arrivals_of_their_own_are_merged_in_order_of_arrival() -> None:
    slow = SHARED | {"arrival": {"process": "constant", "rate_rps": 1}, "num_requests": 10, "slo_class": "batch"}
    fast = CHAT | {"arrival": {"process": "constant", "rate_rps": 4}, "num_requests": 40}
    load = build_workload(parse_workload({"clients": [slow, fast]}), 0)
    assert len(load) == 50
    assert (np.diff(load.arrival_ps) >= 0).all()
    assert load.slo_class is not None
    batch = load.slo_class == load.slo_classes.index("batch")
    assert load.arrival_ps[batch].tolist() == [i * 10**12 for i in range(10)]
    assert set(load.prompt_tokens[batch].tolist()) == {15}
    assert batch[0], "where clients tie, the earlier one of the list goes first"


def test_a_common_arrival_replaces_the_stages_that_a_preset_brings() -> None:
    raw = {"clients": [{"preset": "codegen", "share": 1}], "arrival": POISSON, "num_requests": 300}
    load = build_workload(parse_workload(raw), 0)
    assert (len(load), set(load.prompt_tokens.tolist()), load.stage) == (300, {566}, None)


def test_one_class_for_all_still_has_its_priority() -> None:
    load = build_workload(parse_workload(CHAT | {"slo_class": "background"}), 0)
    assert load.slo_classes == ["background"]
    assert load.priority is not None
    assert set(load.priority.tolist()) == {3}


def test_a_workload_without_classes_is_standard_with_equal_priorities() -> None:
    load = build_workload(parse_workload(CHAT), 0)
    assert (load.slo_classes, load.slo_class, load.priority, load.tenant) == (["standard"], None, None, None)
