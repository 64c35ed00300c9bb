"""The catalog against published figures: parameters, shapes, names, and what it says of broken configs."""

from __future__ import annotations

import contextlib
import csv
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sim.catalog
from sim.catalog import GPUSpec, ModelSpec, check_tensor_parallel, gpu_names, load_gpu, load_model, model_names
from sim.catalog.config import spec_from_config
from sim.errors import InputError

MEASURED = Path(__file__).resolve().parents[2] / "shared" / "measured"

LLAMA_2_7B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}


def from_config(folder: Path, **changes: Any) -> ModelSpec:
    """The model of Llama-2-7B's config with `changes`; a key set to ... is left out."""
    config = {key: value for key, value in {**LLAMA_2_7B, **changes}.items() if value is not ...}
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return load_model(path)


# -- parameters ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", model_names())
def test_parameters_are_those_published(name: str) -> None:
    model = load_model(name)
    assert model.num_parameters == pytest.approx(model.published_parameters, rel=0.015)


@pytest.mark.parametrize("name", model_names())
def test_every_model_names_its_source(name: str) -> None:
    assert load_model(name).source


@pytest.mark.parametrize(
    ("name", "active_billions"),
    [
        ("deepseek-ai/DeepSeek-V3", 37),
        ("Kimi-K2-Instruct", 32),
        ("Qwen3-235B-A22B", 22),
        ("Qwen3-30B-A3B", 3.3),
        ("Mixtral-8x7B", 12.9),
        ("Mixtral-8x22B", 39),
        ("Llama-4-Scout", 17),
        ("Llama-4-Maverick", 17),
        ("Qwen3-Coder-480B-A35B-Instruct", 35),
        ("DeepSeek-V2-Lite", 2.4),
    ],
)
def test_active_parameters_are_those_published(name: str, active_billions: float) -> None:
    # Papers differ in whether they count embeddings: DeepSeek-V2-Lite's 2.4B leaves some out, which is 10%.
    assert load_model(name).active_parameters / 1e9 == pytest.approx(active_billions, rel=0.12)


@pytest.mark.parametrize(
    ("name", "gib"),
    [  # as vLLM logs "Model loading took": H100, TP=1
        ("Llama-3.1-8B-Instruct", 14.99),
        ("gpt-oss-20b", 13.47),
        ("Qwen3-32B", 61.03),
        ("Mistral-Small-3.2-24B-Instruct-2506", 44.76),
    ],
)
def test_weight_bytes_are_those_that_a_server_logged(name: str, gib: float) -> None:
    assert load_model(name).weight_bytes_per_gpu() / 1024**3 == pytest.approx(gib, rel=0.01)


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [  # size of the safetensors files on the hub
        ("moonshotai/Kimi-K2.5", 595),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", 42.7),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", 39.8),
        ("Qwen/Qwen3-235B-A22B-FP8", 237),
    ],
)
def test_quantised_weight_bytes_are_the_size_of_the_files(name: str, gigabytes: float) -> None:
    assert load_model(name).weight_bytes_per_gpu() / 1e9 == pytest.approx(gigabytes, rel=0.03)


# -- shapes ----------------------------------------------------------------------------------------------------


def test_llama_4_maverick_has_experts_in_every_second_layer() -> None:
    model = load_model("Llama-4-Maverick")
    assert model.moe_layers == tuple(range(1, 48, 2))
    assert (model.moe_intermediate_size, model.intermediate_size) == (8192, 16384)
    assert model.shared_expert_intermediate_size == 8192


def test_llama_4_attends_to_everything_in_every_fourth_layer() -> None:
    model = load_model("Llama-4-Scout")
    assert (model.window, model.num_full_layers) == (8192, 12)
    assert 3 not in model.windowed_layers


def test_deepseek_v3_starts_with_three_dense_layers() -> None:
    model = load_model("deepseek-ai/DeepSeek-V3")
    assert (model.num_dense_layers, model.num_moe_layers, model.num_experts) == (3, 58, 256)


