"""The store of evaluations in one SQLite file of this machine."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from planner.evaluation_store import EvaluationStore, Row, Warn

BUSY_S = 10.0  # to wait for another search that writes
LARGEST = 1_000_000  # evaluations of other versions of the code are forgotten beyond this many

_SCHEMA = """
CREATE TABLE IF NOT EXISTS evaluations (
    key TEXT PRIMARY KEY, code TEXT NOT NULL, outcome BLOB NOT NULL, digest BLOB NOT NULL
) WITHOUT ROWID
"""


class SQLiteStore(EvaluationStore):
    """Outcomes in the file `path`. A file that is no database is put aside."""

    def __init__(self, path: Path, warn: Warn) -> None:
        super().__init__(str(path), warn)
        self.path = path
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

    def _rows(self, keys: list[str]) -> list[Row]:
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

    def _insert(self, key: str, blob: bytes, digest: bytes) -> str | None:
        if self._connection is None:
            return None
        row = (key, self._code, blob, digest)
        try:
            self._connection.execute("INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?, ?)", row)
        except sqlite3.DatabaseError as error:
            return str(error)
        return None

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
