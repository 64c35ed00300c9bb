"""Cache tiers: what lies below the GPU's memory makes nobody slower, and helps where the memory is too small."""

from __future__ import annotations

import numpy as np
import pytest

from planner.parameters import canonical, resolve
from sim.deployment import Deployment, PolicySpec
from sim.engine.tiers import TierConfig
from sim.errors import InputError
from sim.memory import GIB, kv_bytes_per_token_per_gpu
from sim.offload import OffloadPolicy, TieredOffload
from sim.result import Result
from sim.simulate import simulate
from sim.workload import Workload
from tests.serving_cases import SECOND, deployment, poisson, policy, with_cache, workload

DOCUMENTS = 12
LONG = 3008
CACHE = 1000  # blocks: five documents of the twelve


def reading(arrival_ps: np.ndarray, seed: int | None = None) -> Workload:
    """Requests about the same documents, in turn or (seed) as it comes."""
    n = len(arrival_ps)
    content = np.arange(n) % DOCUMENTS
    if seed is not None:
        content = np.random.default_rng(seed).integers(0, DOCUMENTS, n)
    contents = [((document, LONG),) for document in range(DOCUMENTS)]
    return workload(arrival_ps, LONG + 40, 30, content=content, contents=contents)


def small(**settings: object) -> Deployment:
    return with_cache(deployment(**settings), CACHE)


def tiered(**parameters: float) -> PolicySpec:
    return policy("tiered", **parameters)


def times(result: Result) -> dict[str, bytes]:
    names = ("scheduled_ps", "first_token_ps", "finish_ps", "cached_tokens", "preemptions")
    return {name: getattr(result.table, name).tobytes() for name in names}


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("budget", [512, 8192])
@pytest.mark.parametrize("gb_per_s", [0.5, 3, 5, 7, 12, 55])
def test_a_tier_never_makes_a_lone_request_slower(gb_per_s: float, budget: int, async_scheduling: bool) -> None:
    alone = reading(np.arange(60) * 20 * SECOND, seed=1)
    settings = {"max_num_batched_tokens": budget, "async_scheduling": async_scheduling}
    without = simulate(small(**settings), alone)
    with_tiers = simulate(small(kv_offload=tiered(host_gib=3, host_gb_per_s=gb_per_s, disk_gib=9), **settings), alone)
    gains = [before - after for before, after in zip(without.table.finish_ps, with_tiers.table.finish_ps, strict=True)]
    assert min(gains) >= 0
    loaded = sum(np.array(column) for column in with_tiers.table.tier_tokens)
    assert (np.array(gains)[loaded > 0] > 0).all()
    if not 3 < gb_per_s < 12:  # about where loading is as fast as computing
        assert (loaded > 0).any() == (gb_per_s >= 12)
    assert with_tiers.table.cached_tokens == without.table.cached_tokens


@pytest.mark.parametrize("seed", range(3))
def test_tiers_without_room_are_no_tiers(seed: int) -> None:
    load = reading(poisson(150, 8, seed), seed)
    expected = times(simulate(small(), load))
    assert times(simulate(small(kv_offload=tiered()), load)) == expected
    assert times(simulate(small(kv_offload=tiered(host_gib=0.001)), load)) == expected  # less than a block


def test_the_hit_rate_rises_with_the_size_of_the_tier() -> None:
    load = reading(poisson(300, 6, 2))
    rates, waits = [], []
    for blocks in (0, 500, 1000, 1500, 2000, 4000):
        size = blocks * 16 * kv_bytes_per_token_per_gpu(small()) / GIB
        summary = simulate(small(kv_offload=tiered(host_gib=size)), load).summary()
        rates.append(summary["prefix_hit_rate"] + summary["tier_hit_rate"])
        waits.append(summary["ttft_ms"]["mean"])
    assert rates == sorted(rates)
    assert rates[0] < 0.05  # in turn through more than there is room for: the least recently used is the next one asked
    assert rates[-1] > 0.9
    assert waits[-1] < 0.5 * waits[0]


