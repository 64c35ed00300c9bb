"""Searches on failing machines: full disks, kills, damaged files, clocks that jump; nothing that was kept is lost."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.evaluation_log import parse_evaluation
from planner.search import session
from planner.search.session import SearchOptions, search
from planner.space import Space, parse_space
from planner.store import RunStore, read_evaluations

DOCUMENT: dict[str, Any] = {
    "name": "faults",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "workload": {
        "kind": "lengths",
        "input": 300,
        "output": 30,
        "num_requests": 60,
        "arrival": {"process": "poisson", "rate_rps": 5},
    },
    "objectives": [{"minimize": "ttft_mean_ms"}, {"minimize": "gpus"}],
    "space": {"gpu": "H100", "max_num_seqs": [4, 8, 16, 32], "replicas": [1, 2, 3]},
    "search": {"method": "exhaustive", "executor": "serial"},
}
FILES = ("evaluations.jsonl", "front.json", "front.csv")


def space() -> Space:
    return parse_space(DOCUMENT, Path())


@pytest.fixture(autouse=True, scope="module")
def _without_pictures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "_picture", lambda run: None)
        patch.setattr(session, "_report", lambda run: "")
        yield


def bytes_of(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in FILES]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("run") / "whole"
    search(space(), SearchOptions(folder, reuse=False))
    return bytes_of(folder)


def test_a_full_disk_ends_a_search_that_resumes_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: list[bytes]
) -> None:
    keep, kept = RunStore.append, []

    def append(self: RunStore, evaluations: Iterable[Mapping[str, Any]]) -> None:
        if len(kept) == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        kept.append(evaluations)
        keep(self, evaluations)

    monkeypatch.setattr(RunStore, "append", append)
    with pytest.raises(OSError, match="No space left"):
        search(space(), SearchOptions(tmp_path / "run", reuse=False))
    monkeypatch.setattr(RunStore, "append", keep)
    assert len(read_evaluations(tmp_path / "run")) == 5
    run = search(space(), SearchOptions(tmp_path / "run", resume=True, reuse=False))
    assert run.manifest["simulations"] == len(run.evaluations) - 5
    assert bytes_of(tmp_path / "run") == undisturbed


def test_a_clock_that_jumps_changes_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: list[bytes]
) -> None:
    jumps = iter(range(10**6))

    def wall_clock() -> float:
        return 1e9 + (-1) ** next(jumps) * 1e8

    monkeypatch.setattr(time, "time", wall_clock)
    search(space(), SearchOptions(tmp_path / "run", reuse=False))
    assert bytes_of(tmp_path / "run") == undisturbed


@pytest.mark.parametrize("seed", range(4))
def test_evaluations_cut_or_flipped_anywhere_resume_to_the_same_bytes(
    tmp_path: Path, undisturbed: list[bytes], seed: int
) -> None:
    folder = tmp_path / "run"
    search(space(), SearchOptions(folder, reuse=False))
    content = bytearray(undisturbed[0])
    place = (seed * 7919 + 101) % len(content)
    content[place] = ord("\n") if seed % 2 else content[place] ^ 0x01  # a line cut in two, or another digit
    (folder / FILES[0]).write_bytes(content[: len(content) - 37 * seed])
    warnings: list[str] = []
    search(space(), SearchOptions(folder, resume=True, reuse=False, warn=warnings.append))
    assert bytes_of(folder) == undisturbed
    assert len(warnings) == 1
    assert "damaged" in warnings[0]


def test_every_flipped_bit_of_an_evaluation_is_noticed(tmp_path: Path, undisturbed: list[bytes]) -> None:
    whole = undisturbed[0].splitlines(keepends=True)[-3:]
    file = tmp_path / FILES[0]
    file.write_bytes(b"".join(whole))
    expected = {e["id"]: repr(e) for e in read_evaluations(tmp_path)}
    assert len(expected) == 3
    for place in range(len(whole[0]) + 1, len(whole[0]) + len(whole[1]), 7):
        for bit in (0, 6):
            content = bytearray(b"".join(whole))
            content[place] ^= 1 << bit
            file.write_bytes(content)
            found = read_evaluations(tmp_path)
            assert all(expected.get(e["id"]) == repr(e) for e in found), (place, bit)
            assert len(found) >= 1


def test_a_write_cut_at_any_byte_loses_that_evaluation_alone(tmp_path: Path, undisturbed: list[bytes]) -> None:
    lines = undisturbed[0].splitlines(keepends=True)[:3]
    before, last = b"".join(lines[:2]), lines[2]
    final = parse_evaluation(last.decode())
    assert final is not None
    for length in (0, 1, *range(2, len(last) - 25, 61), *range(len(last) - 25, len(last))):
        store = RunStore(tmp_path)
        (tmp_path / FILES[0]).write_bytes(before + last[:length])
        store.start({"name": "cut"}, keep_evaluations=True)
        store.append([final])
        store.close()
        assert (tmp_path / FILES[0]).read_bytes().startswith(before)
        assert [e["id"] for e in read_evaluations(tmp_path)][-1] == final["id"]
        assert len(read_evaluations(tmp_path)) == 3


def command(folder: Path, *options: str) -> list[str]:
    (folder / "space.yaml").write_text(yaml.safe_dump(DOCUMENT))
    return [sys.executable, "-m", "planner.cli", "search", "space.yaml", "--out", "run", "--quiet", *options]


def environment(store: str = "none") -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent), "PLANNER_STORE": store}


def test_a_driver_killed_again_and_again_resumes_to_the_same_bytes(tmp_path: Path, undisturbed: list[bytes]) -> None:
    log = tmp_path / "run" / FILES[0]
    seen = 0
    for options in ((), ("--resume",)):
        process = subprocess.Popen(command(tmp_path, *options), cwd=tmp_path, env=environment())
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if log.exists() and log.read_bytes().count(b"\n") > seen:
                break
            time.sleep(0.002)
        process.kill()
        process.wait()
        found = len(read_evaluations(tmp_path / "run"))
        assert found >= seen  # nothing that was kept is lost
        seen = found
    assert seen
    subprocess.run(command(tmp_path, "--resume"), cwd=tmp_path, env=environment(), check=True, timeout=120)
    assert bytes_of(tmp_path / "run") == undisturbed


@pytest.mark.skipif(sys.platform == "win32", reason="there is no RLIMIT_FSIZE")
def test_a_disk_that_is_full_in_the_middle_of_a_line_is_said_in_one_line(
    tmp_path: Path, undisturbed: list[bytes]
) -> None:
    import resource

    room = len(undisturbed[0]) // 2

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    options: dict[str, Any] = {"timeout": 120, "capture_output": True, "text": True, "preexec_fn": limit}
    full = subprocess.run(command(tmp_path), cwd=tmp_path, env=environment(), **options)
    assert full.returncode == 1
    assert "Traceback" not in full.stderr
    assert len(full.stderr.splitlines()) == 1
    assert (tmp_path / "run" / FILES[0]).stat().st_size == room
    assert len(read_evaluations(tmp_path / "run")) > 3
    subprocess.run(command(tmp_path, "--resume"), cwd=tmp_path, env=environment(), check=True, timeout=120)
    assert bytes_of(tmp_path / "run") == undisturbed


def test_two_searches_share_one_store_at_once_and_find_the_same(tmp_path: Path, undisturbed: list[bytes]) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    processes = []
    for folder in folders:
        folder.mkdir()
        store = environment(str(tmp_path / "store.sqlite"))
        processes.append(subprocess.Popen(command(folder), cwd=folder, env=store, stderr=subprocess.PIPE))
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert errors == [b"", b""]
    assert [bytes_of(folder / "run") for folder in folders] == [undisturbed] * 2
