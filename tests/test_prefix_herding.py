"""Why llm-d's default profile can leave replicas idle: a beginning that all prompts share draws them together."""

from __future__ import annotations

from typing import Any

import pytest

from sim.catalog import load_gpu, load_model
from sim.deployment import Deployment, PolicySpec
from sim.simulate import simulate
from sim.workload import build_workload, parse_workload


def served(**routing: Any) -> dict[str, Any]:
    """A light load of prompts that all begin with the same 512 of 3,000 tokens, on 8 replicas."""
    spec = {
        "kind": "lengths",
        "input": 2488,
        "output": 100,
        "prefix": {"groups": 1, "tokens": 512},
        "arrival": {"process": "poisson", "rate_rps": 4},
        "num_requests": 600,
    }
    plan = Deployment(
        load_model("meta-llama/Llama-3.1-8B-Instruct"),
        load_gpu("H100-SXM-80GB"),
        replicas=8,
        routing=PolicySpec("weighted", routing),
    )
    return simulate(plan, build_workload(parse_workload(spec), 0)).summary()


def used(summary: dict[str, Any]) -> int:
    return sum(replica["requests"] > 0 for replica in summary["replicas"])


def test_a_common_beginning_draws_all_requests_to_a_few_replicas() -> None:
    """3 x 512/3000 of prefix score outweigh 2 x the KV usage of a replica that serves a few; nobody waits."""
    assert used(served()) < 8


@pytest.mark.parametrize("scorer", ["active-request-scorer", "token-load-scorer"])
def test_the_router_s_own_count_of_what_is_in_flight_spreads_them(scorer: str) -> None:
    parameters = {"weight": 2, **({"queue_threshold_tokens": 10_000} if scorer == "token-load-scorer" else {})}
    default, spread = served(), served(scorers={scorer: parameters})
    assert used(spread) > used(default)
    assert spread["ttft_ms"]["mean"] < default["ttft_ms"]["mean"]
