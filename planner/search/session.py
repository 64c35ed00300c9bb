"""One `planner search`, from a space to its run directory."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.bounds import Bounds
from planner.capacity import offered_rate
from planner.confidence import annotate
from planner.counts import outcome_counts
from planner.early_stop import hopeless
from planner.evaluate import Evaluator, Outcome, Trial, make_evaluator, plan_of
from planner.evaluation_log import read_evaluations
from planner.evaluation_store import EvaluationStore, key_of, open_store
from planner.executors import make_executor
from planner.interrupts import Interrupts
from planner.parameters import Parameters, content_id
from planner.plan import dump_plan
from planner.search.driver import Search
from planner.search.evaluations import front_of
from planner.search.robustness import try_plans
from planner.search.surroundings import Evaluation, Found, Progress
from planner.search.twins import Twins, alike_schedulings
from planner.space import Space
from planner.steady import rising_load
from planner.store import REPORT, Run, RunStore, claim_directory, read_manifest, write_atomically
from sim.errors import InputError
from sim.version import __version__


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Where a search writes and who evaluates; nothing here changes what it finds."""

    out: Path
    overwrite: bool = False
    resume: bool = False
    executor: str | None = None  # None: as the space says
    workers: int | None = None  # None: one per processor
    ray_address: str | None = None  # a Ray cluster to simulate on
    reuse: bool = True  # what earlier searches simulated
    warn: Callable[[str], None] = lambda text: None


def search(space: Space, options: SearchOptions, show: Callable[[Progress], None] = lambda progress: None) -> Run:
    """Search `space`, keep everything in `options.out`, and return the run.

    An interrupt ends the search early: the run then holds what was evaluated and `manifest["interrupted"]` is True.
    Raises InputError for what is wrong with the space or the directory, before anything is written.
    """
    claim_directory(options.out, overwrite=options.overwrite, resume=options.resume)
    started = time.monotonic()
    evaluator = make_evaluator(space)
    if space.asks("max_rate_rps"):
        offered_rate(evaluator.workload)  # refuses a workload without a rate of its own
    manifest = _manifest(space, evaluator)
    known = _known(options, manifest["context"], space.timeout_s) if options.resume else {}
    store = RunStore(options.out)
    with Interrupts() as interrupts, closing(store):
        store.start(manifest, keep_evaluations=bool(known))
        where = options.executor or space.executor
        executor = make_executor(where, evaluator, options.workers, options.ray_address, space.timeout_s)
        earlier = EarlierSearches(evaluator, open_store(options.warn) if options.reuse else None)
        try:
            twins = Twins(alike_schedulings(evaluator.workload))
            running = Search(
                space, evaluator, executor, store, known, show, interrupts, twins, Bounds(evaluator), earlier
            )
            found = running.run()
            ran = running.simulations
            manifest["simulations"], manifest["reused"] = ran.run, ran.reused
            manifest["trials"], manifest["trial_requests"] = ran.trials_run, ran.trial_requests
            if not found.interrupted:
                try:
                    try_plans(space, evaluator, running, found.evaluations)
                except KeyboardInterrupt:
                    found.interrupted = True
            manifest["confidence_trials"] = ran.trials_run - manifest["trials"]
            manifest["executor"] = {"name": executor.name, "workers": executor.workers}
        finally:
            executor.close()
            earlier.close()
        run = _run(space, options.out, manifest, found, time.monotonic() - started)
        if not found.interrupted:
            annotate(run.front_evaluations(), evaluator)
            _warn_of_rising_load(run, evaluator, options.warn)
        by_id = run.by_id()
        plans = {plan: dump_plan(plan_of(space, by_id[plan]["parameters"])) for plan in run.front}
        store.finish(run, plans, _picture(run))
        write_atomically(options.out / REPORT, _report(run))
    return run


def evaluate_plans(space: Space, plans: Sequence[Parameters], run: Run) -> list[Evaluation]:
    """The evaluations of `plans` as an exhaustive search of `space` makes them; those that `run` has are taken over if
    they were made of the same requests, coefficients and code."""
    evaluator = make_evaluator(space)
    same = run.manifest.get("context") == context_of(evaluator)
    known = [e for e in run.evaluations if same and e["simulated"]]
    executor = make_executor(space.executor, evaluator, None)
    earlier = EarlierSearches(evaluator, open_store(lambda text: None))
    with closing(executor), closing(earlier):
        twins = Twins(alike_schedulings(evaluator.workload))
        whole = dataclasses.replace(space, method="exhaustive")
        return Search(whole, evaluator, executor, _Nobody(), twins=twins, reuse=earlier).evaluations_of(plans, known)


class _Nobody:
    """Keeps no evaluations."""

    def append(self, evaluations: Sequence[Evaluation]) -> None:
        """They are returned in the end."""


def _picture(run: Run) -> bytes | None:
    """The Pareto plot; None where nothing was simulated."""
    if not any(evaluation["simulated"] for evaluation in run.evaluations):
        return None
    from planner.report.pareto import pareto_figure, png

    return png(pareto_figure(run))


def _report(run: Run) -> str:
    """The page of the run."""
    from planner.report.html import report_html

    return report_html(run)


