"""Every evaluation ever made on this machine, in one SQLite file: what was simulated once is not simulated again.

A key names all that an outcome depends on: plan, requests, seed, coefficients, and the simulator's own code. The store
can make a search faster, never wrong: what it cannot read, or not write, costs a warning and a simulation.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import sim
from planner import early_stop, evaluate
from planner.evaluate import Outcome, Stopped
from planner.policy_path import own_policies
from sim.errors import InputError

VARIABLE = "PLANNER_STORE"  # a file, or `none`
BUSY_S = 10.0  # to wait for another search that writes
MANY = 500  # keys that are looked up at a time
LARGEST = 1_000_000  # evaluations of other versions of the code are forgotten beyond this many
CHECK_BYTES = 16

Warn = Callable[[str], None]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS evaluations (
    key TEXT PRIMARY KEY, code TEXT NOT NULL, outcome BLOB NOT NULL, digest BLOB NOT NULL
) WITHOUT ROWID
"""


def default_location() -> Path | None:
    """The file that $PLANNER_STORE names, or one in the user's cache directory; None if it says `none`."""
    given = os.environ.get(VARIABLE)
    if given:
        return None if given == "none" else Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        base = Path(cache) if cache else Path.home() / ".cache"
    except RuntimeError:  # a user without a home
        return None
    return base / "llm-serving-planner" / "evaluations.sqlite"


def code_digest() -> str:
    """A digest of the source that makes outcomes, the simulator and what calls it: those of other versions of it do not
    count."""
    folder = Path(sim.__file__).parent
    digest = hashlib.sha256()
    for file in [*sorted(folder.rglob("*.py")), Path(evaluate.__file__), Path(early_stop.__file__)]:
        name = file.relative_to(folder) if file.is_relative_to(folder) else file.name
        digest.update(str(name).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def key_of(context: str, parameters: Mapping[str, Any]) -> str | None:
    """The key of a candidate under `context`, which names all else; None where a user's own policy is involved, whose
    code is not known."""
    if own_policies(parameters):
        return None
    text = json.dumps(parameters, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{context}\0{text}".encode()).hexdigest()


class EvaluationStore:
    """Outcomes by key, in the SQLite file `path`. Several searches may use one file at a time.

    Each outcome is written in a transaction of its own, with a digest; rows whose digest does not match are passed
    over. A file that is no database is put aside. After a failed write (a full disk) nothing more is written.
    """

    def __init__(self, path: Path, warn: Warn) -> None:
        self.path = path
        self._warn = warn
        self._code = code_digest()
        self._writes = True
        self._connection: sqlite3.Connection | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = self._open()
        except sqlite3.OperationalError as error:
            self._give_up(error)
        except sqlite3.DatabaseError as error:
            self._put_aside(error)
        except OSError as error:
            self._give_up(error)

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(_SCHEMA)
            (count,) = connection.execute("SELECT COUNT(*) FROM evaluations").fetchone()
            if count > LARGEST:
                connection.execute("DELETE FROM evaluations WHERE code <> ?", (self._code,))
        except BaseException:
            connection.close()
            raise
        return connection

    def get(self, keys: Iterable[str]) -> dict[str, Outcome]:
        """The outcomes that are known, by key."""
        found: dict[str, Outcome] = {}
        wanted = list(dict.fromkeys(keys))
        damaged = 0
        for start in range(0, len(wanted), MANY):
            for key, blob, digest in self._rows(wanted[start : start + MANY]):
                outcome = _decode(key, blob, digest)
                if outcome is None:
                    damaged += 1
                else:
                    found[key] = outcome
        if damaged:
            self._warn(f"{self.path}: {damaged} damaged evaluations are passed over and simulated again")
        return found

    def _rows(self, keys: list[str]) -> list[tuple[str, bytes, bytes]]:
        if self._connection is None:
            return []
        marks = ",".join("?" * len(keys))
        query = f"SELECT key, outcome, digest FROM evaluations WHERE code = ? AND key IN ({marks})"
        try:
            return self._connection.execute(query, (self._code, *keys)).fetchall()
        except sqlite3.OperationalError as error:
            self._give_up(error)
        except (sqlite3.DatabaseError, ValueError) as error:
            self._put_aside(error)
        return []

    def put(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome; one that failed is not kept, so that it is tried again."""
        if self._connection is None or not self._writes or outcome.failed is not None:
            return
        blob = _encode(outcome)
        row = (key, self._code, blob, _digest(key, blob))
        try:
            self._connection.execute("INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?, ?)", row)
        except sqlite3.DatabaseError as error:
            self._writes = False
            self._warn(f"{self.path}: nothing more is kept for later searches ({error})")

    def _give_up(self, error: Exception) -> None:
        self.close()
        self._warn(f"{self.path}: cannot be used, every candidate is simulated ({error})")

    def _put_aside(self, error: Exception) -> None:
        """The file is damaged: keep it under another name and begin a new one."""
        self.close()
        aside = self.path.with_name(self.path.name + ".damaged")
        try:
            self.path.replace(aside)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            self._connection = self._open()
            self._warn(f"{self.path}: was damaged ({error}); it is now {aside.name}, and a new one is begun")
        except (OSError, sqlite3.DatabaseError) as another:
            self._give_up(another)

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def open_store(warn: Warn) -> EvaluationStore | None:
    """The store of this user, unless there is to be none."""
    location = default_location()
    if location is not None and location.is_dir():
        raise InputError(f"${VARIABLE}", f"{location} is a directory; give a file, or `none`")
    return None if location is None else EvaluationStore(location, warn)


def _encode(outcome: Outcome) -> bytes:
    # repr of a float, and so JSON, gives back the same float; nan is kept as JSON's extension NaN
    document: dict[str, Any] = {
        "metrics": outcome.metrics,
        "saturation": outcome.saturation,
        "refused": outcome.refused,
        "blocks": outcome.blocks,
    }
    if outcome.stopped is not None:
        document["stopped"] = dataclasses.asdict(outcome.stopped)
    return json.dumps(document, separators=(",", ":")).encode()


def _decode(key: str, blob: Any, digest: Any) -> Outcome | None:
    if not isinstance(blob, bytes) or digest != _digest(key, blob):
        return None
    document = json.loads(blob)
    document["blocks"] = {name: tuple(values) for name, values in document["blocks"].items()}
    if "stopped" in document:
        document["stopped"] = Stopped(**document["stopped"])
    return Outcome(**document)


def _digest(key: str, blob: bytes) -> bytes:
    return hashlib.sha256(key.encode() + blob).digest()[:CHECK_BYTES]
