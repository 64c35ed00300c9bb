"""Length distributions: bounds, means, and the presets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sim.workload import PRESETS, Workload, build_workload, parse_workload

N = 100_000


def drawn(dist: Any, **rest: Any) -> Workload:
    raw = {
        "kind": "lengths", "input": dist, "output": 10, "num_requests": N,
        "arrival": {"process": "constant", "rate_rps": 10}, **rest,
    }  # fmt: skip
    return build_workload(parse_workload(raw), 0)


def mean_of_clipped_normal(mean: float, sd: float, low: float, high: float) -> float:
    a, b = (low - mean) / sd, (high - mean) / sd
    inside = mean * (stats.norm.cdf(b) - stats.norm.cdf(a)) + sd * (stats.norm.pdf(a) - stats.norm.pdf(b))
    return float(inside + low * stats.norm.cdf(a) + high * stats.norm.sf(b))


@pytest.mark.parametrize(("mean", "sd", "low", "high"), [(256, 100, 2, 800), (100, 300, 50, 400), (1000, 1, 1, 990)])
def test_a_clipped_normal_stays_in_bounds_and_has_the_mean_of_its_clipped_tails(
    mean: float, sd: float, low: int, high: int
) -> None:
    lengths = drawn({"dist": "normal", "mean": mean, "sd": sd, "min": low, "max": high}).prompt_tokens
    assert low <= lengths.min() <= lengths.max() <= high
    expected = mean_of_clipped_normal(mean, sd, low, high)
    assert lengths.mean() == pytest.approx(expected, abs=5 * sd / math.sqrt(N) + 0.01)


@pytest.mark.parametrize(
    ("dist", "mean", "sd"),
    [
        ({"dist": "lognormal", "mean": 500, "sd": 700}, 500, 700),
        ({"dist": "lognormal", "mu": 6, "sigma": 0.5}, math.exp(6.125), math.exp(6.125) * math.sqrt(math.expm1(0.25))),
        ({"dist": "exponential", "mean": 300}, 300, 300),
        ({"dist": "uniform", "min": 10, "max": 30}, 20, math.sqrt((21**2 - 1) / 12)),
        ({"dist": "empirical", "histogram": {100: 3, 200: 1}}, 125, math.sqrt(0.75 * 0.25) * 100),
        ({"dist": "normal", "mean": 4096, "sd": 500}, 4096, 500),
    ],
)
def test_lengths_have_the_mean_and_sd_of_their_distribution(dist: dict[str, Any], mean: float, sd: float) -> None:
    lengths = drawn(dist).prompt_tokens
    assert lengths.mean() == pytest.approx(mean, abs=6 * sd / math.sqrt(N) + 0.05)
    assert lengths.std() == pytest.approx(sd, rel=0.06)


def test_the_pareto_lognormal_mixture_has_the_quantiles_of_its_parts() -> None:
    spec = {"dist": "pareto-lognormal", "alpha": 1.5, "xm": 1000, "mu": 5, "sigma": 0.4, "pareto_weight": 0.3}
    lengths = drawn(spec).prompt_tokens
    for x in (100, 200, 999, 2000, 10_000):
        cdf = 0.7 * stats.lognorm.cdf(x, 0.4, scale=math.exp(5)) + 0.3 * stats.pareto.cdf(x, 1.5, scale=1000)
        assert np.mean(lengths <= x) == pytest.approx(cdf, abs=0.01)


def test_an_empirical_histogram_draws_only_its_lengths() -> None:
    lengths = drawn({"dist": "empirical", "histogram": {"7": 0.5, "9": 0.5, "11": 0}}).prompt_tokens
    assert set(lengths.tolist()) == {7, 9}


@pytest.mark.parametrize("dist", [{"dist": "normal", "mean": 1, "sd": 50}, {"dist": "exponential", "mean": 0.1}])
def test_no_prompt_and_no_output_is_empty(dist: dict[str, Any]) -> None:
    load = drawn(dist, output=dist)
    assert load.prompt_tokens.min() == 1
    assert load.output_tokens.min() == 1


def test_a_plain_number_is_a_constant() -> None:
    assert set(drawn(321).prompt_tokens.tolist()) == {321}


def test_the_tail_of_a_pareto_without_a_mean_stays_a_number_of_tokens() -> None:
    lengths = drawn({"dist": "pareto-lognormal", "alpha": 0.01, "xm": 1, "mu": 1, "sigma": 1, "pareto_weight": 1})
    assert lengths.prompt_tokens.min() >= 1
    assert lengths.prompt_tokens.sum() > 0


def test_a_prefix_stands_in_front_of_the_input_and_is_the_same_for_a_group() -> None:
    tokens = {"dist": "uniform", "min": 50, "max": 90}
    load = drawn(20, prefix={"groups": 6, "tokens": tokens})
    assert len(load.contents) == 1 + 6
    for pieces in load.contents[1:]:
        ((_, length),) = pieces
        assert 50 <= length <= 90
    prefix = np.array([sum(t for _, t in pieces) for pieces in load.contents])
    assert np.array_equal(load.prompt_tokens, prefix[load.content] + 20)
    uses = np.bincount(load.content, minlength=7)[1:]
    assert uses == pytest.approx(np.full(6, N / 6), rel=0.05)


@pytest.mark.parametrize(
    ("preset", "mean_input", "mean_output"),
    [("chatbot", 256, 256), ("contentgen", 1024, 1024), ("summarization", 4096, 512), ("multidoc", 10240, 1536)],
)
def test_length_presets_have_their_published_means(preset: str, mean_input: float, mean_output: float) -> None:
    raw = {"preset": preset, "arrival": {"process": "poisson", "rate_rps": 5}, "num_requests": N}
    load = build_workload(parse_workload(raw), 0)
    assert load.name == preset
    assert load.prompt_tokens.mean() == pytest.approx(mean_input, rel=0.01)
    assert load.output_tokens.mean() == pytest.approx(mean_output, rel=0.01)


@pytest.mark.parametrize(
    ("preset", "prompt", "output", "requests"),
    [
        ("general", 547, 248, 16_800),
        ("general-lite", 547, 248, 5_100),
        ("codegen", 566, 247, 9_000),
        ("roleplay", 750, 251, 7_200),
        ("reasoning", 1034, 1448, 1_200),
    ],
)
def test_paper_workloads_have_their_measured_lengths_and_load(
    preset: str, prompt: int, output: int, requests: int
) -> None:
    load = build_workload(parse_workload({"preset": preset}), 0)
    assert len(load) == requests
    assert set(load.prompt_tokens.tolist()) == {prompt}
    assert set(load.output_tokens.tolist()) == {output}


def test_what_stands_beside_a_preset_replaces_its_fields() -> None:
    raw = {
        "preset": "codegen", "output_len": 99,
        "arrival": {"process": "normalized-poisson", "rate_rps": 5}, "num_requests": 5000,
    }  # fmt: skip
    load = build_workload(parse_workload(raw), 0)
    assert (len(load), set(load.output_tokens.tolist()), set(load.prompt_tokens.tolist())) == (5000, {99}, {566})


def test_every_preset_can_be_built() -> None:
    for preset, fields in PRESETS.items():
        raw: dict[str, Any] = {"preset": preset}
        if "arrival" not in fields:
            raw |= {"arrival": {"process": "closed", "users": 2}, "num_requests": 4}
        assert len(build_workload(parse_workload(raw), 0)) > 0