def test_sparse_steps_and_dense_exceptions_are_read(tmp_path: Path) -> None:
    moe = {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
    stepped = from_config(tmp_path, **moe, decoder_sparse_step=2, mlp_only_layers=[3])
    assert stepped.moe_layers == tuple(layer for layer in range(1, 32, 2) if layer != 3)
    listed = from_config(tmp_path, **moe, moe_layer_freq=[0] * 16 + [1] * 16)
    assert listed.moe_layers == tuple(range(16, 32))


@pytest.mark.parametrize(
    ("name", "window", "windowed", "full"),
    [
        ("Mistral-7B-v0.1", 4096, 32, 0),
        ("Mistral-7B-v0.3", 0, 0, 32),
        ("gemma-2-27b-it", 4096, 23, 23),
        ("gemma-3-27b-it", 1024, 52, 10),
        ("gpt-oss-120b", 128, 18, 18),
        ("Qwen2.5-72B-Instruct", 0, 0, 80),
    ],
)
def test_windowed_layers_are_those_of_the_family(name: str, window: int, windowed: int, full: int) -> None:
    model = load_model(name)
    assert (model.window, model.num_windowed_layers, model.num_full_layers) == (window, windowed, full)


def test_an_explicit_head_dim_is_used() -> None:
    model = load_model("Qwen3-0.6B")  # 1024 / 16 would be 64
    assert model.head_dim == 128
    assert model.kv_bytes_per_token_per_gpu() == 28 * 8 * 2 * 128 * 2


def test_multi_query_attention_has_one_kv_head(tmp_path: Path) -> None:
    assert from_config(tmp_path, num_key_value_heads=..., multi_query=True).num_kv_heads == 1


def test_missing_kv_heads_mean_multi_head_attention(tmp_path: Path) -> None:
    assert from_config(tmp_path, num_key_value_heads=...).num_kv_heads == 32


def test_yarn_and_llama3_scaling_give_the_advertised_context() -> None:
    lengths = {
        name: load_model(name).max_model_len for name in ("DeepSeek-V3", "Kimi-K2.5", "Llama-3.1-8B", "gpt-oss-20b")
    }
    assert list(lengths.values()) == [163840, 262144, 131072, 131072]


def test_a_multimodal_config_is_read_through_its_text_config() -> None:
    model = load_model("gemma-3-27b-it")
    assert model.hidden_size == 5376
    assert model.vision_parameters == pytest.approx(0.42e9, rel=0.1)  # SigLIP so400m


def test_what_a_family_leaves_out_is_filled_in(tmp_path: Path) -> None:
    # google/gemma-3-4b-it's own file gives no heads, no head size and no vocabulary.
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model_type": "gemma3", "text_config": {**text, "sliding_window": 1024}}), encoding="utf-8"
    )
    model, shipped = load_model(path), load_model("gemma-3-4b-it")
    assert model.num_parameters == shipped.num_parameters - shipped.vision_parameters
    assert model.windowed_layers == shipped.windowed_layers


def test_gpt_2_s_lineage_has_two_matrices_of_four_times_the_width() -> None:
    model = load_model("bloom-176b")
    assert (model.mlp_matrices, model.intermediate_size, model.tie_word_embeddings) == (2, 4 * 14336, True)
    assert [(gemm.n, gemm.k) for gemm in model.dense_mlp_gemms()] == [(4 * 14336, 14336), (14336, 4 * 14336)]


def test_tied_embeddings_are_stored_once() -> None:
    tied, parts = load_model("Llama-3.2-1B-Instruct"), load_model("Llama-3.2-1B-Instruct").parameters_by_part()
    assert tied.tie_word_embeddings
    assert "lm_head" not in parts
    assert tied.lm_head_gemm().parameters == parts["embedding"]


# -- bytes on a GPU --------------------------------------------------------------------------------------------


def test_quantised_checkpoints_keep_embeddings_and_lm_head_in_16_bit() -> None:
    full, half = load_model("Llama-3.3-70B-Instruct"), load_model("Llama-3.3-70B-Instruct-FP8-dynamic")
    before, after = full.weight_bytes_by_part(), half.weight_bytes_by_part()
    for part in ("embedding", "lm_head", "norms"):
        assert before[part] == after[part]
    assert after["attention"] == pytest.approx(before["attention"] / 2, rel=1e-3)


