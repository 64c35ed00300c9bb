"""The store of evaluations: reused where all is the same, never wrong, and no obstacle when it is damaged."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner import evaluation_store
from planner.evaluate import Outcome
from planner.evaluation_store import default_location, key_of
from planner.sqlite_store import SQLiteStore

OUTCOME = Outcome({"ttft_mean_ms": 0.1 + 0.2, "tpot_mean_ms": math.nan}, saturation="stable")
SPACE: dict[str, Any] = {
    "name": "small",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "workload": {
        "kind": "lengths",
        "input": 300,
        "output": 20,
        "num_requests": 50,
        "arrival": {"process": "poisson", "rate_rps": 5},
    },
    "objectives": [{"minimize": "ttft_mean_ms"}],
    "space": {"gpu": "H100", "max_num_seqs": [8, 16, 32], "replicas": [1, 2]},
    "search": {"method": "exhaustive"},
}


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, warnings: list[str]) -> Iterator[SQLiteStore]:
    opened = SQLiteStore(tmp_path / "evaluations.sqlite", warnings.append)
    yield opened
    opened.close()


def test_an_outcome_comes_back_to_the_last_bit(store: SQLiteStore) -> None:
    store.put("a", OUTCOME)
    store.put("b", Outcome({"gpus": 2.0}, refused="does not fit"))
    found = store.get(["a", "b", "c"])
    assert set(found) == {"a", "b"}
    assert repr(found["a"]) == repr(OUTCOME)
    assert found["b"].refused == "does not fit"


def test_a_failure_is_tried_again(store: SQLiteStore) -> None:
    store.put("a", Outcome({}, failed="its worker died"))
    assert store.get(["a"]) == {}


def test_outcomes_of_other_code_are_not_taken_over(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("a", OUTCOME)
    monkeypatch.setattr(evaluation_store, "code_digest", lambda: "another")
    other = SQLiteStore(store.path, lambda text: None)
    assert other.get(["a"]) == {}
    other.close()


def test_a_users_own_policy_has_no_key() -> None:
    assert key_of("context", {"routing": "weighted"}) is not None
    assert key_of("context", {"routing": "mine:Router"}) is None
    assert key_of("context", {"routing": {"name": "mine:Router", "x": 1}}) is None


@pytest.mark.parametrize(
    "policy",
    [
        {"routing": {"name": "weighted", "scorers": {"mine:Scorer": 1}}},
        {"routing": {"name": "weighted", "picker": {"name": "mine:Picker"}}},
        {"flow_control": {"name": "static", "detector": "mine:Detector"}},
    ],
)
def test_a_part_of_a_users_own_in_a_shipped_policy_has_no_key_either(policy: dict[str, Any]) -> None:
    assert key_of("context", policy) is None


def test_keys_differ_with_parameters_and_context() -> None:
    assert len({key_of("a", {"tp": 1}), key_of("a", {"tp": 2}), key_of("b", {"tp": 1})}) == 3


def test_a_damaged_row_is_passed_over_with_a_warning(store: SQLiteStore, warnings: list[str]) -> None:
    store.put("a", OUTCOME)
    store.put("b", OUTCOME)
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE evaluations SET outcome = replace(outcome, '0.3', '0.4') WHERE key = 'a'")
    assert set(store.get(["a", "b"])) == {"b"}
    assert "1 damaged" in warnings[0]


@pytest.mark.parametrize("offset", range(0, 40_000, 1531))
def test_no_flipped_bit_gives_a_wrong_outcome_or_stops_a_search(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "evaluations.sqlite"
    first = SQLiteStore(path, lambda text: None)
    outcomes = {str(n): Outcome({"n": float(n), "x": 1 / (n + 1)}, saturation="stable") for n in range(300)}
    for key, outcome in outcomes.items():
        first.put(key, outcome)
    first.close()
    content = bytearray(path.read_bytes())
    content[offset % len(content)] ^= 0x10
    path.write_bytes(content)
    second = SQLiteStore(path, lambda text: None)
    found = second.get(outcomes)
    assert all(outcomes[key] == outcome for key, outcome in found.items())
    second.put("new", OUTCOME)
    second.close()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.99])
def test_a_truncated_file_gives_no_wrong_outcome(tmp_path: Path, share: float) -> None:
    path = tmp_path / "evaluations.sqlite"
    first = SQLiteStore(path, lambda text: None)
    for n in range(300):
        first.put(str(n), Outcome({"n": float(n)}))
    first.close()
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    second = SQLiteStore(path, lambda text: None)
    assert all(outcome.metrics["n"] == float(key) for key, outcome in second.get(map(str, range(300))).items())
    second.close()


def test_a_file_that_is_no_database_is_put_aside(tmp_path: Path, warnings: list[str]) -> None:
    path = tmp_path / "evaluations.sqlite"
    path.write_bytes(b"not a database, but somebody's notes " * 100)
    store = SQLiteStore(path, warnings.append)
    store.put("a", OUTCOME)
    assert set(store.get(["a"])) == {"a"}
    store.close()
    assert "somebody's notes" in (tmp_path / "evaluations.sqlite.damaged").read_text()
    assert len(warnings) == 1


def test_a_full_disk_costs_a_warning(store: SQLiteStore, warnings: list[str]) -> None:
    store.put("a", OUTCOME)
    assert store._connection is not None
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count={pages}")  # SQLite reports it as a full disk
    for n in range(2000):
        store.put(f"more {n}", OUTCOME)
    assert len(warnings) == 1
    assert "full" in warnings[0]
    assert "a" in store.get(["a"])


def test_a_place_that_cannot_be_written_costs_a_warning(tmp_path: Path, warnings: list[str]) -> None:
    (tmp_path / "file").write_text("")
    store = SQLiteStore(tmp_path / "file" / "evaluations.sqlite", warnings.append)
    store.put("a", OUTCOME)
    assert store.get(["a"]) == {}
    assert len(warnings) == 1


def test_two_searches_may_write_one_store_at_a_time(tmp_path: Path, warnings: list[str]) -> None:
    path = tmp_path / "evaluations.sqlite"

    def write(name: str) -> None:
        store = SQLiteStore(path, warnings.append)
        for n in range(200):
            store.put(f"{name}{n}", Outcome({"n": float(n)}))
        store.close()

    threads = [threading.Thread(target=write, args=(name,)) for name in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = SQLiteStore(path, warnings.append)
    assert len(store.get(f"{name}{n}" for name in "xyz" for n in range(200))) == 600
    store.close()
    assert warnings == []


def test_the_store_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLANNER_STORE", "none")
    assert default_location() is None
    monkeypatch.setenv("PLANNER_STORE", str(tmp_path / "mine"))
    assert default_location() == tmp_path / "mine"
    monkeypatch.delenv("PLANNER_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_location() == tmp_path / "llm-serving-planner" / "evaluations.sqlite"


# -- searches ---------------------------------------------------------------------------------------------------


def search(folder: Path, out: str, *options: str, space: dict[str, Any] = SPACE) -> dict[str, Any]:
    """The manifest of a search."""
    (folder / "space.yaml").write_text(yaml.safe_dump(space))
    command = [sys.executable, "-m", "planner.cli", "search", "space.yaml", "--out", out, "--quiet", *options]
    environment = {
        **os.environ,
        "PLANNER_STORE": str(folder / "store.sqlite"),
        "PYTHONPATH": str(Path(__file__).parent.parent),
    }
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=120, capture_output=True)
    return dict(json.loads((folder / out / "run.json").read_text()))


def kept(folder: Path, out: str) -> list[bytes]:
    return [(folder / out / name).read_bytes() for name in ("evaluations.jsonl", "front.json", "front.csv")]


def test_a_second_search_simulates_nothing_again_and_leaves_the_same_bytes(tmp_path: Path) -> None:
    first = search(tmp_path, "first")
    again = search(tmp_path, "again")
    assert first["simulations"] > 0
    assert (first["reused"], again["reused"], again["simulations"]) == (0, first["simulations"], 0)
    assert kept(tmp_path, "first") == kept(tmp_path, "again")
    assert search(tmp_path, "all", "--no-reuse")["simulations"] == first["simulations"]


def test_a_larger_space_takes_over_what_it_shares_with_a_smaller_one(tmp_path: Path) -> None:
    first = search(tmp_path, "first")
    larger = SPACE | {"space": SPACE["space"] | {"max_num_seqs": [8, 16, 32, 64]}, "name": "larger"}
    again = search(tmp_path, "again", space=larger)
    assert again["reused"] == first["simulations"]
    assert again["simulations"] == 2


@pytest.mark.parametrize("change", ["workload.arrival.rate_rps=6", "search.seed=1", "prices={H100-SXM-80GB: 9}"])
def test_nothing_is_taken_over_from_another_workload_seed_or_price(tmp_path: Path, change: str) -> None:
    search(tmp_path, "first")
    assert search(tmp_path, "other", "--set", change)["reused"] == 0
