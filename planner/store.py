"""A run directory: evaluations as they end, the front, the plans, and the manifest that says how they came to be."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from planner.evaluation_log import EVALUATIONS, finite, read_evaluations, to_line
from planner.run_lock import RunLock
from sim.errors import InputError
from sim.text_files import is_there

MANIFEST = "run.json"
FRONT = "front.json"
FRONT_CSV = "front.csv"
PICTURE = "pareto.png"
REPORT = "report.html"
PLANS = "plans"
OWN_FILES = (MANIFEST, EVALUATIONS, FRONT, FRONT_CSV, PICTURE, REPORT)


@dataclass(slots=True)
class Run:
    """A search and what it found, as kept in a run directory.

    An evaluation is a dict: `id`; `parameters` (every deployment parameter, resolved; a policy is its name, or a dict
    of `name` and its parameters); `simulated` (False: ruled out from its parameters alone, or refused by the engine);
    `metrics` (flat name -> float, nan where there is no value; only what parameters alone tell if not simulated);
    `saturation` (stable | backlogged | overloaded, None if not simulated); `feasible`; `why_not` (None if feasible);
    `violation` (0 if feasible, else the sum of relative excesses over the constraints; inf where it cannot run).
    """

    name: str
    space: dict[str, Any]  # as the user wrote it, overrides applied
    objectives: list[tuple[str, str]]  # (metric, "max" | "min")
    constraints: list[tuple[str, str, float]]  # (metric, operator, limit)
    evaluations: list[dict[str, Any]]
    front: list[str]  # ids of the non-dominated feasible plans, best first objective first
    exact: bool
    manifest: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None

    def by_id(self) -> dict[str, dict[str, Any]]:
        """Evaluations by plan id."""
        return {evaluation["id"]: evaluation for evaluation in self.evaluations}

    def front_evaluations(self) -> list[dict[str, Any]]:
        """The evaluations of the front, in its order."""
        by_id = self.by_id()
        return [by_id[plan] for plan in self.front]

    def asked(self) -> tuple[str, ...]:
        """The metrics that objectives and constraints are about, objectives first."""
        metrics = [metric for metric, _ in self.objectives] + [metric for metric, _, _ in self.constraints]
        return tuple(dict.fromkeys(metrics))

    def nearest(self, count: int) -> list[dict[str, Any]]:
        """The simulated plans that violate the constraints least: what to look at when nothing is feasible."""
        simulated = [e for e in self.evaluations if e["simulated"] and not e["feasible"]]
        return sorted(simulated, key=lambda e: e["violation"])[:count]

    def varying(self) -> list[str]:
        """Names of the deployment parameters that differ between evaluations, in the deployment's order."""
        if not self.evaluations:
            return []
        first = self.evaluations[0]["parameters"]
        return [name for name in first if any(e["parameters"][name] != first[name] for e in self.evaluations)]


def load_run(path: str | Path, evaluations: list[dict[str, Any]] | None = None) -> Run:
    """The run in directory `path`. Broken evaluation lines (a crash cuts the last one short) are left out.

    `evaluations` are those of the directory, where they have been read already. A search that has not ended, or was
    killed, has the front of what it evaluated so far. Raises InputError if `path` is not a run directory.
    """
    path = Path(path)
    manifest = read_manifest(path)
    evaluations = read_evaluations(path) if evaluations is None else evaluations
    try:
        run = Run(
            name=manifest["name"],
            space=manifest["space"],
            objectives=[(metric, sense) for metric, sense in manifest["objectives"]],
            constraints=[(metric, operator, float(limit)) for metric, operator, limit in manifest["constraints"]],
            evaluations=evaluations,
            front=[],
            exact=False,
            manifest=manifest,
            path=path,
        )
        if (path / FRONT).exists():
            front = _read_json(path / FRONT)
            run.front, run.exact = [plan["id"] for plan in front["plans"]], bool(front["exact"])
        else:
            run.front = front_ids(evaluations, run.objectives)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(str(path / MANIFEST), f"is not the manifest of a run ({error!r})") from None
    lost = set(run.front) - run.by_id().keys()
    if lost:
        problem = f"lacks {len(lost)} plans of the front, {min(lost)} for one; search again with --resume"
        raise InputError(str(path / EVALUATIONS), problem)
    return run