def test_mxfp4_covers_the_experts_alone() -> None:
    model = load_model("gpt-oss-120b")
    assert model.format_of_part("experts").name == "mxfp4"
    assert model.format_of_part("attention").name == "bf16"


def test_ignore_lists_are_read() -> None:
    assert load_model("Kimi-K2.5").quantized_parts == ("experts",)
    assert "attention" not in load_model("nvidia/DeepSeek-R1-0528-FP4").quantized_parts
    assert "attention" not in load_model("Llama-4-Scout-17B-16E-FP8").quantized_parts


def test_an_ignore_list_that_names_every_layer_is_read(tmp_path: Path) -> None:
    names = [f"model.layers.{i}.self_attn.{p}_proj" for i in range(32) for p in "qkvo"]
    settings = {"quant_method": "fp8", "modules_to_not_convert": [*names, "lm_head"]}
    assert "attention" not in from_config(tmp_path, quantization_config=settings).quantized_parts


def test_quantization_on_the_fly_covers_the_linear_layers() -> None:
    model = load_model("Llama-3.1-70B-Instruct")
    assert model.weight_bytes_per_gpu(1, "fp8") == pytest.approx(
        load_model("Llama-3.1-70B-Instruct-FP8").weight_bytes_per_gpu(), rel=1e-6
    )


@pytest.mark.parametrize("name", model_names())
def test_two_gpus_hold_half_of_the_weights_each(name: str) -> None:
    model = load_model(name)
    if model.num_attention_heads % 2:
        pytest.skip("an odd number of heads")
    one, two = model.weight_bytes_by_part(1), model.weight_bytes_by_part(2)
    # what every GPU holds whole: norms, routers, MLA's down-projections, a key-value head that cannot be halved
    replicated = one["norms"] + one.get("router", 0)
    replicated += one["attention"] // 5 if model.is_mla or model.num_kv_heads == 1 else 0
    assert sum(one.values()) / 2 <= sum(two.values()) <= (sum(one.values()) + replicated) / 2 * 1.01 + 2**20 * 64


def test_kv_heads_are_replicated_when_there_are_fewer_than_gpus() -> None:
    model = load_model("Qwen3-30B-A3B")  # 4 KV heads
    per_gpu = [model.kv_bytes_per_token_per_gpu(tp) for tp in (1, 2, 4, 8)]
    assert per_gpu[0] == 2 * per_gpu[1] == 4 * per_gpu[2]
    assert per_gpu[3] == per_gpu[2]


def test_the_mla_latent_is_on_every_gpu() -> None:
    model = load_model("DeepSeek-V3")
    assert model.kv_bytes_per_token_per_gpu(1) == model.kv_bytes_per_token_per_gpu(8) == 61 * (512 + 64) * 2


def test_an_fp8_cache_takes_half() -> None:
    model = load_model("Llama-3.1-8B")
    assert model.kv_bytes_per_token_per_gpu(1, "fp8") * 2 == model.kv_bytes_per_token_per_gpu(1) == 131072


def test_flops_are_two_per_active_weight() -> None:
    model = load_model("Llama-2-7b-hf")
    weights = model.num_parameters - 2 * 32000 * 4096 - 65 * 4096
    assert model.linear_flops_per_token == 2 * weights
    assert model.lm_head_flops_per_row == 2 * 32000 * 4096


# -- tensor parallelism ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tp"), [("Qwen2.5-7B-Instruct", 8), ("phi-4", 4), ("Llama-3.1-8B", 3), ("Yi-34B", 16)]
)
def test_a_size_that_does_not_divide_the_heads_is_refused(name: str, tp: int) -> None:
    with pytest.raises(InputError, match=r"tensor_parallel_size: must .*got"):
        check_tensor_parallel(load_model(name), tp)


def test_a_size_that_cuts_a_block_of_fp8_scales_is_refused() -> None:
    model = load_model("Qwen3-235B-A22B-FP8")  # 1536 / 8 is one and a half blocks of 128
    check_tensor_parallel(model, 4)
    with pytest.raises(InputError, match="whole blocks of 128"):
        check_tensor_parallel(model, 8)
    check_tensor_parallel(load_model("Qwen3-235B-A22B"), 8)


