"""Evaluations in a Postgres database, of a real server where there is one: shared, and no obstacle when it goes."""

from __future__ import annotations

import glob
import math
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner import evaluation_store
from planner.evaluate import Outcome, Stopped
from planner.evaluation_store import default_location, open_store
from planner.postgres_store import PostgresStore
from planner.search import session
from planner.search.session import SearchOptions, search
from planner.space import parse_space
from sim.errors import InputError
from tests.test_search_faults import DOCUMENT, bytes_of

psycopg = pytest.importorskip("psycopg")

OUTCOME = Outcome(
    {"ttft_mean_ms": 0.1 + 0.2, "tpot_mean_ms": math.nan}, saturation="stable", blocks={"ttft_mean_ms": (1.0, math.nan)}
)


def binary(name: str) -> str | None:
    return shutil.which(
        name, path=os.pathsep.join([*sorted(glob.glob("/usr/lib/postgresql/*/bin")), os.environ["PATH"]])
    )


class Server:
    """A server of its own on a Unix socket, run by a user that initdb accepts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user: str | None = None
        if os.geteuid() == 0:
            self.user = next(name for name in ("postgres", "nobody") if _exists(name))
            shutil.chown(folder, self.user)
        self.url = f"postgresql://someone:secret@/postgres?host={folder}"

    def run(self, command: str, *arguments: str) -> None:
        executable = binary(command)
        assert executable is not None
        subprocess.run(
            [executable, "-D", str(self.folder / "data"), *arguments],
            check=True,
            timeout=60,
            cwd=self.folder,
            user=self.user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def start(self) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories={self.folder} -c fsync=off"
        self.run("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        self.run("pg_ctl", "-w", "-m", "immediate", "stop")


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if binary("initdb") is None or binary("pg_ctl") is None:
        pytest.skip("there is no Postgres server on this machine (initdb and pg_ctl)")
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # a socket's path must be short
    server = Server(folder)
    try:
        server.run("initdb", "-A", "trust", "-U", "someone", "--no-sync")
        server.start()
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def store(server: Server, warnings: list[str]) -> Iterator[PostgresStore]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS evaluations")
    opened = PostgresStore(server.url, warnings.append)
    yield opened
    opened.close()


def test_an_outcome_comes_back_to_the_last_bit(store: PostgresStore, warnings: list[str]) -> None:
    stopped = Outcome({"gpus": 2.0}, stopped=Stopped("after 3 of 5 requests", {"ttft_mean_ms": 1 / 3}))
    outcomes = {"a": OUTCOME, "b": Outcome({"gpus": 2.0}, refused="does not fit"), "c": stopped}
    for key, outcome in outcomes.items():
        store.put(key, outcome)
    store.put("failed", Outcome({}, failed="its worker died"))
    found = store.get(["a", "b", "c", "d", "failed"])
    assert repr(found) == repr(outcomes)
    assert warnings == []


def test_a_damaged_row_is_passed_over_and_written_again(
    store: PostgresStore, server: Server, warnings: list[str]
) -> None:
    store.put("a", OUTCOME)
    store.put("b", OUTCOME)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("UPDATE evaluations SET outcome = set_byte(outcome, 20, 7) WHERE key = 'a'")
    assert set(store.get("ab")) == {"b"}
    assert "1 damaged" in warnings[0]
    store.put("a", OUTCOME)
    assert set(store.get("ab")) == {"a", "b"}


def test_versions_of_the_code_keep_theirs_side_by_side(
    store: PostgresStore, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", OUTCOME)
    monkeypatch.setattr(evaluation_store, "code_digest", lambda: "another")
    other = PostgresStore(server.url, lambda text: None)
    assert other.get("a") == {}
    other.put("a", Outcome({"gpus": 1.0}))
    other.close()
    assert repr(store.get("a")["a"]) == repr(OUTCOME)


def test_several_searches_write_one_database_at_a_time(server: Server, warnings: list[str]) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS evaluations")

    def write(name: str) -> None:
        mine = PostgresStore(server.url, warnings.append)
        for n in range(50):
            mine.put(f"{name}{n % 40}", Outcome({"n": float(n)}))
            mine.put(f"shared{n}", Outcome({"n": float(n)}))
        mine.close()

    threads = [threading.Thread(target=write, args=(name,)) for name in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reader = PostgresStore(server.url, warnings.append)
    assert (
        len(reader.get([*(f"{name}{n}" for name in "xyz" for n in range(50)), *(f"shared{n}" for n in range(50))]))
        == 170
    )
    reader.close()
    assert warnings == []


def test_searches_share_what_they_simulated_and_go_on_when_the_server_goes(
    store: PostgresStore, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setattr(session, "_picture", lambda run: None)
    monkeypatch.setattr(session, "_report", lambda run: "")
    monkeypatch.setenv("PLANNER_STORE", server.url)
    space = parse_space(DOCUMENT, Path())
    first = search(space, SearchOptions(tmp_path / "first", warn=warnings.append))
    again = search(space, SearchOptions(tmp_path / "again", warn=warnings.append))
    assert (again.manifest["reused"], again.manifest["simulations"]) == (first.manifest["simulations"], 0)
    assert bytes_of(tmp_path / "first") == bytes_of(tmp_path / "again")
    assert warnings == []

    keep: Any = PostgresStore.put
    puts = []

    def put(self: PostgresStore, key: str, outcome: Outcome) -> None:
        if len(puts) == 3:
            server.stop()
        puts.append(key)
        keep(self, key, outcome)

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DELETE FROM evaluations")
    monkeypatch.setattr(PostgresStore, "put", put)
    try:
        search(space, SearchOptions(tmp_path / "lost", warn=warnings.append))
    finally:
        server.start()
    assert len(puts) == sum(first.manifest[name] for name in ("simulations", "trials", "confidence_trials"))
    assert bytes_of(tmp_path / "first") == bytes_of(tmp_path / "lost")
    assert len(warnings) == 1
    assert "nothing more is kept" in warnings[0]
    assert "secret" not in warnings[0]


def test_without_a_server_a_search_goes_on_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setenv("PLANNER_STORE", f"postgresql://someone:secret@/nothing?host={tmp_path}")
    store = open_store(warnings.append)
    assert store is not None
    store.put("a", OUTCOME)
    assert store.get("a") == {}
    store.close()
    assert len(warnings) == 1
    assert "every candidate is simulated" in warnings[0]
    assert "secret" not in warnings[0]
    assert "\n" not in warnings[0]


def test_without_psycopg_the_warning_says_what_to_install(monkeypatch: pytest.MonkeyPatch, warnings: list[str]) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    PostgresStore("postgresql://host/db", warnings.append).put("a", OUTCOME)
    assert len(warnings) == 1
    assert "pip install 'llm-serving-planner[postgres]'" in warnings[0]


def test_a_url_of_another_kind_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_STORE", "postgresql://u@h/d")
    assert default_location() == "postgresql://u@h/d"
    monkeypatch.setenv("PLANNER_STORE", "mysql://u:secret@h/d")
    with pytest.raises(InputError, match="postgresql://USER@HOST/DATABASE") as error:
        default_location()
    assert "secret" not in str(error.value)
