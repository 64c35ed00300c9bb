"""Results of load generators read to the same figures, compared with plans, and fitted to."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from planner.calibration.serving import set_path
from planner.cli import main
from planner.commands.validate import assigned
from planner.measurements import _inference_perf
from planner.measurements.results import LoadResult, read_results
from planner.parameters import resolve
from planner.plan import Plan, load_plan, make_workload, simulate_plan
from planner.recalibrate import measured_runs, recalibrate, start_document
from planner.run_plans import plan_of_run
from planner.store import Run, load_run
from planner.validation import validate
from sim.catalog import load_gpu, load_model
from sim.deployment import Deployment
from sim.errors import InputError
from sim.latency import parse_coefficients
from sim.metrics import flatten
from sim.result import Result
from sim.simulate import simulate

STAGES = [{"rate_rps": 2, "duration_s": 10}, {"rate_rps": 6, "duration_s": 10}]
SPACE = {
    "name": "loop",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "workload": {
        "kind": "lengths",
        "input": 256,
        "output": {"dist": "uniform", "min": 8, "max": 40},
        "arrival": {"process": "poisson", "stages": STAGES},
    },
    "slo": ["ttft_mean_ms <= 200"],
    "objectives": [{"minimize": "ttft_mean_ms"}, {"minimize": "cost_per_hour"}],
    "space": {"gpu": ["L4", "L40S", "H100-SXM-80GB"]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with a front of three plans."""
    folder = tmp_path_factory.mktemp("loop")
    (folder / "space.yaml").write_text(yaml.safe_dump(SPACE))
    assert (
        main(["search", str(folder / "space.yaml"), "--out", str(folder / "run"), "--executor", "serial", "--quiet"])
        == 0
    )
    return folder / "run"


@pytest.fixture(scope="module")
def served(folder: Path) -> Result:
    """What the recommended plan does, request by request."""
    plan = load_plan(folder / "plans" / f"{recommended(load_run(folder))}.yaml")
    gpu = load_gpu(plan.deployment["gpu"])
    return simulate(Deployment(load_model(plan.model), gpu), make_workload(plan.workload, folder, 0))


def recommended(run: Run) -> str:
    from planner.report import verdict

    plan = verdict.recommended(run)
    assert plan is not None
    return str(plan["id"])


def predicted(folder: Path, plan: str) -> dict[str, float]:
    metrics: dict[str, float] = load_run(folder).by_id()[plan]["metrics"]
    return metrics


# -- the same requests, as each tool would have written them down ------------------------------------------------


def summary(values: np.ndarray, scale: float, mean: str = "mean", median: str = "median") -> dict[str, float]:
    values = values[np.isfinite(values)] * scale
    found = {mean: float(values.mean()), median: float(np.median(values))}
    return found | {f"p{p}": float(np.percentile(values, p)) for p in (90, 95, 99)}


def vllm_bench(result: Result) -> Any:
    records, whole = result.records, result.summary()
    found: dict[str, Any] = {
        "request_throughput": whole["requests_per_s"],
        "completed": whole["completed"],
        "failed": 0,
    }
    found |= {"output_throughput": whole["output_tokens_per_s"], "total_token_throughput": whole["total_tokens_per_s"]}
    for name, values in (("ttft", records.ttft_ms), ("tpot", records.tpot_ms), ("e2el", records.e2e_ms)):
        found |= {f"{key}_{name}_ms": value for key, value in summary(values, 1).items()}
    return found | {"total_output_tokens": int(records.output_tokens.sum())}


