"""Where policies of the user's own (`my_module:MyRouter`) are found, when a run is made and when it is read again."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.parameters import POLICIES


def find_policies(*folders: Path) -> None:
    """Let modules in `folders` be imported, the first folder's before the next one's.

    They come behind what is installed, so that a file of theirs called random.py takes nobody's place.
    """
    for place in (str(folder.resolve()) for folder in folders):
        if place not in sys.path:
            sys.path.append(place)


def own_policies(deployment: Mapping[str, Any]) -> list[str]:
    """The user's own classes (`my_module:MyRouter`) that the deployment names: its policies, and their parts, such as
    the scorers of `weighted`."""
    return [name for kind in POLICIES for name in _own_in(deployment.get(kind))]


def _own_in(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _own_in(key)
            yield from _own_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _own_in(item)
    elif isinstance(value, str) and ":" in value:
        yield value


def policy_folder(deployment: Mapping[str, Any]) -> Path | None:
    """The folder in which the deployment's own policies were found; None where it has none of a user's own."""
    for top in [name.partition(":")[0].partition(".")[0] for name in own_policies(deployment)]:
        file = getattr(sys.modules.get(top), "__file__", None)
        if file is not None:
            path = Path(file).resolve()
            return path.parent.parent if path.name == "__init__.py" else path.parent
    return None
