"""Coefficient files: what is shipped is possible, and what is impossible is refused."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from sim.catalog import gpu_names, load_gpu, load_model
from sim.deployment import Deployment
from sim.errors import InputError
from sim.latency import build_overhead, load_coefficients, parse_coefficients


@pytest.fixture
def document() -> dict[str, Any]:
    text = resources.files("sim.latency").joinpath("coefficients", "default.yaml").read_text(encoding="utf-8")
    return copy.deepcopy(yaml.safe_load(text))


def efficiencies(node: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every efficiency in a document, by its path."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from efficiencies(value, f"{path}.{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from efficiencies(value, f"{path}[{index}]")
    elif path.rpartition(".")[2].startswith(
        ("compute", "bandwidth", "prefill_compute", "decode_", "one_shot_b", "two_shot_b")
    ):
        yield path, float(node)


def test_every_shipped_efficiency_is_possible(document: dict[str, Any]) -> None:
    parts = {key: document[key] for key in ("gpus", "defaults")}
    found = dict(efficiencies(parts))
    assert len(found) > 100
    assert all(0 < value <= 1 for value in found.values()), {k: v for k, v in found.items() if not 0 < v <= 1}


def test_every_gpu_of_the_catalog_has_coefficients() -> None:
    coefficients = load_coefficients()
    for name in gpu_names():
        assert coefficients.of_gpu(load_gpu(name)).attention.decode_bandwidth > 0


def test_the_shipped_set_says_where_it_comes_from(document: dict[str, Any]) -> None:
    provenance = document["provenance"]
    assert provenance["kernels"]["residuals"]
    assert provenance["serving"]["rule"]
    for block in provenance["serving"]["blocks"]:
        for path, value in block["values"].items():
            low, high = block["bounds"][path]
            assert low <= value <= high


@pytest.mark.parametrize("value", [0, -0.1, 1.01, "fast", True, float("nan")])
def test_an_impossible_efficiency_is_refused_with_its_path(document: dict[str, Any], value: object) -> None:
    document["gpus"]["L40S"]["gemm"]["bf16"]["compute"] = value
    with pytest.raises(InputError, match=r"gpus\.L40S\.gemm\.bf16\.compute"):
        parse_coefficients(document, "mine")


def test_an_unknown_coefficient_gets_the_nearest_name(document: dict[str, Any]) -> None:
    document["engine"]["layers_us"] = 1.0
    with pytest.raises(InputError, match="did you mean 'layer_us'"):
        parse_coefficients(document, "mine")


def test_a_missing_coefficient_is_named(document: dict[str, Any]) -> None:
    del document["request"]["gateway_us"]
    with pytest.raises(InputError, match=r"request\.gateway_us: is missing"):
        parse_coefficients(document, "mine")


def test_a_set_can_be_read_from_a_file(document: dict[str, Any], tmp_path: Path) -> None:
    document["engine"]["layer_us"] = 99.0
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert load_coefficients(str(path)).engine.layer_us == 99.0


def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'default'"):
        load_coefficients("defualt")
    with pytest.raises(InputError, match=r"nowhere\.yaml: no such file"):
        load_coefficients("nowhere.yaml")


def test_only_a_gateway_adds_its_latency() -> None:
    deployment = Deployment(load_model("meta-llama/Llama-3.1-8B-Instruct"), load_gpu("H100"))
    assert build_overhead(deployment, load_coefficients()).gateway_ps == 0
    routed = Deployment(deployment.model, deployment.gpu, gateway="llm-d")
    assert 30e9 < build_overhead(routed, load_coefficients()).gateway_ps < 70e9
    with pytest.raises(InputError, match="gateway"):
        build_overhead(Deployment(deployment.model, deployment.gpu, gateway="nginx"), load_coefficients())


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("gpus: [1]\nalike: {}\ndefaults: {}\nengine: {}\nrequest: {}\n", "coefficients"),
        ("a: 2023-13-45\n", "coefficients"),
        ("- 1\n", "coefficients"),
    ],
)
def test_a_file_that_is_no_coefficient_set_is_refused_in_one_line(tmp_path: Path, text: str, field: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=field) as error:
        load_coefficients(str(path))
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        load_coefficients(str(path))


def test_the_first_token_cannot_reach_the_client_after_the_last(document: dict[str, Any]) -> None:
    changed = {**document, "request": {**document["request"], "first_token_us": 5e4, "last_token_us": 0.0}}
    with pytest.raises(InputError, match="first_token_us"):
        parse_coefficients(changed, "changed")
