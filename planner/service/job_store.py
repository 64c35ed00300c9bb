"""Jobs as they are kept over restarts: what was asked, how far it came, how it ended."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from planner.service.database import Database

QUEUED, RUNNING, DONE, FAILED, CANCELLED, INTERRUPTED = STATES = (
    "queued",
    "running",
    "done",
    "failed",
    "cancelled",
    "interrupted",
)
ENDED = (DONE, FAILED, CANCELLED, INTERRUPTED)
RESUMABLE = (FAILED, CANCELLED, INTERRUPTED)

# DOUBLE PRECISION and TEXT are what both databases have.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS planner_jobs (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, model TEXT NOT NULL, state TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL, queued_at DOUBLE PRECISION NOT NULL,
    started_at DOUBLE PRECISION, ended_at DOUBLE PRECISION, attempts INTEGER NOT NULL,
    problem TEXT, problems TEXT NOT NULL, progress TEXT, facts TEXT NOT NULL, recommended TEXT, yaml TEXT NOT NULL
)
"""
KNOWN = 1000  # jobs in memory
_JSON = ("problems", "progress", "facts")


@dataclass(slots=True)
class Job:
    """One search that was asked for. Times are seconds since 1970."""

    id: str
    name: str
    model: str
    yaml: str  # as submitted
    state: str = QUEUED
    created_at: float = 0.0
    queued_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    attempts: int = 0
    problem: str | None = None  # why it failed or was interrupted
    problems: list[dict[str, Any]] = field(default_factory=list)
    progress: dict[str, Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # objectives, constraints, combinations
    recommended: str | None = None  # id of the plan that the finished run stars


_COLUMNS = tuple(each.name for each in fields(Job))


class JobStore:
    """The table of jobs. Every change names the states that it may start from, so that of two that race one wins."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._known: dict[str, Job] = {}  # as read last: one database is one service's
        database.execute(_SCHEMA)
        database.execute("CREATE INDEX IF NOT EXISTS planner_jobs_by_state ON planner_jobs (state, queued_at)")

    def add(self, job: Job) -> Job:
        """Keep a new job, queued now."""
        job.created_at = job.queued_at = time.time()
        marks = ", ".join("?" * len(_COLUMNS))
        values = [_kept(name, getattr(job, name)) for name in _COLUMNS]
        self._database.execute(f"INSERT INTO planner_jobs ({', '.join(_COLUMNS)}) VALUES ({marks})", values)
        return job

    def peek(self, job: str) -> Job | None:
        """The job of that id if it is in memory: no waiting for the database."""
        return self._known.get(job)

    def get(self, job: str) -> Job | None:
        """The job of that id; not to be changed."""
        found = self._known.get(job)
        if found is not None:
            return found
        with self._lock:  # lest what is read be kept after it has been changed
            found = next(iter(self._jobs("WHERE id = ?", (job,))), None)
            if found is not None:
                self._known[job] = found
                while len(self._known) > KNOWN:
                    del self._known[next(iter(self._known))]
        return found

    def page(self, states: Collection[str], text: str, limit: int, offset: int) -> tuple[list[Job], int]:
        """(jobs, number of all) in any of `states` (empty: in all) whose name or model has `text`, newest first."""
        conditions, values = ["1 = 1"], []
        if states:
            conditions.append(f"state IN ({', '.join('?' * len(states))})")
            values += list(states)
        if text:
            pattern = text.lower().replace("!", "!!").replace("%", "!%").replace("_", "!_")
            conditions.append("(LOWER(name) LIKE ? ESCAPE '!' OR LOWER(model) LIKE ? ESCAPE '!')")
            values += [f"%{pattern}%"] * 2
        where = f"WHERE {' AND '.join(conditions)}"
        ((total,),) = self._database.query(f"SELECT COUNT(*) FROM planner_jobs {where}", values)
        page = f"{where} ORDER BY created_at DESC, id LIMIT ? OFFSET ?"
        return self._jobs(page, (*values, limit, offset)), int(total)

    def in_state(self, state: str) -> list[Job]:
        """Every job in a state, in the order of the queue."""
        return self._jobs("WHERE state = ? ORDER BY queued_at, id", (state,))

    def count(self, state: str) -> int:
        """How many jobs are in a state."""
        ((total,),) = self._database.query("SELECT COUNT(*) FROM planner_jobs WHERE state = ?", (state,))
        return int(total)

    def position(self, job: Job) -> int:
        """How many queued jobs come before this one."""
        earlier = "queued_at < ? OR (queued_at = ? AND id < ?)"
        statement = f"SELECT COUNT(*) FROM planner_jobs WHERE state = 'queued' AND ({earlier})"
        ((total,),) = self._database.query(statement, (job.queued_at, job.queued_at, job.id))
        return int(total)

    def change(self, job: str, states: Sequence[str], **values: Any) -> bool:
        """Set columns of a job that is in one of `states`; False where it is not, or no longer."""
        settings = ", ".join(f"{name} = ?" for name in values)
        marks = ", ".join("?" * len(states))
        given = [_kept(name, value) for name, value in values.items()]
        statement = f"UPDATE planner_jobs SET {settings} WHERE id = ? AND state IN ({marks})"
        with self._lock:
            self._known.pop(job, None)
            return self._database.execute(statement, (*given, job, *states)) > 0

    def delete(self, job: str, states: Sequence[str]) -> bool:
        """Forget a job that is in one of `states`; False where it is not."""
        marks = ", ".join("?" * len(states))
        statement = f"DELETE FROM planner_jobs WHERE id = ? AND state IN ({marks})"
        with self._lock:
            self._known.pop(job, None)
            return self._database.execute(statement, (job, *states)) > 0

    def _jobs(self, rest: str, values: Sequence[Any]) -> list[Job]:
        rows = self._database.query(f"SELECT {', '.join(_COLUMNS)} FROM planner_jobs {rest}", values)
        return [Job(**{name: _given(name, value) for name, value in zip(_COLUMNS, row, strict=True)}) for row in rows]

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()


def _kept(name: str, value: Any) -> Any:
    return json.dumps(value) if name in _JSON and value is not None else value


def _given(name: str, value: Any) -> Any:
    return json.loads(value) if name in _JSON and value is not None else value
