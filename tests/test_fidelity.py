"""`planner fidelity`: runs of every format are simulated as they were measured, and the errors add up."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from planner.fidelity import Comparison, FidelityReport, run_fidelity
from planner.measurements import read_runs
from sim.errors import InputError

LOAD_POINT = {
    "id": "a",
    "source": "mine",
    "gpu": "h100_sxm",
    "model": "Llama-3.1-8B-Instruct",
    "precision": "bf16",
    "tp": "1",
    "replicas": "1",
    "engine": "vllm",
    "engine_version": "0.15.1",
    "max_num_seqs": "",
    "max_num_batched_tokens": "",
    "max_model_len": "",
    "gpu_mem_util": "",
    "prefix_caching": "",
    "workload": "random",
    "isl_mean": "512",
    "osl_mean": "64",
    "arrival": "closed",
    "rate_rps": "",
    "concurrency": "4",
    "n_requests": "40",
    "ttft_mean_ms": "40",
    "ttft_p50_ms": "",
    "tpot_mean_ms": "8",
    "tpot_p50_ms": "",
    "out_tok_s": "400",
    "quality": "ok",
    "note": "",
}


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def open_loop_run(**changes: Any) -> dict[str, Any]:
    run: dict[str, Any] = {
        "id": "r",
        "engine_version": "0.15.1",
        "gpu": "H100-SXM-80GB",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "precision": "fp16",
        "tensor_parallel_size": 1,
        "max_num_seqs": 64,
        "workload": {
            "kind": "shared_prefix",
            "num_groups": 2,
            "num_prompts_per_group": 3,
            "system_prompt_len": 32,
            "question_len": 64,
            "output_len": 16,
            "stages": [{"rate": 4, "duration": 10}],
        },
        "measured": {"overall": {"ttft_mean_ms": 20.0, "e2e_mean_ms": 130.0, "e2e_p99_ms": 150.0}},
    }
    return run | changes


def test_an_open_loop_run_is_deployed_as_it_says(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([open_loop_run(), open_loop_run(id="old", engine_version="0.11.0")]), encoding="utf-8")
    (new, old), skipped = read_runs([path])
    assert not skipped
    assert (new.deployment.max_num_seqs, new.deployment.max_num_batched_tokens) == (64, 2048)
    assert new.deployment.async_scheduling
    assert not old.deployment.async_scheduling, "asynchronous scheduling is the default from 0.14 only"
    workload = new.workload(0)
    assert len(workload) == 40
    assert set(workload.prompt_tokens.tolist()) == {96}


def test_a_report_holds_what_scripts_read(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([open_loop_run()]), encoding="utf-8")
    document = run_fidelity([path]).to_dict()
    assert {"overall", "by_gpu", "by_model", "by_source", "rows"} <= document.keys()
    assert document["overall"]["e2e_mean"].keys() == {"n", "median_ape", "mean_ape", "bias"}
    assert {row["metric"] for row in document["rows"]} == {"ttft_mean", "e2e_mean", "e2e_p99"}
    for row in document["rows"]:
        assert row["ape"] == pytest.approx(100 * abs(row["predicted"] / row["measured"] - 1))
    json.dumps(document)


def test_errors_are_summed_up_by_metric() -> None:
    def row(error: float) -> Comparison:
        return Comparison(
            "r", "ttft_mean", 100.0, 100.0 + error, abs(error), "mean", "s", "g", "h", "m", "bf16", False, "ok"
        )

    summary = FidelityReport([row(-10.0), row(2.0), row(30.0)]).summary()["ttft_mean"]
    assert summary["n"] == 3
    assert summary["median_ape"] == pytest.approx(10.0)
    assert summary["mean_ape"] == pytest.approx(14.0)
    assert summary["bias"] == pytest.approx(2.0)


def test_a_load_point_runs_its_users_in_a_closed_loop(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "points.csv", [LOAD_POINT])
    (run,), _ = read_runs([path])
    workload = run.workload(0)
    assert (workload.users, len(workload)) == (4, 40)
    assert run.deployment.max_num_seqs == 1024, "vllm serve's default on a GPU of 70 GiB and more"
    assert not run.deployment.enable_prefix_caching or len(workload.contents) == 1, "random prompts share nothing"
    rows = {row.metric: row for row in run_fidelity([path]).rows}
    throughput = rows["output_tokens_per_s"].predicted
    assert throughput == pytest.approx(
        4 * 64e3 / (rows["ttft_mean"].predicted + 63 * rows["tpot_mean"].predicted), rel=0.05
    )


def test_rows_that_are_not_ok_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "points.csv", [LOAD_POINT, LOAD_POINT | {"id": "b", "quality": "saturated"}])
    report = run_fidelity([path])
    assert {row.id for row in report.rows} == {"a"}
    assert [item.reason for item in report.skipped] == ["quality: saturated"]
    assert {row.id for row in run_fidelity([path], defective=True).rows} == {"a", "b"}


def test_what_cannot_be_simulated_as_measured_is_named(tmp_path: Path) -> None:
    rows = [
        LOAD_POINT | {"id": "pd", "disagg": "1P+1D"},
        LOAD_POINT | {"id": "big", "model": "Llama-3.1-405B-Instruct", "disagg": ""},
        LOAD_POINT | {"id": "unknown", "model": "Nobody-7B", "disagg": ""},
    ]
    reasons = {item.id: item.reason for item in run_fidelity([write_csv(tmp_path / "p.csv", rows)]).skipped}
    assert reasons.keys() == {"pd", "big", "unknown"}
    assert "separate replicas" in reasons["pd"]
    assert "GiB" in reasons["big"]
    assert "Nobody-7B" in reasons["unknown"]


def test_a_median_stands_in_for_a_mean_that_was_not_recorded(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "points.csv", [LOAD_POINT | {"ttft_mean_ms": "", "ttft_p50_ms": "33"}])
    rows = {row.metric: row for row in run_fidelity([path]).rows}
    assert (rows["ttft_mean"].measured, rows["ttft_mean"].statistic) == (33.0, "p50")
    assert rows["tpot_mean"].statistic == "mean"


def test_a_precision_selects_the_checkpoint_of_the_same_shape(tmp_path: Path) -> None:
    rows = [LOAD_POINT | {"id": p, "model": "Llama-3.1-70B", "tp": "4", "precision": p} for p in ("bf16", "fp8", "fp4")]
    runs, _ = read_runs([write_csv(tmp_path / "points.csv", rows)])
    assert [run.deployment.model.weight_format for run in runs] == ["", "fp8", "nvfp4"]


def test_a_replay_keeps_each_request_where_it_was(tmp_path: Path) -> None:
    requests = [
        {"request": f"b{i}", "arrival_s": f"{0.5 * i}", "input_tokens": f"{100 + i}", "output_tokens": "20",
         "ttft_ms": "60", "e2e_ms": "500"} for i in range(20)
    ]  # fmt: skip
    path = write_csv(tmp_path / "llmservingsim_RTXPRO6000_Llama-3.1-8B.csv", requests)
    (run,), _ = read_runs([path])
    workload = run.workload(0)
    assert workload.arrival_ps.tolist() == [500_000_000_000 * i for i in range(20)]
    assert workload.prompt_tokens.tolist() == list(range(100, 120))
    assert run.measured["e2e_mean"] == 500
    assert run.measured["tpot_mean"] == pytest.approx(440 / 19)


def test_a_file_of_no_known_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match="neither"):
        read_runs([path])
    with pytest.raises(InputError, match="no such file"):
        read_runs([tmp_path / "none.json"])
    broken = tmp_path / "broken.json"
    broken.write_text("[1,", encoding="utf-8")
    with pytest.raises(InputError, match="line 1"):
        read_runs([broken])


def test_a_plot_shows_each_measured_metric(tmp_path: Path) -> None:
    from planner.fidelity_plot import fidelity_figure

    path = write_csv(tmp_path / "points.csv", [LOAD_POINT])
    figure = fidelity_figure(run_fidelity([path]))
    assert [axis.get_title() for axis in figure.axes] == ["TTFT, ms", "TPOT, ms", "output tokens/s"]


def test_clients_that_wait_for_answers_are_replayed_as_a_closed_loop(tmp_path: Path) -> None:
    turns = [
        {"max_num_seqs": "16", "start_s": f"{2 * i + client}", "client": f"{client}", "conv": f"{client}",
         "input_tokens": f"{100 * (i + 1)}", "output_tokens": "50", "ttft_ms": "60", "tpot_ms": "8", "e2e_ms": "450"}
        for i in range(4) for client in (0, 1)
    ]  # fmt: skip
    path = write_csv(tmp_path / "b200_llama70b_fp4_multiturn_tp4.csv", turns)
    (run,), _ = read_runs([path])
    workload = run.workload(0)
    assert workload.users == 2
    assert (run.deployment.tensor_parallel_size, run.deployment.max_num_seqs) == (4, 16)
    assert run.deployment.kv_cache_dtype == "fp8"
    rows = {row.metric: row.predicted for row in run_fidelity([path]).rows}
    assert rows["e2e_mean"] > rows["ttft_mean"] > 0


def test_a_document_leaves_out_what_was_fitted_on(tmp_path: Path) -> None:
    from planner.calibration.serving import is_fit_row
    from planner.fidelity_document import fidelity_document

    rows = [LOAD_POINT | {"id": f"p{i}", "concurrency": str(1 + i)} for i in range(8)]
    report = run_fidelity([write_csv(tmp_path / "points.csv", rows)])
    held = sum(not is_fit_row(row["id"]) for row in rows)
    assert 0 < held < len(rows)
    text = fidelity_document(report, {})
    assert f"; {held})" in text
    assert f"; {len(rows)})" not in text