@pytest.mark.parametrize(
    ("name", "tp"), [("Qwen2.5-7B-Instruct", 4), ("Qwen3-30B-A3B", 8), ("Yi-34B", 8), ("DeepSeek-V3", 8)]
)
def test_a_size_that_vllm_takes_is_taken(name: str, tp: int) -> None:
    check_tensor_parallel(load_model(name), tp)


# -- names -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "repo"),
    [
        ("llama-2-70b", "meta-llama/Llama-2-70b-hf"),
        ("META-LLAMA/llama-2-70B-hf", "meta-llama/Llama-2-70b-hf"),
        ("Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"),
        ("mixtral-8x7b-v0-1", "mistralai/Mixtral-8x7B-v0.1"),
        ("Llama-4-Scout-17B-16E-FP8", "RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic"),
        ("Qwen3-14B", "Qwen/Qwen3-14B"),
    ],
)
def test_names_resolve_without_case_or_organisation(written: str, repo: str) -> None:
    assert load_model(written).name == repo


def test_no_alias_means_two_models() -> None:
    owner: dict[str, str] = {}
    for repo in model_names():
        for name in (repo, repo.rsplit("/", 1)[-1], *load_model(repo).aliases):
            assert load_model(name).name == repo, name
            assert owner.setdefault(name.lower(), repo) == repo, name


def test_an_unknown_model_gets_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"did you mean 'meta-llama/Llama-3.1-70B-Instruct'"):
        load_model("meta-llama/Llama-3.1-70B-Instuct")
    with pytest.raises(InputError, match="Qwen3-14B"):
        load_model("Qwen3-14")


def names_in_measured() -> Iterator[tuple[str, str]]:
    for path in sorted(MEASURED.glob("*.csv")):
        with path.open(encoding="utf-8") as file:
            rows = csv.DictReader(file)
            for row in rows:
                yield row.get("model") or "", row.get("gpu") or ""
    for path in sorted(MEASURED.glob("*.json")):
        for run in json.loads(path.read_text(encoding="utf-8")):
            yield run["model"], run["gpu"]


@pytest.mark.skipif(not MEASURED.is_dir(), reason="../shared/measured is not at hand")
def test_every_measured_model_and_gpu_is_in_the_catalog() -> None:
    found = set(names_in_measured())
    for name in {model for model, _ in found} - {""}:
        assert load_model(name).num_parameters > 0
    for name in {gpu for _, gpu in found} - {"", "h100_sxm_powercap"}:
        assert load_gpu(name).memory_bytes > 0


# -- broken input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads must be at least 1, got 0"),
        ({"hidden_size": ...}, "missing key hidden_size"),
        ({"hidden_size": "4096"}, "hidden_size must be an integer"),
        ({"num_key_value_heads": 5}, "must be a multiple of num_key_value_heads"),
        ({"hidden_size": 4097}, "hidden_size .4097. must be a multiple of num_attention_heads"),
        ({"vocab_size": -1}, "vocab_size must be at least 1"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers must be at most"),
        ({"num_local_experts": 8, "num_experts_per_tok": 9}, "must be at most the number of experts"),
        ({"num_local_experts": 8}, "missing key num_experts_per_tok"),
        ({"torch_dtype": "int3"}, "torch_dtype must be one of"),
        ({"quantization_config": {"quant_method": "magic"}}, "quant_method 'magic' is not known"),
        ({"quantization_config": 7}, "quantization_config must be an object"),
        ({"layer_types": ["linear_attention"] * 32}, "layers of type linear_attention are not supported"),
        ({"layer_types": ["full_attention"], "sliding_window": 8}, "layer_types must have 32 entries, got 1"),
        ({"is_encoder_decoder": True}, "only decoder-only models"),
        ({"attn_type_list": [0, 1]}, "linear attention"),
        ({"hybrid_override_pattern": "M-M*"}, "not all attention of one shape"),
        ({"moe_num_experts": 64}, "moe_num_experts: this way"),
        ({"max_position_embeddings": True}, "max_position_embeddings must be an integer"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": float("nan")}}, "factor must be a number"),
    ],
)
def test_an_impossible_config_is_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        from_config(tmp_path, **changes)
    assert "config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{\n  broken", "line 2: not JSON"),
        ("[]", "must be a JSON object, got list"),
        ("", "line 1"),
        ("9" * 9999, "not"),
    ],
)
def test_broken_json_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=problem):
        load_model(str(path))


