"""Jobs in a database, SQLite or Postgres; events in a channel; evaluations read as they are written."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from planner.cli import main
from planner.service.channel import Channel, Event
from planner.service.database import open_database
from planner.service.evaluations import EvaluationsFile
from planner.service.job_store import CANCELLED, DONE, QUEUED, RUNNING, Job, JobStore
from planner.store import EVALUATIONS
from sim.errors import InputError

Open = Callable[[], JobStore]
SUPERUSER = "postgres"


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Postgres server of these tests' own, reached through a socket in a folder."""
    pytest.importorskip("psycopg")
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = shutil.which("initdb") or (str(binaries[-1]) if binaries else None)
    if initdb is None:
        pytest.skip("no Postgres server here")
    control = str(Path(initdb).resolve().with_name("pg_ctl"))
    folder = Path("/tmp") / f"planner-postgres-{os.getpid()}"  # a socket's path must be short
    folder.mkdir(mode=0o700)
    # Postgres does not run as root.
    as_user = ["runuser", "-u", SUPERUSER, "--"] if os.geteuid() == 0 else []

    def run(*command: str) -> None:
        subprocess.run([*as_user, *command], check=True, capture_output=True, cwd="/", timeout=60)

    try:
        if as_user:
            shutil.chown(folder, SUPERUSER, SUPERUSER)
        run(initdb, "-D", str(folder / "data"), "-U", SUPERUSER, "-A", "trust", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        run(control, "-D", str(folder / "data"), "-w", "-o", options, "-l", str(folder / "log"), "start")
    except (OSError, LookupError, subprocess.SubprocessError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"no Postgres server can be started here: {error}")
    try:
        yield f"postgresql://{SUPERUSER}@/postgres?host={folder}"
    finally:
        run(control, "-D", str(folder / "data"), "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgres"])
