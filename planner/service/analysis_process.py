"""The process that simulates a plan on demand: a question on its input, the answer in a file."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.plan import Plan, simulate_plan
from planner.policy_path import find_policies
from planner.run_plans import plan_of_run
from planner.service.json_text import to_text
from planner.store import Run, load_run, write_atomically
from sim.errors import InputError

Question = dict[str, Any]
NICE = 5
LEFT_OUT = "LEFT-OUT.txt"
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the same files make the same archive


def main() -> int:
    """Answer the question on the input's first line. 0: the answer is in its file; 2: it is wrong, and the output says
    why."""
    question: Question = json.loads(sys.stdin.readline())
    os.nice(NICE)
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (question["memory_bytes"], question["memory_bytes"]))
    if question["files"] is not None:
        os.chdir(question["files"])  # what a space's relative paths are relative to
        if question["policies"]:
            find_policies(Path.cwd())
    try:
        answer = ANSWERS[question["kind"]](question)
    except InputError as error:
        print(json.dumps({"field": error.field, "problem": error.problem}))
        return 2
    write_atomically(Path(question["out"]), answer if isinstance(answer, bytes) else to_text(answer))
    return 0


def _run(question: Question, job: str) -> Run:
    return load_run(Path(question["runs"]) / job)


def _plan(question: Question, run: Run, plan_id: str) -> Plan:
    """The plan, if it is small enough to be looked at request by request."""
    from planner.plan import make_workload

    plan = plan_of_run(run, plan_id)
    count, most = len(make_workload(plan.workload, plan.folder, plan.seed)), question["most_requests"]
    if count > most:
        raise InputError("plan", f"serves {count:,} requests; at most {most:,} are looked at one by one")
    return plan


def _simulation(question: Question) -> Any:
    from planner.service.timeline import distributions, timeline

    plan = _plan(question, _run(question, question["job"]), question["plan"])
    result = simulate_plan(plan, sampled=True)
    parts = result.time_parts()
    return {
        "id": question["plan"],
        "summary": result.summary(),
        "cdf": distributions(result),
        "timeline": timeline(result),
        "time_parts": parts,
    }


def _replay(question: Question) -> Any:
    from planner.parameters import resolve
    from planner.service.replay import replay

    plan = _plan(question, _run(question, question["job"]), question["plan"])
    if question["routing"] is not None:
        plan = replace(plan, deployment=resolve(plan.deployment | {"routing": question["routing"]}))
    return {"id": question["plan"]} | replay(plan, simulate_plan(plan))


def _explain(question: Question) -> Any:
    from planner.counterfactuals import what_if
    from planner.report import names, verdict
    from planner.report import what_if as words

    run = _run(question, question["job"])
    plan = _plan(question, run, question["plan"])
    metrics = words.shown_metrics(verdict.ttft_metric(run), verdict.tpot_metric(run))
    found = words.what_if_dict(what_if(plan), metrics)
    label = names.plan_label(plan.deployment)
    return {"id": question["plan"], "label": label, "metrics": list(metrics)} | found


def _compare(question: Question) -> Any:
    from planner.compare import change_words, comparison_dict, shown_metrics, side_of
    from planner.report import names
    from planner.service.timeline import distributions

    sides = []
    for job, plan_id in (question["a"], question["b"]):
        run = _run(question, job)
        sides.append(side_of(_plan(question, run, plan_id), f"{run.name} {plan_id}", asked=run.asked()))
    a, b = sides
    rows = [
        {
            "metric": metric,
            "label": names.axis_label(metric),
            "a": a.metrics.get(metric),
            "b": b.metrics.get(metric),
            "change": change_words(metric, a.metrics.get(metric), b.metrics.get(metric)),
        }
        for metric in shown_metrics(a, b)
        if not (a.metrics.get(metric) is None and b.metrics.get(metric) is None)
    ]
    curves = [distributions(side.result) for side in sides]
    return comparison_dict(a, b) | {
        "rows": rows,
        "same_requests": a.plan.workload == b.plan.workload and a.plan.seed == b.plan.seed,
        "cdf": {name: {"a": curves[0][name], "b": curves[1][name]} for name in curves[0]},
    }


def _export(question: Question) -> bytes:
    """The exported files as a zip archive. Of plans that the target cannot express a file in it says why; where it can
    express none, that is the error."""
    from planner.export import export_plans

    run = Path(question["runs"]) / question["job"]
    with tempfile.TemporaryDirectory() as folder:
        try:
            export_plans(run, question["top_k"], folder, target=question["target"])
        except InputError as error:
            if not any(Path(folder).iterdir()):
                raise
            (Path(folder) / LEFT_OUT).write_text(f"{error}\n", encoding="utf-8", newline="\n")
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as written:
            for path in files:
                entry = zipfile.ZipInfo(str(path.relative_to(folder)), LONG_AGO)
                entry.external_attr = (0o755 if path.suffix == ".sh" else 0o644) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                written.writestr(entry, path.read_bytes())
        return archive.getvalue()


ANSWERS: dict[str, Callable[[Question], Any]] = {
    "simulation": _simulation,
    "replay": _replay,
    "explain": _explain,
    "compare": _compare,
    "export": _export,
}

if __name__ == "__main__":
    sys.exit(main())
