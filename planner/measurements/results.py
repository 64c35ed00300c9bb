"""What load generators write, read into one form: one reader a file, named in `READERS`, the format guessed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from sim.errors import InputError

MAX_BYTES = 2**30

# Name of a load generator -> the module with `recognises(document)` and `read(document, name)`.
READERS = {
    "vllm-bench": "planner.measurements._vllm_bench",
    "inference-perf": "planner.measurements._inference_perf",
    "guidellm": "planner.measurements._guidellm",
    "aiperf": "planner.measurements._aiperf",
}
# In a folder of results: the names that hold one, the first that is there counts.
IN_FOLDER = ("summary_lifecycle_metrics.json", "profile_export_aiperf.json", "benchmarks.json", "result.json")


@dataclass(frozen=True, slots=True)
class LoadResult:
    """One run of a load generator against a deployment.

    `metrics` holds the planner's flat names (`ttft_mean_ms`, `output_tokens_per_s`, ...), milliseconds and per second.
    TPOT is (E2E - TTFT) / (output tokens - 1), as the simulator has it, whatever the tool calls so.
    """

    tool: str
    path: str
    metrics: dict[str, float]
    completed: int | None = None
    failed: int = 0
    stage: int | None = None  # of a load with stages: which one this is; None is all of it
    requested_rate: float | None = None  # requests/s
    prompt_tokens_mean: float | None = None
    output_tokens_mean: float | None = None
    notes: tuple[str, ...] = field(default=())


class Reader(Protocol):
    """A module that reads one tool's files."""

    def recognises(self, document: Any, name: str) -> bool:
        """Whether `document`, parsed from a file called `name`, is of this tool."""

    def read(self, document: Any, name: str) -> list[LoadResult]:
        """The runs in it, `path` left empty. Raises InputError where it lacks what makes it one."""


def read_results(path: str | Path, tool: str | None = None) -> list[LoadResult]:
    """The runs in a result file, or in a folder of one; `tool` (a name in `READERS`) is guessed where None.

    Raises InputError naming the file.
    """
    path = _file_in(Path(path))
    document = _parsed(path)
    readers = _readers() if tool is None else [(tool, _reader(tool))]
    for name, reader in readers:
        if tool is not None or reader.recognises(document, path.name):
            results = _read(reader, document, path)
            return [replace(result, tool=name, path=str(path)) for result in results]
    raise InputError(str(path), f"is not a result of any of {', '.join(READERS)}")


def _read(reader: Reader, document: Any, path: Path) -> list[LoadResult]:
    try:
        results = reader.read(document, path.name)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        if isinstance(error, InputError):
            raise InputError(str(path), str(error)) from None
        raise InputError(str(path), f"is not as the tool writes it ({error!r})") from None
    if not any(result.metrics for result in results):
        raise InputError(str(path), "holds no latency and no throughput")
    return results


def _readers() -> Iterator[tuple[str, Reader]]:
    for name in READERS:
        yield name, _reader(name)


def _reader(tool: str) -> Reader:
    if tool not in READERS:
        raise InputError("--tool", f"must be one of {', '.join(READERS)}, got {tool!r}")
    reader: Reader = import_module(READERS[tool])
    return reader


def _file_in(path: Path) -> Path:
    if path.is_dir():
        found = next((path / name for name in IN_FOLDER if (path / name).is_file()), None)
        if found is None:
            raise InputError(str(path), f"is a folder without any of {', '.join(IN_FOLDER)}")
        return found
    if not path.is_file():
        raise InputError(str(path), "no such file")
    if path.stat().st_size > MAX_BYTES:
        raise InputError(str(path), f"is larger than {MAX_BYTES:,} bytes")
    return path


def _parsed(path: Path) -> Any:
    """The JSON in a file; of several documents a line each (`vllm bench serve --append-result`), the last."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(str(path), "is not UTF-8 text") from None
    try:
        return json.loads(text)
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            return json.loads(lines[-1])
        except (ValueError, IndexError):
            raise InputError(str(path), f"is not JSON: {error}") from None
    except RecursionError:
        raise InputError(str(path), "is nested too deep") from None


# -- for the readers ----------------------------------------------------------------------------------------------


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def put(metrics: dict[str, float], name: str, value: Any, scale: float = 1.0) -> None:
    """Set a metric if `value` is a number that a measurement can have: finite and above zero."""
    found = number(value)
    if found is not None and found > 0:
        metrics[name] = found * scale


def put_distribution(metrics: dict[str, float], name: str, given: Any, keys: Mapping[str, str], scale: float) -> None:
    """Set the statistics of a latency: `keys` maps the planner's (`mean`, `p90`) to the tool's; `scale` makes it ms."""
    if isinstance(given, Mapping):
        for statistic, key in keys.items():
            put(metrics, f"{name}_{statistic}_ms", given.get(key), scale)