def reopened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens one database again and again, as restarts do: the earlier store is closed then."""
    url = request.getfixturevalue("postgres") if request.param == "postgres" else None
    stores: list[JobStore] = []

    def again() -> JobStore:
        for store in stores:
            store.close()
        stores[:] = [JobStore(open_database(url, tmp_path / "jobs.sqlite"))]
        return stores[0]

    again()._database.execute("DELETE FROM planner_jobs")
    yield again
    stores[0].close()


def a_job(name: str, job: str) -> Job:
    return Job(job, name, "Qwen/Qwen3-14B", f"name: {name}\n# ü 100% ?", facts={"combinations": 3})


def test_a_job_is_after_a_restart_what_it_was(reopened: Open) -> None:
    store = reopened()
    job = store.add(a_job("first", "0000000001"))
    progress = {"done": 3, "left_s": None}
    assert store.change(job.id, (QUEUED,), state=RUNNING, started_at=1.5, attempts=1, progress=progress)
    found = reopened().get(job.id)
    assert found is not None
    assert (found.state, found.started_at, found.attempts, found.progress) == (RUNNING, 1.5, 1, progress)
    assert (found.yaml, found.facts, found.problems) == (job.yaml, {"combinations": 3}, [])
    assert found.created_at == job.created_at


def test_of_many_that_change_a_job_at_once_one_succeeds(reopened: Open) -> None:
    store = reopened()
    store.add(a_job("contended", "0000000001"))
    won: list[bool] = []
    threads = [
        threading.Thread(target=lambda: won.append(store.change("0000000001", (QUEUED,), state=RUNNING)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 7 + [True]


def test_the_queue_is_in_the_order_of_coming(reopened: Open) -> None:
    store = reopened()
    jobs = [store.add(a_job(name, f"000000000{n}")) for n, name in enumerate(("a", "b", "c"))]
    assert [job.name for job in store.in_state(QUEUED)] == ["a", "b", "c"]
    assert [store.position(job) for job in jobs] == [0, 1, 2]
    store.change(jobs[0].id, (QUEUED,), state=CANCELLED)
    assert store.count(QUEUED) == 2
    assert store.position(jobs[2]) == 1
    assert not store.delete(jobs[1].id, (DONE,))
    assert store.delete(jobs[1].id, (QUEUED,))
    assert store.get(jobs[1].id) is None


def test_words_are_sought_as_they_are_written(reopened: Open) -> None:
    store = reopened()
    for n, name in enumerate(("a_b", "aXb", "100!", "QUICK")):
        store.add(a_job(name, f"000000000{n}"))
    for words, names in (("a_b", ["a_b"]), ("%", []), ("!", ["100!"]), ("quick", ["QUICK"]), ("' OR 1=1 --", [])):
        assert [job.name for job in store.page((), words, 10, 0)[0]] == names
    assert store.page((), "qwen", 2, 0)[1] == 4
    assert [job.name for job in store.page((QUEUED,), "", 2, 0)[0]] == ["QUICK", "100!"]


def test_a_database_serves_one_service_and_survives_the_loss_of_its_connection(postgres: str) -> None:
    with closing(open_database(postgres, Path("unused"))) as database:
        with pytest.raises(InputError, match="another service"):
            open_database(postgres, Path("unused"))
        store = JobStore(database)
        store.add(a_job("kept", "abcdefabcd"))
        ((process,),) = database.query("SELECT pg_backend_pid()")
        database.execute("DO $$ BEGIN PERFORM 1; END $$")
        _terminate(postgres, int(process))
        found = store.get("abcdefabcd")
        assert found is not None
        assert found.name == "kept"


def _terminate(url: str, process: int) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s)", (process,))


@pytest.mark.parametrize(
    ("url", "words"),
    [("mysql://x/y", "postgresql://"), ("postgresql://nobody@127.0.0.1:1/x?connect_timeout=2", "cannot")],
)
def test_a_database_that_cannot_be_is_one_line(
    url: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", "0", "--data", str(tmp_path), "--database", url]) == 2
    error = capsys.readouterr().err
    assert error.startswith("planner: --database:")
    assert words in error
    assert error.count("\n") == 1


# -- events -------------------------------------------------------------------------------------------------------


async def _collect(channel: Channel, number: int) -> list[Event]:
    return [event async for event in channel.after(number)]


def test_who_is_slow_sees_the_latest_of_each_kind_in_order() -> None:
    async def watch() -> list[Event]:
        channel = Channel()
        for n in range(5):
            channel.publish("progress", str(n))
        channel.publish("state", "running")
        channel.publish("progress", "5")
        channel.close()
        return await _collect(channel, 0)

    events = asyncio.run(watch())
    assert [(event.kind, event.data) for event in events] == [("state", "running"), ("progress", "5")]


def test_every_watcher_hears_what_comes_and_who_comes_back_what_is_new() -> None:
    async def watch() -> tuple[list[list[Event]], list[Event]]:
        channel = Channel()
        watchers = [asyncio.create_task(_collect(channel, 0)) for _ in range(3)]
        for n in range(3):
            channel.publish("progress", str(n))
            await asyncio.sleep(0.01)
        channel.close()
        heard = [await watcher for watcher in watchers]
        return heard, await _collect(channel, heard[0][1].number)

    heard, again = asyncio.run(watch())
    for events in heard:
        assert [event.data for event in events] == ["0", "1", "2"]
    assert [event.data for event in again] == ["2"]


# -- evaluations --------------------------------------------------------------------------------------------------


def _line(plan: str, value: float) -> str:
    evaluation = {"id": plan, "parameters": {}, "simulated": True, "feasible": True, "why_not": None, "violation": 0}
    return json.dumps(evaluation | {"metrics": {"gpus": value}}) + "\n"


def test_evaluations_are_read_on_from_where_they_ended(tmp_path: Path) -> None:
    path, file = tmp_path / EVALUATIONS, EvaluationsFile(tmp_path)
    assert file.fresh() == []
    whole, half = _line("a", 1), _line("b", 2)
    path.write_text(whole + half[:10])
    assert [e["id"] for e in file.fresh()] == ["a"]
    with path.open("a") as more:
        more.write(half[10:] + "garbage\n" + _line("a", 3))
    assert [e["id"] for e in file.fresh()] == ["b", "a"]
    assert [(e["id"], e["metrics"]["gpus"]) for e in file.all()] == [("a", 3), ("b", 2)]
    replacement = tmp_path / "new"
    replacement.write_text(_line("c", 4))
    replacement.replace(path)
    assert [e["id"] for e in file.all()] == ["c"]
