"""Runs the simulator from source where its compiled modules are not wanted, or are older than their source."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType


class _SourceFinder:
    """Finds the modules of this package as .py files, before anybody finds their extensions."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("sim.") or path is None:
            return None
        for folder in path:
            spec = FileFinder(folder, (SourceFileLoader, [".py"])).find_spec(name)
            if spec is not None and spec.loader is not None:
                return spec
        return None


def source_is_wanted() -> bool:
    """Whether PLANNER_INTERPRETED is set, or a source has changed since it was compiled."""
    if os.environ.get("PLANNER_INTERPRETED"):
        return True
    for compiled in Path(__file__).parent.glob("*/*.so"):
        source = compiled.with_name(compiled.name.partition(".")[0] + ".py")
        if source.exists() and source.stat().st_mtime > compiled.stat().st_mtime:
            return True
    return False


def prefer_source() -> None:
    """From now on modules of `sim` are imported from their source."""
    sys.meta_path.insert(0, _SourceFinder())