def inference_perf(result: Result) -> Any:
    records, whole = result.records, result.summary()
    half = {"mean": whole["tpot_ms"]["mean"] / 2e3}  # two stream chunks a token
    latency = {
        "request_latency": summary(records.e2e_ms, 1e-3),
        "time_to_first_token": summary(records.ttft_ms, 1e-3),
        "time_per_output_token": half,
        "inter_token_latency": half,
    }
    throughput = {"requests_per_sec": whole["requests_per_s"], "output_tokens_per_sec": whole["output_tokens_per_s"]}
    return {
        "load_summary": {"count": whole["offered"], "requested_rate": 4.0, "achieved_rate": 4.0},
        "successes": {
            "count": whole["completed"],
            "latency": latency,
            "throughput": throughput,
            "output_len": {"mean": float(records.output_tokens.mean())},
        },
        "failures": {"count": 0},
    }


def inference_perf_requests(result: Result) -> Any:
    records = result.records
    rows = []
    for i in range(len(records.arrival_ms)):
        start = 1e3 + records.arrival_ms[i] / 1e3
        first, tokens = start + records.ttft_ms[i] / 1e3, int(records.output_tokens[i])
        rows.append(
            {
                "start_time": start,
                "end_time": start + records.e2e_ms[i] / 1e3,
                "error": None,
                "info": {"response_metrics": {"output_tokens": tokens, "output_token_times": [first]}},
            }
        )
    return rows


def guidellm(result: Result) -> Any:
    records, whole = result.records, result.summary()

    def status(values: np.ndarray, scale: float = 1.0) -> dict[str, Any]:
        found = summary(values, scale)
        percentiles = {key: found[key] for key in ("p90", "p95", "p99")} | {"p50": found["median"]}
        return {"successful": {"mean": found["mean"], "median": found["median"], "percentiles": percentiles}}

    metrics = {
        "time_to_first_token_ms": status(records.ttft_ms),
        "inter_token_latency_ms": status(records.tpot_ms),
        "time_per_output_token_ms": status(records.e2e_ms / records.output_tokens),
        "request_latency": status(records.e2e_ms, 1e-3),
        "requests_per_second": {"successful": {"mean": whole["requests_per_s"]}},
        "output_tokens_per_second": {"successful": {"mean": whole["output_tokens_per_s"]}},
        "output_token_count": {"successful": {"mean": float(records.output_tokens.mean())}},
        "request_totals": {"successful": whole["completed"], "errored": 0},
    }
    return {"benchmarks": [{"metrics": metrics}]}


def aiperf(result: Result) -> Any:
    records, whole = result.records, result.summary()
    return {
        "time_to_first_token": {"unit": "ms", **summary(records.ttft_ms, 1, "avg", "p50")},
        "inter_token_latency": {"unit": "us", **summary(records.tpot_ms, 1e3, "avg", "p50")},
        "request_latency": {"unit": "s", **summary(records.e2e_ms, 1e-3, "avg", "p50")},
        "request_throughput": {"unit": "requests/sec", "avg": whole["requests_per_s"]},
        "output_token_throughput": {"unit": "tokens/sec", "avg": whole["output_tokens_per_s"]},
        "request_count": {"unit": "requests", "avg": float(whole["completed"])},
    }


