"""Every evaluation ever made, kept: what was simulated once is not simulated again.

A key names all that an outcome depends on: plan, requests, seed, coefficients, and the simulator's own code. A store
can make a search faster, never wrong: what it cannot read, or not write, costs a warning and a simulation.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import sim
from planner import early_stop, evaluate
from planner.evaluate import Outcome, Stopped
from planner.policy_path import own_policies
from sim.errors import InputError

VARIABLE = "PLANNER_STORE"  # a file, the URL of a database, or `none`
SERVERS = ("postgresql://", "postgres://")
MANY = 500  # keys that are looked up at a time
CHECK_BYTES = 16

Warn = Callable[[str], None]
Row = tuple[str, bytes, bytes]  # key, outcome, digest


def default_location() -> Path | str | None:
    """The file, or the URL of a database, that $PLANNER_STORE names, or a file in the user's cache directory; None if
    it says `none`. Raises InputError for another kind of URL."""
    given = os.environ.get(VARIABLE)
    if given and given.startswith(SERVERS):
        return given
    if given and "://" in given:
        scheme = given.partition("://")[0]  # the rest may hold a password
        raise InputError(
            f"${VARIABLE}", f"must be a file, postgresql://USER@HOST/DATABASE or `none`, got {scheme}://..."
        )
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


class EvaluationStore(ABC):
    """Outcomes by key. Several searches may use one store at a time.

    Each outcome is written in a transaction of its own, with a digest; rows whose digest does not match are passed
    over. After a failed write nothing more is written.
    """

    def __init__(self, name: str, warn: Warn) -> None:
        self.name = name  # as it stands in warnings
        self._warn = warn
        self._code = code_digest()
        self._writes = True

    @abstractmethod
    def _rows(self, keys: list[str]) -> list[Row]:
        """What there is under these keys, of this version of the code; nothing where the store cannot be read."""

    @abstractmethod
    def _insert(self, key: str, blob: bytes, digest: bytes) -> str | None:
        """Write a row; returns what went wrong, if anything."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the store."""

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
            self._warn(f"{self.name}: {damaged} damaged evaluations are passed over and simulated again")
        return found

    def put(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome; one that failed is not kept, so that it is tried again."""
        if not self._writes or outcome.failed is not None:
            return
        blob = _encode(outcome)
        problem = self._insert(key, blob, _digest(key, blob))
        if problem is not None:
            self._writes = False
            self._warn(f"{self.name}: nothing more is kept for later searches ({problem})")

    def _give_up(self, error: object) -> None:
        """From now on the store is empty and takes nothing. Who has been told of a failed write is told no more."""
        self.close()
        if self._writes:
            self._writes = False
            self._warn(f"{self.name}: cannot be used, every candidate is simulated ({' '.join(str(error).split())})")


def open_store(warn: Warn) -> EvaluationStore | None:
    """The store of this user, unless there is to be none. Raises InputError where $PLANNER_STORE names nothing that
    can be one."""
    location = default_location()
    if location is None:
        return None
    if isinstance(location, str):
        from planner.postgres_store import PostgresStore

        return PostgresStore(location, warn)
    if location.is_dir():
        raise InputError(f"${VARIABLE}", f"{location} is a directory; give a file, or `none`")
    from planner.sqlite_store import SQLiteStore

    return SQLiteStore(location, warn)


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
