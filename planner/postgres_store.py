"""The store of evaluations in a Postgres database that several machines share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from planner.evaluation_store import EvaluationStore, Row, Warn

if TYPE_CHECKING:
    import psycopg

CONNECT_S = 5
STATEMENT_MS = 10_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS evaluations (
    key TEXT NOT NULL, code TEXT NOT NULL, outcome BYTEA NOT NULL, digest BYTEA NOT NULL, PRIMARY KEY (key, code)
)
"""
_SELECT = "SELECT key, outcome, digest FROM evaluations WHERE code = %s AND key = ANY(%s)"
_INSERT = """
INSERT INTO evaluations (key, code, outcome, digest) VALUES (%s, %s, %s, %s)
ON CONFLICT (key, code) DO UPDATE SET outcome = EXCLUDED.outcome, digest = EXCLUDED.digest
"""


class PostgresStore(EvaluationStore):
    """Outcomes in the table `evaluations` of the database at `url`, which is made where there is none.

    Versions of the code keep theirs side by side, and nothing is ever deleted. Without psycopg, or a server, the store
    is empty and takes nothing, with a warning.
    """

    def __init__(self, url: str, warn: Warn) -> None:
        super().__init__(_without_password(url), warn)
        self._connection: psycopg.Connection[Any] | None = None
        try:
            import psycopg
        except ImportError:
            self._give_up("psycopg is not installed; pip install 'llm-serving-planner[postgres]'")
            return
        self._errors = psycopg.Error
        try:
            options = f"-c statement_timeout={STATEMENT_MS}"
            self._connection = psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_S, options=options)
            self._make_table()
        except psycopg.Error as error:
            self._give_up(error)

    def _make_table(self) -> None:
        assert self._connection is not None
        try:
            self._connection.execute(_SCHEMA)
        except self._errors:
            # Another search has just made it, or this user may not, but may write what there is.
            self._connection.execute("SELECT 1 FROM evaluations LIMIT 1")

    def _rows(self, keys: list[str]) -> list[Row]:
        if self._connection is None:
            return []
        try:
            return self._connection.execute(_SELECT, (self._code, keys)).fetchall()
        except self._errors as error:
            self._give_up(error)
            return []

    def _insert(self, key: str, blob: bytes, digest: bytes) -> str | None:
        if self._connection is None:
            return None
        try:
            self._connection.execute(_INSERT, (key, self._code, blob, digest))
        except self._errors as error:
            return " ".join(str(error).split())
        return None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _without_password(url: str) -> str:
    """What of a URL may stand in a warning."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
    except ValueError:
        return "postgresql://"