TOOLS = {
    "vllm-bench": (vllm_bench, "result.json"),
    "inference-perf": (inference_perf, "summary_lifecycle_metrics.json"),
    "inference-perf requests": (inference_perf_requests, "per_request_lifecycle_metrics.json"),
    "guidellm": (guidellm, "benchmarks.json"),
    "aiperf": (aiperf, "profile_export_aiperf.json"),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_s_file_reads_to_what_the_client_saw(tool: str, served: Result, tmp_path: Path) -> None:
    write, name = TOOLS[tool]
    (tmp_path / name).write_text(json.dumps(write(served)))
    (result,) = read_results(tmp_path / name)
    whole = served.summary()
    assert result.tool == tool.split()[0]
    assert result.completed == whole["completed"]
    for latency in ("ttft", "e2e"):
        for statistic in ("mean", "p50", "p90", "p99"):
            assert result.metrics[f"{latency}_{statistic}_ms"] == pytest.approx(whole[f"{latency}_ms"][statistic])
    assert result.metrics["requests_per_s"] == pytest.approx(whole["requests_per_s"], rel=1e-3)
    assert result.metrics["output_tokens_per_s"] == pytest.approx(whole["output_tokens_per_s"], rel=1e-3)
    # A summary of means knows the mean TPOT only as a ratio of means; the others have it request by request.
    near = 0.05 if tool == "inference-perf" else 1e-6
    assert result.metrics["tpot_mean_ms"] == pytest.approx(whole["tpot_ms"]["mean"], rel=near)


def test_a_folder_of_results_is_read_by_its_summary(served: Result, tmp_path: Path) -> None:
    (tmp_path / "summary_lifecycle_metrics.json").write_text(json.dumps(inference_perf(served)))
    (tmp_path / "config.yaml").write_text("a: b")
    assert read_results(tmp_path)[0].completed == served.summary()["completed"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a result of any of"),
        ('{"benchmarks": [{"metrics": {}}]}', "holds no latency"),
        ('{"load_summary": {}, "successes": {"latency": 3}}', "is not as the tool writes it"),
        ('{"request_latency": {"unit": "parsecs", "avg": 1}}', "parsecs"),
        ("[" * 100_000, "nested"),
    ],
)
def test_a_file_that_is_no_result_is_said_to_be_none(content: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "some.json").write_text(content)
    with pytest.raises(InputError, match=problem) as error:
        read_results(tmp_path / "some.json")
    assert error.value.field.endswith("some.json")


# -- against plans ------------------------------------------------------------------------------------------------


def result_of(metrics: dict[str, float], **more: Any) -> LoadResult:
    return LoadResult(tool="vllm-bench", path="some.json", metrics=metrics, **more)


def test_a_measurement_that_is_the_prediction_leaves_nothing_to_say(folder: Path) -> None:
    run = load_run(folder)
    names = ("ttft_mean_ms", "tpot_mean_ms", "e2e_p99_ms", "requests_per_s")
    measured = [(plan, result_of({name: predicted(folder, plan)[name] for name in names})) for plan in run.front]
    found = validate(run, measured)
    assert all(metric.error == 0 for check in found.plans for metric in check.metrics)
    assert found.advice == []
    assert {order.metric for order in found.order} == {"ttft_mean_ms", "tpot_mean_ms"}
    assert all(order.kept == order.pairs > 0 and not order.broken for order in found.order)


