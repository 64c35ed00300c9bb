"""What a space that came over the network may not do: read files outside the allowed folder, or name code to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sim.catalog import model_names
from sim.errors import InputError
from sim.latency.coefficient_set import shipped_names
from sim.text_files import is_there


def check_confined(document: Mapping[str, Any], folder: Path, *, files: bool, policies: bool) -> None:
    """Raise InputError on the first field of a space that reaches for what the service does not give.

    To be called before anything looks at what the names stand for: looking up a policy of one's own imports it.
    `files` says whether there is a folder of files at all, `policies` whether code may be named.
    """
    if not policies:
        for field, text in _strings(document.get("space"), "space"):
            if ":" in text:
                problem = "policies of your own are code, which this service was not started to run (--allow-policies)"
                raise InputError(field, problem)
    for field, name in _named_files(document):
        _check_file(field, name, folder, files)


def _strings(value: Any, field: str) -> Iterator[tuple[str, str]]:
    """Every text in `value`, keys included, with its path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield field, str(key)
            yield from _strings(item, f"{field}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _strings(item, f"{field}[{index}]")
    elif isinstance(value, str):
        yield field, value


def _named_files(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(field, name) of everything that is, or may be, the name of a file."""
    model, coefficients = document.get("model"), document.get("coefficients")
    if isinstance(model, str) and model not in model_names():
        yield "model", model
    if isinstance(coefficients, str) and coefficients not in shipped_names():
        yield "coefficients", coefficients
    yield from _traces(document.get("workload"), "workload")


def _traces(workload: Any, field: str) -> Iterator[tuple[str, str]]:
    if not isinstance(workload, Mapping):
        return
    if isinstance(workload.get("trace"), str):
        yield f"{field}.trace", workload["trace"]
    clients = workload.get("clients")
    for index, client in enumerate(clients if isinstance(clients, list) else []):
        yield from _traces(client, f"{field}.clients[{index}]")


def _check_file(field: str, name: str, folder: Path, files: bool) -> None:
    """A relative path inside `folder` may be there or not; a word that is no path may be a name of the catalog."""
    is_trace = field.endswith("trace")
    if is_trace and not files:
        raise InputError(field, "this service was started without a folder of files (--files), so it reads no traces")
    parts = Path(name).parts
    if name.startswith(("/", "~", "\\")) or ".." in parts or "\0" in name or (parts and ":" in parts[0]):
        raise InputError(field, "must be a path inside the service's folder of files: relative, without ..")
    path = folder / name
    if not is_there(path):
        if is_trace or is_there(Path(name)):  # a file where the service happens to run is none of the client's
            raise InputError(field, f"there is no {name[:200]!r} in the service's folder of files")
        return
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(field, "leads out of the service's folder of files")