def test_shares_of_the_places_add_up_to_what_was_not_computed() -> None:
    load = reading(poisson(200, 6, 3), 3)
    result = simulate(small(kv_offload=tiered(host_gib=1, disk_gib=4)), load)
    summary = result.summary()
    sources = summary["cache_sources"]
    assert list(sources) == ["gpu", "host", "disk"]
    assert all(share > 0.05 for share in sources.values())
    assert sources["gpu"] == summary["prefix_hit_rate"]
    assert sources["host"] + sources["disk"] == pytest.approx(summary["tier_hit_rate"])
    assert summary["preemptions"] == 0
    tokens = [sum(result.table.cached_tokens), *(sum(column) for column in result.table.tier_tokens)]
    assert list(sources.values()) == pytest.approx([t / int(load.prompt_tokens.sum()) for t in tokens])


def test_each_gpu_loads_its_share_over_its_own_slot_and_all_share_the_disk() -> None:
    one, four = deployment("meta-llama/Llama-3.1-8B-Instruct"), deployment(tensor_parallel_size=4)
    host, peer, disk = TieredOffload(host_gib=100, peer_gib=100, disk_gib=100).tiers(one)
    assert (host.bytes_per_s, peer.bytes_per_s, disk.bytes_per_s) == (55 * 10**9, 50 * 10**9, 7 * 10**9)
    # Llama-3.1-8B: 32 layers, 8 KV heads of 128, 2 bytes, K and V
    assert host.bytes_per_token == disk.bytes_per_token == 2 * 32 * 8 * 128 * 2
    assert host.num_blocks == 100 * GIB // (16 * host.bytes_per_token)
    host_of_four, peer_of_four, disk_of_four = TieredOffload(host_gib=100, peer_gib=100, disk_gib=100).tiers(four)
    assert 4 * host_of_four.bytes_per_token == 4 * peer_of_four.bytes_per_token == host.bytes_per_token
    assert disk_of_four.bytes_per_token == disk.bytes_per_token
    assert host_of_four.num_blocks == host.num_blocks


def test_a_slower_slot_makes_a_slower_tier() -> None:
    (h100, *_), (a100, *_) = (TieredOffload(host_gib=1).tiers(deployment(gpu=gpu)) for gpu in ("H100", "A100"))
    assert a100.bytes_per_s == h100.bytes_per_s / 2


def test_tiers_that_cannot_matter_are_the_same_deployment() -> None:
    plain = canonical(resolve({"gpu": "H100"}))
    empty = resolve({"gpu": "H100", "kv_offload": {"name": "tiered", "disk_gb_per_s": 3}})
    assert canonical(empty) == plain
    without = {"gpu": "H100", "enable_prefix_caching": False}
    offloading = resolve({**without, "kv_offload": {"name": "tiered", "host_gib": 100}})
    assert canonical(offloading) == canonical(resolve(without))
    assert canonical(resolve({"gpu": "H100", "kv_offload": {"name": "tiered", "host_gib": 100}})) != plain


def test_a_tier_of_an_impossible_size_or_speed_is_refused() -> None:
    for name in ("host_gib", "disk_gb_per_s", "peer_latency_ms"):
        with pytest.raises(InputError, match=name):
            resolve({"gpu": "H100", "kv_offload": {"name": "tiered", name: -1}})
    with pytest.raises(InputError, match="disk_gb_per_s: must be greater than 0"):
        resolve({"gpu": "H100", "kv_offload": {"name": "tiered", "disk_gib": 1, "disk_gb_per_s": 0}})


class ColdStore(OffloadPolicy):
    """One slow tier of any size."""

    def tiers(self, deployment: Deployment) -> list[TierConfig]:
        return [TierConfig("object-store", 10**6, 10**10, kv_bytes_per_token_per_gpu(deployment), 10**9)]


def test_tiers_of_a_users_own_are_loaded_from() -> None:
    load = reading(np.arange(40) * 5 * SECOND)
    summary = simulate(small(kv_offload=policy("tests.test_offload:ColdStore")), load).summary()
    assert summary["cache_sources"]["object-store"] > 0.6
