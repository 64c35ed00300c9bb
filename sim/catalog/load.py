"""Finding a model: in the shipped catalog by name or alias, or on disk by the path of its config.json."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from sim.catalog.config import spec_from_config
from sim.catalog.model import ModelSpec
from sim.errors import InputError
from sim.names import nearest, normal_form
from sim.text_files import is_there, read_text


@cache
def _entries() -> dict[str, dict[str, Any]]:
    """Data file of each model by its repository id, in alphabetical order."""
    folder = resources.files("sim.catalog").joinpath("models")
    files = (item for item in folder.iterdir() if item.name.endswith(".json"))
    entries = [json.loads(item.read_text(encoding="utf-8")) for item in files]
    return {entry["repo"]: entry for entry in sorted(entries, key=lambda entry: str(entry["repo"]).lower())}


@cache
def _by_form() -> dict[str, str]:
    """Every way to write a model's name -> repository id; a repository's own name wins over another's alias."""
    forms: dict[str, str] = {}
    for repo, entry in _entries().items():
        for name in entry.get("aliases", ()):
            forms.setdefault(normal_form(name), repo)
            forms.setdefault(normal_form(name.rsplit("/", 1)[-1]), repo)
    for repo in _entries():
        forms[normal_form(repo.rsplit("/", 1)[-1])] = repo
        forms[normal_form(repo)] = repo
    return forms


def _config_of(entry: dict[str, Any]) -> dict[str, Any]:
    """The config of a data file: its own, over that of its `base` (a quantised variant states what differs)."""
    if "base" not in entry:
        return dict(entry["config"])
    base, own = _config_of(_entries()[entry["base"]]), entry["config"]
    return {**{key: value for key, value in base.items() if key != "quantization_config"}, **own}


@cache
def _from_catalog(repo: str) -> ModelSpec:
    entry = _entries()[repo]
    return spec_from_config(
        _config_of(entry),
        name=repo,
        field="model",
        published_parameters=entry["published_parameters"],
        source=entry["source"],
        aliases=tuple(entry.get("aliases", ())),
    )


def model_names() -> list[str]:
    """Repository ids of the shipped models, in alphabetical order."""
    return list(_entries())


def _read(path: Path, field: str) -> dict[str, Any]:
    try:
        document = json.loads(read_text(path))
    except InputError as error:
        raise InputError(field, f"{path} {error.problem}") from None
    except json.JSONDecodeError as error:
        raise InputError(field, f"{path}: line {error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits; nesting thousands deep
        raise InputError(field, f"{path}: not the config.json of a model") from None
    if not isinstance(document, dict):
        raise InputError(field, f"{path}: must be a JSON object, got {type(document).__name__}")
    return document


def _from_path(path: Path, field: str) -> ModelSpec:
    if path.is_dir():
        path = path / "config.json"
        if not path.is_file():
            raise InputError(field, f"no config.json in {path.parent}")
    name = path.parent.name if path.name == "config.json" and path.parent.name else path.stem
    return spec_from_config(_read(path, field), name=name, field=f"{field} ({path})", source=str(path))


def load_model(name_or_path: str | Path, field: str = "model") -> ModelSpec:
    """The model of a catalog name (any case, with or without organisation, or an alias), or of a config.json.

    A path is that of a config.json or of a folder that holds one. Nothing is ever fetched. `InputError` on `field`:
    an unknown name (with the nearest known one), unreadable or broken JSON, missing keys, impossible values.
    """
    text = str(name_or_path).strip()
    if not text:
        raise InputError(field, "must name a model, got an empty string")
    repo = _by_form().get(normal_form(text)) if isinstance(name_or_path, str) else None
    if repo is not None:
        return _from_catalog(repo)
    path = Path(text)
    if isinstance(name_or_path, Path) or is_there(path):
        return _from_path(path, field)
    if text.endswith(".json") or text.startswith((".", "/", "~")):
        raise InputError(field, f"no such file: {text}")
    short = _by_form().get(normal_form(text.rsplit("/", 1)[-1])) if "/" in text else None
    if short is not None:
        raise InputError(field, f"unknown model {text!r} (did you mean {short!r}?)")
    hint = nearest(text, [*_entries(), *(repo.rsplit("/", 1)[-1] for repo in _entries())])
    raise InputError(field, f"unknown model {text!r}{hint}; give a name of the catalog or the path of a config.json")
