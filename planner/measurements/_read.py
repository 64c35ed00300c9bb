"""Reading measured runs of any of the formats."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from planner.measurements._load_points import read_load_points
from planner.measurements._open_loop import read_open_loop
from planner.measurements._replays import is_replay, read_replay
from planner.measurements._run import MeasuredRun, Skipped
from sim.errors import InputError


def read_runs(paths: Iterable[str | Path]) -> tuple[list[MeasuredRun], list[Skipped]]:
    """The runs of the files, and those that cannot be simulated as they were measured. `InputError` names a file that
    cannot be read or holds none of the formats."""
    runs: list[MeasuredRun] = []
    skipped: list[Skipped] = []
    for path in map(Path, paths):
        for item in _read(path):
            if isinstance(item, MeasuredRun):
                runs.append(item)
            else:
                skipped.append(item)
    return runs, skipped


def _read(path: Path) -> list[MeasuredRun | Skipped]:
    if not path.is_file():
        raise InputError(str(path), "no such file")
    if path.suffix == ".json":
        return read_open_loop(path)
    with open(path, newline="", encoding="utf-8") as file:
        columns = next(csv.reader(file), [])
    if is_replay(columns):
        return read_replay(path)
    if "concurrency" in columns or "rate_rps" in columns:
        return read_load_points(path)
    if "running" in columns:
        return [Skipped(path.stem, path.stem, "the server's state over time, no requests")]
    raise InputError(str(path), "is neither a JSON list of runs, nor a load-points CSV, nor a replay CSV")