def front_ids(evaluations: Iterable[Mapping[str, Any]], objectives: Iterable[tuple[str, str]]) -> list[str]:
    """Ids of the feasible plans that no other dominates, best first objective first."""
    from planner.goals import Objective
    from planner.search.pareto import front_order

    feasible = [evaluation for evaluation in evaluations if evaluation["feasible"]]
    if not feasible:
        return []
    import numpy as np

    goals = [Objective(metric, sense) for metric, sense in objectives]
    costs = np.array([[goal.cost(e["metrics"]) for goal in goals] for e in feasible], dtype=np.float64)
    return [feasible[position]["id"] for position in front_order(costs)]


def read_manifest(path: Path) -> dict[str, Any]:
    """The content of `run.json`. Raises InputError where there is none."""
    if not path.exists():
        raise InputError(str(path), "does not exist; expected a run directory that `planner search` wrote")
    if not (path / MANIFEST).is_file():
        raise InputError(str(path), f"is not a run directory: it has no {MANIFEST}")
    return _read_json(path / MANIFEST)


class RunStore:
    """Writes a run directory: evaluations line by line as they end, everything else at once by rename.

    From `start` until `close` it is the only one that does: a second search in the same directory is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None
        self._lock = RunLock(path)

    def start(self, manifest: Mapping[str, Any], *, keep_evaluations: bool) -> None:
        """Create the directory and its manifest, so that even a killed run can be resumed.

        Raises InputError where the directory cannot be written, or another search writes it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            if not keep_evaluations:
                self._clear()
            elif (self.path / EVALUATIONS).exists():
                self._end_last_line()
                self._forget(FRONT, FRONT_CSV, PICTURE, "report.html")  # of what was evaluated before
            self._file = (self.path / EVALUATIONS).open("a", encoding="utf-8", newline="\n")
            self.write_manifest(manifest)
        except OSError as error:
            self.close()
            raise InputError("--out", f"{self.path} cannot be written: {error.strerror or error}") from None

    def _clear(self) -> None:
        """Remove what an earlier run left here, and nothing else."""
        self._forget(*OWN_FILES)
        for plan in (self.path / PLANS).glob("*.yaml"):
            plan.unlink()

    def _forget(self, *names: str) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def _end_last_line(self) -> None:
        """Close a line that a crash cut short, lest the next evaluation be glued to it."""
        with (self.path / EVALUATIONS).open("rb+") as file:
            if file.seek(0, os.SEEK_END) and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                file.write(b"\n")

    def append(self, evaluations: Iterable[Mapping[str, Any]]) -> None:
        """Keep these evaluations; they are in the hands of the operating system when this returns."""
        assert self._file is not None
        self._file.write("".join(to_line(evaluation) for evaluation in evaluations))
        self._file.flush()

    def finish(self, run: Run, plans: Mapping[str, str], picture: bytes | None = None) -> None:
        """Write the final files of `run`: `plans` maps ids to the text of plan.yaml, `picture` is pareto.png."""
        if self._file is not None:
            self._file.close()
            self._file = None
        write_atomically(self.path / EVALUATIONS, (to_line(evaluation) for evaluation in run.evaluations))
        (self.path / PLANS).mkdir(exist_ok=True)
        for stale in (self.path / PLANS).glob("*.yaml"):
            if stale.stem not in plans:
                stale.unlink()
        for plan, text in plans.items():
            write_atomically(self.path / PLANS / f"{plan}.yaml", text)
        write_atomically(self.path / FRONT, to_json(front_document(run)))
        write_atomically(self.path / FRONT_CSV, front_table(run))
        if picture is not None:
            write_atomically(self.path / PICTURE, picture)
        self.write_manifest(run.manifest)

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace `run.json`."""
        write_atomically(self.path / MANIFEST, to_json(manifest))

    def close(self) -> None:
        """Close what is open, and let others write here; the evaluations written so far stay."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock.release()