def test_plans_that_come_out_in_another_order_are_named(folder: Path) -> None:
    run = load_run(folder)
    values = sorted((predicted(folder, plan)["ttft_mean_ms"], plan) for plan in run.front)
    turned = [value for value, _ in reversed(values)]
    measured = [(plan, result_of({"ttft_mean_ms": value})) for value, (_, plan) in zip(turned, values, strict=True)]
    (order,) = validate(run, measured).order
    assert (order.pairs, order.kept) == (len(values) * (len(values) - 1) // 2, 0)
    assert order.broken[0] == (values[0][1], values[1][1])


def test_first_tokens_that_all_come_later_point_to_the_way_to_the_engine_not_to_its_steps(folder: Path) -> None:
    metrics = predicted(folder, recommended(load_run(folder)))
    measured = {"ttft_mean_ms": metrics["ttft_mean_ms"] + 60, "tpot_mean_ms": metrics["tpot_mean_ms"]}
    (advice,) = validate(load_run(folder), [(recommended(load_run(folder)), result_of(measured))]).advice
    assert "60.0 ms later" in advice or "60 ms later" in advice
    assert "request.before_queue_us" in advice


def test_tokens_that_all_come_later_point_to_the_steps(folder: Path) -> None:
    plan = recommended(load_run(folder))
    measured = {"tpot_mean_ms": 1.25 * predicted(folder, plan)["tpot_mean_ms"]}
    (advice,) = validate(load_run(folder), [(plan, result_of(measured))]).advice
    assert "-20%" in advice
    assert "engine.layer_us" in advice


def test_a_limit_that_holds_in_prediction_only_is_told(folder: Path) -> None:
    plan = recommended(load_run(folder))
    (check,) = validate(load_run(folder), [(plan, result_of({"ttft_mean_ms": 201.0}))]).plans
    assert check.limits == [("mean TTFT ≤ 200 ms", True, False)]


def test_another_load_than_the_simulated_one_is_told(folder: Path) -> None:
    plan = recommended(load_run(folder))
    result = result_of({"ttft_mean_ms": 50.0}, output_tokens_mean=200.0, completed=7, failed=0)
    (check,) = validate(load_run(folder), [(plan, result)]).plans
    assert any("200 output tokens" in note and "ignore_eos" in note for note in check.notes)
    assert any("7 requests were measured" in note for note in check.notes)


def test_tpot_is_left_out_where_inference_perf_counted_text_rather_than_tokens(folder: Path, served: Result) -> None:
    plan = recommended(load_run(folder))
    document = inference_perf(served)
    document["successes"]["output_len"]["mean"] *= 0.8
    (text,) = _inference_perf.read(document, "summary_lifecycle_metrics.json")
    document["successes"]["output_tokens"] = {"mean": float(served.records.output_tokens.mean())}
    (tokens,) = _inference_perf.read(document, "summary_lifecycle_metrics.json")
    checks = validate(load_run(folder), [(plan, text), (plan, tokens)]).plans
    assert [check.check("tpot_mean_ms") is None for check in checks] == [True, False]
    assert "TPOT is left out" in checks[0].notes[0]


def test_a_measurement_is_inside_or_outside_the_interval_of_the_plan(folder: Path) -> None:
    run = load_run(folder)
    plan = recommended(run)
    for evaluation in run.evaluations:
        if evaluation["id"] == plan:
            value = evaluation["metrics"]["ttft_mean_ms"]
            evaluation["intervals"] = {"ttft_mean_ms": [0.9 * value, 1.1 * value]}
    run = replace(run, path=run.path)
    inside = validate(run, [(plan, result_of({"ttft_mean_ms": 1.05 * value}))]).plans[0].metrics[0]
    outside = validate(run, [(plan, result_of({"ttft_mean_ms": 1.15 * value}))]).plans[0].metrics[0]
    none = validate(run, [(plan, result_of({"e2e_max_ms": 1.15 * value}))]).plans[0].metrics[0]
    assert (inside.inside, outside.inside, none.inside) == (True, False, None)


def test_a_stage_is_compared_with_the_same_stage_of_the_simulation(folder: Path, served: Result) -> None:
    plan = recommended(load_run(folder))
    stages = served.summary()["stages"]
    measured = [(plan, result_of({"e2e_mean_ms": stages[i]["e2e_ms"]["mean"]}, stage=i)) for i in range(2)]
    checks = validate(load_run(folder), measured).plans
    assert [check.metrics[0].error for check in checks] == [0, 0]
    assert checks[0].metrics[0].predicted != checks[1].metrics[0].predicted


def test_whose_result_a_file_is_follows_from_its_path_or_is_said(folder: Path, served: Result, tmp_path: Path) -> None:
    run = load_run(folder)
    other = next(plan for plan in run.front if plan != recommended(run))
    inside = tmp_path / f"2-{other}" / "result.json"
    inside.parent.mkdir()
    inside.write_text(json.dumps(vllm_bench(served)))
    outside = tmp_path / "result.json"
    outside.write_text(inside.read_text())
    assert assigned(run, [str(inside)])[0][0] == other
    assert assigned(run, [str(outside)])[0][0] == recommended(run)
    assert assigned(run, [f"{other}={outside}"])[0][0] == other
    with pytest.raises(InputError, match="whose result"):
        assigned(run, [str(outside), str(inside)])
    with pytest.raises(InputError, match="no plan 'nobody'"):
        assigned(run, [f"nobody={outside}"])


# -- back into the simulator --------------------------------------------------------------------------------------


def seen_by(folder: Path, changes: dict[str, float], gpu: str = "") -> dict[str, Any]:
    """A validation (on one GPU) against a machine that differs from the shipped set in a known way."""
    document = start_document(None)
    for path, value in changes.items():
        set_path(document, path, value)
    truth = parse_coefficients(document, "truth")
    run = load_run(folder)
    measured = []
    for plan_id in run.by_id():
        plan = plan_of_run(run, plan_id)
        if gpu not in plan.deployment["gpu"]:
            continue
        deployment = Deployment(load_model(plan.model), load_gpu(plan.deployment["gpu"]))
        whole = simulate(deployment, make_workload(plan.workload, folder, 0), coefficients=truth).summary()
        seen = {f"{name}_mean_ms": whole[f"{name}_ms"]["mean"] for name in ("ttft", "tpot", "e2e")}
        measured.append((plan_id, result_of(seen)))
    found: dict[str, Any] = json.loads(json.dumps(validate(run, measured).to_dict()))
    return found


def test_overheads_that_made_the_measurements_are_found_again(folder: Path) -> None:
    found = seen_by(folder, {"request.before_queue_us": 20_000, "engine.layer_us": 24})
    fitted, refit = recalibrate(start_document(None), measured_runs(found))
    assert fitted["request"]["before_queue_us"] == pytest.approx(20_000, rel=0.02)
    assert fitted["engine"]["layer_us"] == pytest.approx(24, rel=0.05)
    assert refit.before["ttft_mean"] > 15
    assert max(refit.after.values()) < 0.5


def test_weights_that_are_read_slower_than_the_shipped_set_has_it_are_found_again(folder: Path) -> None:
    found = seen_by(folder, {"gpus.H100-SXM-80GB.gemm.bf16.bandwidth": 0.5}, "H100")
    fitted, refit = recalibrate(start_document(None), measured_runs(found))
    assert fitted["gpus"]["H100-SXM-80GB"]["gemm"]["bf16"]["bandwidth"] == pytest.approx(0.5, rel=0.1)
    assert refit.before["tpot_mean"] > 20
    assert refit.after["tpot_mean"] < 0.5


def test_a_gpu_that_borrows_a_table_gets_its_own_before_it_is_changed(folder: Path) -> None:
    document = start_document(None)
    before = json.dumps(document["gpus"])
    found = seen_by(folder, {}, "L4")
    for check in found["plans"]:
        check["metrics"]["tpot_mean_ms"]["measured"] *= 1.3
    found["plans"] = [check for check in found["plans"] if check["plan"]["deployment"]["gpu"] == "L4"]
    fitted, _ = recalibrate(document, measured_runs(found))
    assert set(fitted["gpus"]) == {*document["gpus"], "L4"}
    assert json.dumps({name: fitted["gpus"][name] for name in document["gpus"]}) == before


def test_the_commands_close_the_loop(
    folder: Path, served: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = inference_perf(served)
    document["successes"]["latency"]["time_to_first_token"]["mean"] += 0.05
    document["successes"]["latency"]["request_latency"]["mean"] += 0.05
    (tmp_path / "summary_lifecycle_metrics.json").write_text(json.dumps(document))
    seen, fitted = tmp_path / "seen.json", tmp_path / "mine.yaml"
    assert main(["validate", str(folder), str(tmp_path), "--json", str(seen)]) == 0
    assert re.search(r"(49.9|50|50.0) ms later than predicted", " ".join(capsys.readouterr().out.split()))
    arguments = ["calibrate", "--from-validation", str(seen), "--results", str(folder), "--out", str(fitted)]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert "front after:" in told
    assert yaml.safe_load(fitted.read_text())["name"] == "mine"
    again = tmp_path / "again"
    space = folder.parent / "space.yaml"
    assert main(["search", str(space), "--out", str(again), "--set", f"coefficients={fitted}", "--quiet"]) == 0
    gpu = load_run(folder).by_id()[recommended(load_run(folder))]["parameters"]["gpu"]
    before, after = (
        next(e["metrics"]["ttft_mean_ms"] for e in load_run(run).evaluations if e["parameters"]["gpu"] == gpu)
        for run in (folder, again)
    )
    late = after - before
    assert late == pytest.approx(50, rel=0.1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "RUN", "nowhere.json"],
        ["calibrate", "--from-validation", "nowhere.json", "--out", "out.yaml"],
        ["calibrate", "--out", "out.yaml"],
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(
    arguments: list[str],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(folder) if word == "RUN" else word for word in arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


# Two real runs of Llama-2-7B on one H100 (vLLM 0.15.1, measured with inference-perf; inference-sim, Apache-2.0).
CODEGEN = {"ttft": (27.982, 33.35), "e2e": (2080.74, 2386.523)}  # mean, p90 in ms
ROLEPLAY = {"ttft": (27.129, 31.183), "e2e": (2071.12, 2259.961)}


def llama_2_7b(question: int, system: int, output: int, stages: list[dict[str, int]]) -> dict[str, Any]:
    return {
        "name": "real",
        "model": "meta-llama/Llama-2-7b-hf",
        "workload": {
            "kind": "shared_prefix",
            "num_groups": 10,
            "num_prompts_per_group": 10,
            "system_prompt_len": system,
            "question_len": question,
            "output_len": output,
            "arrival": {"process": "normalized-poisson", "stages": stages},
        },
        "objectives": [{"minimize": "ttft_mean_ms"}],
        "space": {"gpu": "H100-SXM-80GB", "max_num_seqs": 128, "max_num_batched_tokens": 2048, "max_model_len": 4096},
    }


def test_a_real_benchmark_closes_the_loop_and_helps_another_run_of_the_model(tmp_path: Path) -> None:
    stages = [{"rate_rps": 5, "duration_s": 600}, {"rate_rps": 10, "duration_s": 600}]
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(llama_2_7b(466, 100, 247, stages)))
    other = llama_2_7b(600, 150, 251, [{"rate_rps": 6, "duration_s": 1200}])
    latency = {
        key: {"mean": CODEGEN[name][0] / 1e3, "p90": CODEGEN[name][1] / 1e3}
        for name, key in (("ttft", "time_to_first_token"), ("e2e", "request_latency"))
    }
    successes = {"count": 9000, "latency": latency, "output_len": {"mean": 195.8}, "output_tokens": {"mean": 247.0}}
    report = {"load_summary": {"count": 9000}, "successes": successes, "failures": {"count": 0}}
    (tmp_path / "summary_lifecycle_metrics.json").write_text(json.dumps(report))
    run, seen, mine = (str(tmp_path / name) for name in ("run", "seen.json", "mine.yaml"))
    assert main(["search", str(tmp_path / "own.yaml"), "--out", run, "--executor", "serial", "--quiet"]) == 0
    assert main(["validate", run, str(tmp_path / "summary_lifecycle_metrics.json"), "--json", seen]) == 0
    assert main(["calibrate", "--from-validation", seen, "--out", mine]) == 0
    (check,) = json.loads(Path(seen).read_text())["plans"]
    assert set(check["metrics"]) >= {"ttft_mean_ms", "ttft_p90_ms", "tpot_mean_ms", "e2e_mean_ms", "e2e_p90_ms"}
    assert all(abs(values["error_percent"]) < 15 for values in check["metrics"].values())
    errors = []
    for coefficients in (None, mine):
        plan = Plan(
            other["model"], other["workload"], resolve(other["space"]), coefficients=coefficients, folder=tmp_path
        )
        found = flatten(simulate_plan(plan).summary())
        errors.append([abs(found[f"{name}_mean_ms"] / ROLEPLAY[name][0] - 1) for name in ("ttft", "e2e")])
    before, after = errors
    assert sum(after) < sum(before) + 0.01
    assert max(after) < 0.1
