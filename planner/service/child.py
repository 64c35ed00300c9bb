"""The process that runs one search: its progress goes out line by line, and it ends with the service."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from planner.run_lock import RunLock
from sim.errors import InputError

if TYPE_CHECKING:
    from planner.search.surroundings import Progress
    from planner.space import Space

PROGRESS_EVERY_S = 0.25
FRONT_EVERY_S = 0.5
MOST_POINTS = 500  # of a front that are sent while it runs
LOCK_WAIT_S = 60.0  # for the process that an earlier service has left behind
NICE = 10
OOM_SCORE = 500


def main() -> int:
    """Run the search that the first line of the input describes. Exits as `planner search` does."""
    request = json.loads(sys.stdin.readline())
    sender = _Sender(sys.stdout)
    _be_modest(request["memory_bytes"])
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C at the service's terminal is for the service
    threading.Thread(target=_end_with_service, daemon=True).start()
    lock = RunLock(Path(request["lock"]))
    try:
        _wait_for(lock)
        return _search(request, sender)
    except InputError as error:
        sender.send("problem", {"field": error.field, "problem": error.problem})
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        lock.release()


def _be_modest(memory_bytes: int) -> None:
    """Let the service go first: in processor time, and out of memory last."""
    os.nice(NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _end_with_service() -> None:
    """The input ends when the service does, however it does. What was evaluated is in the file, and the next service
    takes it up: there is nothing to wait for."""
    with contextlib.suppress(OSError):
        while os.read(sys.stdin.fileno(), 1):
            pass
    os._exit(130)


def _wait_for(lock: RunLock) -> None:
    """Until the process of an earlier service that still writes this run has ended."""
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            lock.acquire()
        except InputError:
            if time.monotonic() > deadline:
                raise InputError("", "another process still writes this run") from None
            time.sleep(0.1)
        else:
            return


def _search(request: dict[str, Any], sender: _Sender) -> int:
    from planner.policy_path import find_policies
    from planner.search.session import SearchOptions, search
    from planner.space import parse_space

    folder, out = Path(request["folder"]), Path(request["out"])
    if request["policies"]:
        find_policies(folder)
    document = json.loads(Path(request["space"]).read_text(encoding="utf-8"))
    space = parse_space(document, folder)
    _check_requests(space, request["requests"])
    there = out.is_dir() and any(out.iterdir())
    options = SearchOptions(
        out,
        resume=there,
        workers=request["workers"],
        warn=lambda text: sender.send("warning", {"text": text}),
    )
    watcher = _Watcher(space, out, sender)
    run = search(space, options, watcher)
    watcher.last()
    every_one_failed = run.evaluations and all(evaluation.get("failed") for evaluation in run.evaluations)
    if run.manifest["interrupted"]:
        return 130
    if every_one_failed:
        sender.send("problem", {"field": "", "problem": str(run.evaluations[0]["why_not"])})
        return 1
    from planner.report import names, verdict

    best = verdict.recommended(run)
    label = None if best is None else f"{names.plan_label(best['parameters'])} {best['parameters'].get('gpu')}"
    sender.send("result", {"recommended": None if best is None else best["id"], "label": label})
    return 0


def _check_requests(space: Space, most: int) -> None:
    """Of a trace only its file says how many requests it holds."""
    from planner.evaluate import make_evaluator

    if "num_requests" in space.workload or not any("trace" in str(key) for key in _keys(space.workload)):
        return
    count = len(make_evaluator(space).workload)
    if count > most:
        raise InputError("workload", f"has {count:,} requests; this service simulates at most {most:,}")


def _keys(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value, *(key for item in value.values() for key in _keys(item))]
    return [key for item in value for key in _keys(item)] if isinstance(value, list) else []


class _Sender:
    """Writes events as lines. A service that has gone is no reason to fail: the end of the input says so too."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def send(self, kind: str, value: Any) -> None:
        with contextlib.suppress(OSError):
            self._stream.write(json.dumps({"kind": kind, "value": value}) + "\n")
            self._stream.flush()


class _Watcher:
    """Sends progress a few times a second, and the front when it has changed."""

    def __init__(self, space: Space, out: Path, sender: _Sender) -> None:
        from planner.service.live_front import LiveFront

        self._sender = sender
        self._front = LiveFront(space, out)
        self._progress: Progress | None = None
        self._progress_at = self._front_at = -1e9

    def __call__(self, progress: Progress) -> None:
        self._progress = progress
        now = time.monotonic()
        if now - self._progress_at >= PROGRESS_EVERY_S:
            self._progress_at = now
            self._send_progress(progress)
        if now - self._front_at >= FRONT_EVERY_S:
            self._front_at = now
            self._send_front()

    def last(self) -> None:
        """Send where it ended."""
        if self._progress is not None:
            self._send_progress(self._progress)
        self._send_front()

    def _send_progress(self, progress: Progress) -> None:
        rate = progress.done / progress.elapsed_s if progress.elapsed_s > 0 else 0.0
        left = None
        if progress.expected and rate > 0:
            left = round(max(0, progress.expected - progress.done) / rate, 1)
        self._sender.send(
            "progress",
            asdict(progress)
            | {"elapsed_s": round(progress.elapsed_s, 2), "rate_per_s": round(rate, 2), "left_s": left},
        )

    def _send_front(self) -> None:
        points = self._front.changed()
        if points is not None:
            self._sender.send("front", {"plans": points[:MOST_POINTS], "exact": False})


if __name__ == "__main__":
    sys.exit(main())
