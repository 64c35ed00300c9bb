"""What a service is started with: where it keeps things, what it allows, and how much of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

DEFAULT_PORT = 8080
KIB = 1024
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one client, one job, and all of them together may take."""

    body_bytes: int = 128 * KIB
    body_s: float = 30.0  # in which a body must have come
    running: int = 1  # searches at a time
    queued: int = 100  # searches that wait
    candidates: int = 1_000_000_000  # combinations of a space
    requests: int = 1_000_000  # of a workload
    simulated_requests: int = 1_000_000_000  # candidates that may be simulated x requests
    job_s: float = 3600.0
    job_bytes: int = 4 * GIB  # of memory, in each process of a search
    streams: int = 100  # open event streams
    analyses: int = 1  # simulations of single plans at a time
    analyses_waiting: int = 20
    analysis_s: float = 120.0
    analysis_requests: int = 200_000  # that a plan may serve to be looked at request by request


@dataclass(frozen=True)
class Settings:
    """A service's settings. `workers` are the processes that one search simulates on (None: one a processor)."""

    data: Path
    database: str | None = None  # a postgresql:// URL; None: SQLite in `data`
    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()  # other names by which it is reached
    token: str | None = None
    files: Path | None = None  # the folder of traces, model configs and coefficient sets that spaces may name
    allow_policies: bool = False
    workers: int | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def runs(self) -> Path:
        """Where run directories are, one a job."""
        return self.data / "runs"

    @property
    def jobs(self) -> Path:
        """What belongs to jobs beside their runs: locks, logs, analyses."""
        return self.data / "jobs"

    @property
    def folder(self) -> Path:
        """What relative paths of a space are relative to: the allowed folder, or one that is not there."""
        return self.files if self.files is not None else self.data / "no-files"

    def run_dir(self, job: str) -> Path:
        """The run directory of a job."""
        return self.runs / job

    def job_dir(self, job: str) -> Path:
        """The folder of what else belongs to a job."""
        return self.jobs / job

    @cached_property
    def code(self) -> str:
        """A digest of the code that analyses depend on: what another version kept is computed again."""
        import planner
        from planner.evaluation_store import code_digest

        digest = hashlib.sha256(code_digest().encode())
        for file in sorted(Path(planner.__file__).parent.rglob("*.py")):
            digest.update(file.read_bytes())
        return digest.hexdigest()[:16]