def claim_directory(path: Path, *, overwrite: bool, resume: bool) -> None:
    """Raise InputError unless a search may write to `path`: it is new or empty, or a run that may be replaced."""
    if not is_there(path):
        return
    if not path.is_dir():
        raise InputError("--out", f"{path} is a file; give a directory")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise InputError("--out", f"{path} cannot be written: permission denied")
    if not any(path.iterdir()):
        return
    if not (path / MANIFEST).is_file() and not (path / EVALUATIONS).is_file():
        raise InputError("--out", f"{path} holds files that are not a run; give a new or empty directory")
    if not overwrite and not resume:
        raise InputError("--out", f"{path} already holds a run; add --overwrite, --resume, or another --out")


def front_document(run: Run) -> dict[str, Any]:
    """The content of `front.json`."""
    first_with: dict[tuple[float, ...], str] = {}
    plans = []
    for evaluation in run.front_evaluations():
        values = tuple(evaluation["metrics"][metric] for metric, _ in run.objectives)
        first = first_with.setdefault(values, evaluation["id"])
        plans.append(
            {
                "id": evaluation["id"],
                "parameters": evaluation["parameters"],
                "metrics": evaluation["metrics"],
                "slo_confidence": evaluation.get("slo_confidence"),
                "confidence_draws": evaluation.get("confidence_draws"),
                "confidence_breaks": evaluation.get("confidence_breaks"),  # constraint: draws that break it
                "intervals": evaluation.get("intervals", {}),
                "validated": evaluation.get("validated"),
                "seed_confidence": evaluation.get("seed_confidence"),  # None: simulated with one seed only
                "front_confidence": evaluation.get("front_confidence"),
                "cliff": evaluation.get("cliff"),
                "same_objectives_as": None if first == evaluation["id"] else first,
            }
        )
    objectives = [{"metric": metric, "sense": sense} for metric, sense in run.objectives]
    constraints = [{"metric": m, "operator": operator, "limit": limit} for m, operator, limit in run.constraints]
    return {"objectives": objectives, "constraints": constraints, "exact": run.exact, "plans": plans}


def front_table(run: Run) -> str:
    """The content of `front.csv`: a row a plan; id, parameters, then metrics."""
    rows = run.front_evaluations()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    parameters = list(rows[0]["parameters"]) if rows else []
    metrics = list(rows[0]["metrics"]) if rows else [metric for metric, _ in run.objectives]
    writer.writerow(["id", *parameters, *metrics])
    for row in rows:
        cells = [_cell(row["parameters"][name]) for name in parameters]
        writer.writerow([row["id"], *cells, *(_cell(row["metrics"].get(name)) for name in metrics)])
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return value


def to_json(document: Any) -> str:
    """An indented JSON document; nan and infinity become null."""
    return json.dumps(finite(document), indent=2, allow_nan=False) + "\n"


def write_atomically(path: Path, content: str | bytes | Iterable[str]) -> None:
    """Put `content`, whole or in parts, into `path`: a reader, or a crash, sees the old file or the new one.

    A link stays one: the file that it leads to is replaced. What is no file, as a pipe or a device, is written to.
    """
    path = Path(os.path.realpath(path)) if path.is_symlink() and not _is_device(path) else path
    if _is_device(path):
        with path.open("wb") as file:
            _write(file, content)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            _write(file, content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write(file: IO[bytes], content: str | bytes | Iterable[str]) -> None:
    for part in [content] if isinstance(content, str | bytes) else content:
        file.write(part.encode() if isinstance(part, str) else part)


def _is_device(path: Path) -> bool:
    """Whether `path` is written to in place: a pipe, a device, or what /dev/stdout leads to, a file included."""
    return path.exists() and (not path.is_file() or path.absolute().is_relative_to("/dev"))


def check_output(path: Path, option: str) -> None:
    """Raise InputError on `option` unless `path` can be written: what takes long must not find out at its end."""
    problem = None
    if not path.name or path.is_dir():
        problem = "is a directory; give a file"
    elif not path.parent.is_dir():
        problem = f"cannot be written: {path.parent} is no directory"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        problem = "cannot be written: permission denied"
    if problem is not None:
        raise InputError(option, f"{path} {problem}")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(str(path), f"cannot be read as JSON: {error}") from None
    if not isinstance(document, dict):
        raise InputError(str(path), "must hold a JSON object")
    return document