def _run(space: Space, out: Path, manifest: dict[str, Any], found: Found, wall_time_s: float) -> Run:
    front = front_of(found.evaluations, space)
    manifest.update(
        status="interrupted" if found.interrupted else "done",
        interrupted=found.interrupted,
        method=found.method,
        exact=found.exact,
        **outcome_counts(found.evaluations),
        front=len(front),
        wall_time_s=round(wall_time_s, 3),
    )
    return Run(
        name=space.name,
        space=space.document,
        objectives=[(objective.metric, objective.sense) for objective in space.objectives],
        constraints=[(c.metric, c.operator, c.limit) for c in space.constraints],
        evaluations=found.evaluations,
        front=front,
        exact=found.exact,
        manifest=manifest,
        path=out,
    )


def _warn_of_rising_load(run: Run, evaluator: Evaluator, warn: Callable[[str], None]) -> None:
    """Say, and keep in the manifest, that the workload ends before the load is steady on the plan of the answer."""
    from planner.report import verdict

    plan = verdict.recommended(run) or next(iter(verdict.least_violating(run, 1)), None)
    answer_s, stable = 0.0, True
    if plan is not None:
        answer_s, stable = plan["metrics"].get("e2e_mean_ms", 0.0) / 1e3, plan["saturation"] == "stable"
    found = rising_load(evaluator.workload, answer_s, stable=stable)
    if found is not None:
        run.manifest["rising_load"] = found
        warn(found)


def _manifest(space: Space, evaluator: Evaluator) -> dict[str, Any]:
    """What is known of a run before it starts."""
    import numpy

    from planner.versions import engine_mode

    return {
        "name": space.name,
        "status": "running",
        "space": space.document,
        "objectives": [(objective.metric, objective.sense) for objective in space.objectives],
        "constraints": [(c.metric, c.operator, c.limit) for c in space.constraints],
        "combinations": space.size,
        "seed": space.seed,
        "coefficients": evaluator.coefficients.name,
        "versions": {
            "planner": __version__,
            "engine": engine_mode(),
            "python": platform.python_version(),
            "numpy": numpy.__version__,
        },
        "context": context_of(evaluator),
    }


class EarlierSearches:
    """What earlier searches simulated under everything that `evaluator` has of its own.

    What a search that ends hopeless simulations early finds of a hopeless candidate depends on its constraints: such
    outcomes are kept under a key that names them. All others hold for any search.
    """

    def __init__(self, evaluator: Evaluator, store: EvaluationStore | None) -> None:
        self._store = store
        self._context = repr((full_context_of(evaluator), evaluator.request_slo, sorted(evaluator.gpus.items())))
        self._constraints = evaluator.constraints

    def _key(self, candidate: Parameters | Trial, hopeless: bool) -> str | None:
        if not isinstance(candidate, Trial):
            under = f"{self._context}{self._constraints}" if hopeless else self._context
            return key_of(under, candidate)
        trial = dataclasses.astuple(dataclasses.replace(candidate, parameters={}))
        return key_of(f"{self._context}{trial}", candidate.parameters)

    def get(self, candidates: Mapping[str, Parameters | Trial], may_stop: bool) -> dict[str, Outcome]:
        """The outcomes that are known, by plan id; `may_stop`: as of a search that ends hopeless simulations early."""
        found = self._found(candidates, hopeless=False)
        if may_stop:
            found = {plan: o for plan, o in found.items() if not self._is_hopeless(candidates[plan], o)}
            found |= self._found({p: c for p, c in candidates.items() if p not in found}, hopeless=True)
        return found

    def _found(self, candidates: Mapping[str, Parameters | Trial], hopeless: bool) -> dict[str, Outcome]:
        if self._store is None:
            return {}
        keys = {plan: self._key(candidate, hopeless) for plan, candidate in candidates.items()}
        found = self._store.get([key for key in keys.values() if key is not None])
        return {plan: found[key] for plan, key in keys.items() if key in found}

    def _is_hopeless(self, candidate: Parameters | Trial, outcome: Outcome) -> bool:
        return not isinstance(candidate, Trial) and (
            outcome.stopped is not None or hopeless(self._constraints, outcome.metrics)
        )

    def put(self, candidate: Parameters | Trial, outcome: Outcome, may_stop: bool) -> None:
        """Keep an outcome for later searches."""
        key = self._key(candidate, may_stop and self._is_hopeless(candidate, outcome))
        if self._store is not None and key is not None:
            self._store.put(key, outcome)

    def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close()


def context_of(evaluator: Evaluator) -> str:
    """A digest of what all metrics depend on beside the candidate: equal digests, interchangeable evaluations."""
    return content_id(full_context_of(evaluator))


def full_context_of(evaluator: Evaluator) -> str:
    """The same in 256 bits."""
    import numpy as np

    parts: list[Any] = [evaluator.seed, __version__, repr(evaluator.model), repr(evaluator.coefficients)]
    for field in dataclasses.fields(evaluator.workload):
        value = getattr(evaluator.workload, field.name)
        content = hashlib.sha256(value.tobytes()).hexdigest() if isinstance(value, np.ndarray) else repr(value)
        parts.append((field.name, content))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _known(options: SearchOptions, context: str, timeout_s: float) -> dict[str, Evaluation]:
    """The evaluations of the run to resume, by id; those that failed are tried again, unless they have had as much time
    already."""
    if not options.out.exists() or not any(options.out.iterdir()):
        return {}
    if read_manifest(options.out).get("context") != context:
        problem = "holds a run of another model, workload, coefficient set or version; use --overwrite or another --out"
        raise InputError("--resume", f"{options.out} {problem}")
    found = read_evaluations(options.out, options.warn)
    return {e["id"]: e for e in found if not e.get("failed") or e.get("timed_out_s", 0) >= timeout_s}
