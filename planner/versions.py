"""Which version runs, and how."""

from __future__ import annotations

from importlib.util import find_spec


def engine_mode() -> str:
    """`compiled` if the engine's loop is an extension module, else `interpreted`."""
    found = find_spec("sim.engine.replica")
    origin = found.origin if found is not None else None
    return "interpreted" if origin is None or origin.endswith(".py") else "compiled"
