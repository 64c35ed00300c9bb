"""Builds the engine with mypyc where a compiler is at hand, and leaves it interpreted where none is."""

import os
import sys

from setuptools import setup

COMPILED: list[str] = []


def extensions() -> list:
    """The engine's hot modules as extensions; empty where they cannot be compiled."""
    if os.environ.get("PLANNER_INTERPRETED") == "1" or not COMPILED:
        return []
    try:
        from mypyc.build import mypycify

        return mypycify(COMPILED, opt_level="3")
    except BaseException as error:
        print(f"the engine stays interpreted: {error}", file=sys.stderr)
        return []


modules = extensions()
for module in modules:
    module.optional = True
setup(ext_modules=modules)
