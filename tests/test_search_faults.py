"""Searches on failing machines: a full disk, clocks that jump; nothing that was kept is lost."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize("seed", range(5))
def test_evaluations_cut_or_flipped_anywhere_resume_to_the_same_bytes(
    tmp_path: Path, undisturbed: list[bytes], seed: int
) -> None:
    folder = tmp_path / "run"
    search(space(), SearchOptions(folder, reuse=False))
    content = bytearray(undisturbed[0])
    place = (seed * 7919 + 101) % len(content)
    content[place] = ord("\n") if seed % 2 else content[place] ^ 0x80  # no longer UTF-8, or a line cut in two
    (folder / FILES[0]).write_bytes(content[: len(content) - 37 * seed])
    search(space(), SearchOptions(folder, resume=True, reuse=False))
    assert bytes_of(folder) == undisturbed
