"""Routes about what searches found: fronts, evaluations, plans, and the files of a run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import FileResponse, Response

from planner.differences import differences
from planner.report.front_document import front_document
from planner.service import views
from planner.service.artefacts import find_artefact, list_artefacts
from planner.service.context import Here, checked_job, checked_plan, evaluation_of
from planner.service.errors import ServiceError
from planner.service.json_text import JsonResponse
from planner.service.schemas import Artefacts
from planner.store import PLANS, Run
from sim.metrics import METRICS

MOST_EVALUATIONS = 500
MOST_PLANS = 20  # in one export
Json = dict[str, Any]
AtOnce: dict[int | str, dict[str, Any]] = {
    409: {"description": "nothing is evaluated yet"},
    404: {"description": "no such job or plan"},
}
OnDemand: dict[int | str, dict[str, Any]] = AtOnce | {
    503: {"description": "too many plans are being simulated"},
    504: {"description": "simulating it takes too long"},
}

router = APIRouter()


@router.get("/jobs/{job}/front", responses=AtOnce)
async def front(job: str, request: Request, service: Here) -> Json:
    """The front, the best first objective first, each plan with what limits it."""
    return await service.of_run(request, job, "front", views.front)  # type: ignore[return-value]


@router.get("/jobs/{job}/result", responses=AtOnce)
async def result(job: str, request: Request, service: Here) -> Json:
    """The question and its answer in words: the recommended plan, why, what it costs, what was ruled out."""
    return await service.of_run(request, job, "result", views.answer)  # type: ignore[return-value]


@router.get("/jobs/{job}/view", responses=AtOnce)
async def view(job: str, request: Request, service: Here) -> Json:
    """The plans as the interactive front reads them: in columns, the front first."""
    return await service.of_run(request, job, "view", front_document)  # type: ignore[return-value]


@router.get("/jobs/{job}/points", responses=AtOnce)
async def points(job: str, request: Request, service: Here) -> Json:
    """The simulated plans in columns."""
    return await service.of_run(request, job, "points", views.points)  # type: ignore[return-value]


@router.get("/jobs/{job}/evaluations", responses=AtOnce)
async def evaluations(
    job: str,
    request: Request,
    service: Here,
    simulated: bool | None = None,
    feasible: bool | None = None,
    sort: Annotated[str | None, Query(max_length=100, description="a metric, `id` or `violation`")] = None,
    order: Literal["asc", "desc"] = "asc",
    limit: Annotated[int, Query(ge=1, le=MOST_EVALUATIONS)] = 100,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> Json:
    """A page of everything that was evaluated, in the order of the search unless sorted."""
    if sort is not None and sort not in (*METRICS, "id", "violation"):
        raise ServiceError(422, f"sort: must be a metric, id or violation, got {sort!r}")
    asked = (simulated, feasible, sort, order == "desc", limit, offset)
    key = f"evaluations {asked}"
    return await service.of_run(request, job, key, lambda run: views.evaluations(run, *asked))  # type: ignore[return-value]


@router.get("/jobs/{job}/plans/{plan}", responses=AtOnce)
async def plan_detail(job: str, plan: str, request: Request, service: Here) -> Json:
    """One plan, on the front or not."""
    checked_plan(plan)

    def make(run: Run) -> Json:
        path = (run.path or Path()) / PLANS / f"{plan}.yaml"
        text = path.read_text(encoding="utf-8") if path.is_file() else None
        return views.plan_detail(run, evaluation_of(run, plan), text)

    return await service.of_run(request, job, f"plan {plan}", make)  # type: ignore[return-value]


# -- what is simulated on demand ----------------------------------------------------------------------------------


async def _answered(service: Here, job: str, plan: str, kind: str, **more: Any) -> Response:
    """The answer to a question about one plan."""
    loaded = await service.loaded(job)
    evaluation_of(loaded.run, checked_plan(plan))
    path = await service.analyses.answer(job, {"kind": kind, "job": job, "plan": plan, **more})
    return FileResponse(path, media_type="application/json", headers={"Cache-Control": "private, no-cache"})


@router.get("/jobs/{job}/plans/{plan}/simulation", responses=OnDemand)
async def simulation(job: str, plan: str, service: Here) -> Json:
    """A plan simulated: its summary, the distributions of its latencies, and its replicas over time."""
    return await _answered(service, job, plan, "simulation")  # type: ignore[return-value]


@router.get("/jobs/{job}/plans/{plan}/explain", responses=OnDemand)
async def explain(job: str, plan: str, service: Here) -> Json:
    """What limits a plan, by simulating it again with one thing changed at a time."""
    return await _answered(service, job, plan, "explain")  # type: ignore[return-value]


@router.get("/jobs/{job}/plans/{plan}/replay", responses=OnDemand)
async def replay(
    job: str,
    plan: str,
    service: Here,
    routing: Annotated[
        str | None, Query(max_length=2000, description="another routing policy: its name, or JSON with parameters")
    ] = None,
) -> Json:
    """Every request of a plan in columns: where it went, what it waited for, where its prefix came from."""
    policy = None if routing is None else _policy(routing)
    if not service.settings.allow_policies and ":" in json.dumps(policy, separators=(";", " ")):
        raise ServiceError(403, "policies of your own are code, which this service was not started to run")
    return await _answered(service, job, plan, "replay", routing=policy)  # type: ignore[return-value]


def _policy(text: str) -> Any:
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ServiceError(422, "routing: is not JSON") from None


@router.get("/jobs/{job}/exports/{target}", responses=OnDemand, response_class=Response)
async def export(
    job: str, target: str, service: Here, top_k: Annotated[int, Query(ge=1, le=MOST_PLANS)] = 3
) -> Response:
    """The best plans as files for a real system, in a zip archive."""
    from planner.export import TARGETS

    if target not in TARGETS:
        raise ServiceError(404, f"no export target {target[:100]!r}: there are {', '.join(TARGETS)}")
    loaded = await service.loaded(job)
    # What is exported changes with the front.
    question = {"kind": "export", "job": job, "target": target, "top_k": top_k, "front": loaded.etag}
    path = await service.analyses.answer(job, question, ".zip")
    name = f"{loaded.run.name}-{target}.zip".encode("ascii", "replace").decode()
    return FileResponse(path, media_type="application/zip", filename=name)


# -- comparisons --------------------------------------------------------------------------------------------------


@router.get("/compare/runs", responses=AtOnce)
async def compare_runs(
    service: Here, a: Annotated[str, Query(max_length=100)], b: Annotated[str, Query(max_length=100)]
) -> Json:
    """What changed from the front of one run to that of another, and why."""
    before, after = await service.loaded(a), await service.loaded(b)
    lines = await asyncio.to_thread(lambda: list(differences(before.run, after.run)))
    same = not any(line.startswith(("+ ", "- ", "= ")) for line in lines)
    return JsonResponse({"a": a, "b": b, "lines": lines, "same_front": same})  # type: ignore[return-value]


@router.get("/compare/plans", responses=OnDemand)
async def compare_plans(
    service: Here,
    a: Annotated[str, Query(max_length=100, description="JOB/PLAN")],
    b: Annotated[str, Query(max_length=100, description="JOB/PLAN")],
) -> Json:
    """Two plans side by side, request by request where they serve the same ones."""
    sides = []
    for side in (a, b):
        job, _, plan = side.partition("/")
        loaded = await service.loaded(job)
        evaluation_of(loaded.run, checked_plan(plan))
        sides.append((job, plan))
    path = await service.analyses.answer(sides[0][0], {"kind": "compare", "a": sides[0], "b": sides[1]})
    return FileResponse(path, media_type="application/json")  # type: ignore[return-value]


# -- files --------------------------------------------------------------------------------------------------------


@router.get("/jobs/{job}/artefacts")
async def artefacts(job: str, service: Here) -> Artefacts:
    """The files of a job."""
    await service.jobs.get(checked_job(job))
    return Artefacts(artefacts=await asyncio.to_thread(list_artefacts, service.settings, job))


@router.get("/jobs/{job}/artefacts/{name:path}", response_class=Response)
async def artefact(job: str, name: str, service: Here, download: bool = False) -> Response:
    """One file of a job; nothing but the names that are listed can be asked for."""
    await service.jobs.get(checked_job(job))
    return await asyncio.to_thread(find_artefact, service.settings, job, name, download)
