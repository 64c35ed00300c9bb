"""One database behind two drivers: SQLite in a file, or Postgres by URL."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from sim.errors import InputError

Row = tuple[Any, ...]
BUSY_S = 10.0
POSTGRES = ("postgresql://", "postgres://")
LOCK = 0x706C616E6E6572  # "planner": the advisory lock of the one service that uses a Postgres database


class Database(Protocol):
    """Runs statements, each in a transaction of its own. May be used from any thread."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement with `?` for each value; returns how many rows it changed."""
        ...

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows of a SELECT."""
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...


def open_database(url: str | None, file: Path) -> Database:
    """The Postgres database at `url`, or the SQLite database in `file`. Raises InputError where there is none."""
    if url is None:
        return SqliteDatabase(file)
    if not url.startswith(POSTGRES):
        raise InputError("--database", f"must be a postgresql:// URL, got {url.partition('://')[0]}://...")
    return PostgresDatabase(url)


class SqliteDatabase:
    """A file in write-ahead mode: readers never wait, and what was committed survives a kill."""

    def __init__(self, file: Path) -> None:
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(file, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
        except sqlite3.DatabaseError as error:
            raise InputError("--data", f"{file} cannot be used as the database of jobs: {error}") from None

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement with `?` for each value; returns how many rows it changed."""
        with self._lock:
            return self._connection.execute(statement, values).rowcount

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows of a SELECT."""
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


class PostgresDatabase:
    """One connection, made again when it breaks; an advisory lock keeps a second service from the same jobs."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            problem = "Postgres needs the package psycopg: install llm-serving-planner[postgres]"
            raise InputError("--database", problem) from None
        self._driver = psycopg
        self._url = url
        self._lock = threading.Lock()
        try:
            self._connection = self._connect()
        except psycopg.Error as error:
            raise InputError("--database", f"cannot be used: {' '.join(str(error).split())}") from None

    def _connect(self) -> Any:
        connection = self._driver.connect(self._url, autocommit=True, connect_timeout=10)
        row = connection.execute("SELECT pg_try_advisory_lock(%s)", (LOCK,)).fetchone()
        if row is None or not row[0]:
            connection.close()
            raise InputError("--database", "is in use by another service; one database is one service's")
        return connection

    def _run(self, statement: str, values: Sequence[Any]) -> Any:
        """A cursor that has run the statement; a broken connection is made again once."""
        text = statement.replace("%", "%%").replace("?", "%s")
        try:
            return self._connection.execute(text, values)
        except (self._driver.OperationalError, self._driver.InterfaceError):
            self._connection.close()
            self._connection = self._connect()
            return self._connection.execute(text, values)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement with `?` for each value; returns how many rows it changed."""
        with self._lock:
            return int(self._run(statement, values).rowcount)

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows of a SELECT."""
        with self._lock:
            return list(self._run(statement, values).fetchall())

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()