JUNK: list[Any] = [None, 0, -1, 3, 1.5, float("nan"), True, "", "x", [], [1], ["a"], [None], {}, {"type": []}, 10**12]
JUNK += [{"quant_method": ["fp8"]}, {"rope_type": "yarn", "factor": 1e300, "original_max_position_embeddings": 10**9}]
JUNK += [
    {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": [4]}}}, "ignore": ["re:(("]}
]


def test_no_config_raises_anything_but_an_input_error() -> None:
    draw = random.Random(0)
    folder = Path(sim.catalog.__file__).parent / "models"
    configs = [json.loads(path.read_text(encoding="utf-8"))["config"] for path in sorted(folder.glob("*.json"))]
    keys = sorted({key for config in configs for key in (*config, *config.get("text_config", {}))})
    keys += ["moe_layers", "moe_layer_freq", "attn_type_list", "sliding_window_pattern", "multi_query"]
    accepted = 0
    for _ in range(3000):
        config = json.loads(json.dumps(draw.choice(configs)))
        broken = config.get("text_config", config)
        for key in draw.sample(keys, draw.randint(1, 3)):
            broken[key] = draw.choice(JUNK)
        with contextlib.suppress(InputError):
            assert spec_from_config(config, "broken").num_parameters > 0
            accepted += 1
    assert 300 < accepted < 2700


def test_missing_and_binary_files_are_refused(tmp_path: Path) -> None:
    binary = tmp_path / "config.json"
    binary.write_bytes(b"\xff\xfe\x00")
    for name in (str(binary), str(tmp_path / "nowhere.json"), "", "x" * 5000, "a\0b"):
        with pytest.raises(InputError):
            load_model(name)


def test_a_folder_is_read_through_its_config_json(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config.json in"):
        load_model(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_2_7B), encoding="utf-8")
    assert load_model(str(tmp_path)).num_parameters == 6738415616
    assert load_model(str(tmp_path)).name == tmp_path.name


# -- GPUs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", gpu_names())
def test_gpu_figures_are_of_the_right_size(name: str) -> None:
    gpu = load_gpu(name)
    assert 50e12 < gpu.bf16_flops_per_s < 3e15
    assert 250e9 < gpu.memory_bandwidth_bytes_per_s < 10e12
    assert 0.9 < gpu.memory_bytes / gpu.memory_nominal_bytes <= 1
    assert 30e9 <= gpu.interconnect_bytes_per_s <= 1e12
    assert 0.1 < gpu.price_usd_per_hour < 20
    assert all(isinstance(getattr(gpu, field), float) for field in ("interconnect_bytes_per_s", "fp8_flops_per_s"))
    if gpu.fp8_flops_per_s:  # dense tensor cores double as the width halves; a sparse figure would be four times
        assert gpu.fp8_flops_per_s / gpu.bf16_flops_per_s == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("written", ["h100_sxm", "H100", "h100-sxm-80gb", "NVIDIA H100 80GB HBM3"])
def test_gpus_resolve_by_alias(written: str) -> None:
    assert load_gpu(written).name == "H100-SXM-80GB"


def test_an_unknown_gpu_gets_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"did you mean 'H100"):
        load_gpu("H100-SXN-80GB")


def test_no_gpu_alias_means_two_gpus() -> None:
    for name in gpu_names():
        for alias in load_gpu(name).aliases:
            assert load_gpu(alias).name == name


def test_a_gpu_without_the_units_says_so() -> None:
    gpu: GPUSpec = load_gpu("A100-SXM-80GB")
    assert not gpu.supports("fp8")
    with pytest.raises(InputError, match="does not compute in fp8"):
        gpu.flops_per_s("fp8")
