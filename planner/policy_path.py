"""Where policies of the user's own (`my_module:MyRouter`) are found, when a run is made and when it is read again."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.parameters import POLICIES, policy_name


def find_policies(*folders: Path) -> None:
    """Let modules in `folders` be imported, the first folder's before the next one's.

    They come behind what is installed, so that a file of theirs called random.py takes nobody's place.
    """
    for place in (str(folder.resolve()) for folder in folders):
        if place not in sys.path:
            sys.path.append(place)


def policy_folder(deployment: Mapping[str, Any]) -> Path | None:
    """The folder in which the deployment's own policies were found; None where it has none of a user's own."""
    names = [policy_name(deployment[kind]) for kind in POLICIES]
    for top in [name.partition(":")[0].partition(".")[0] for name in names if ":" in name]:
        file = getattr(sys.modules.get(top), "__file__", None)
        if file is not None:
            path = Path(file).resolve()
            return path.parent.parent if path.name == "__init__.py" else path.parent
    return None
