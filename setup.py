"""Builds the hot modules of the simulator with mypyc where a compiler is at hand; leaves them interpreted elsewhere."""

import os
import sys

from setuptools import setup

COMPILED = [
    "sim/engine/batch.py",
    "sim/engine/blocks.py",
    "sim/engine/decoding.py",
    "sim/engine/link.py",
    "sim/engine/loading.py",
    "sim/engine/nodes.py",
    "sim/engine/queues.py",
    "sim/engine/requests.py",
    "sim/engine/stats.py",
    "sim/engine/tiers.py",
    "sim/engine/scheduler.py",
    "sim/engine/replica.py",
    "sim/engine/timeline.py",
    "sim/cluster/arrivals.py",
    "sim/cluster/cluster.py",
    "sim/cluster/pool.py",
    "sim/cluster/routing/arithmetic.py",
    "sim/latency/_base.py",
    "sim/latency/kernels.py",
    "sim/latency/step_time.py",
]


def extensions() -> list:
    """The hot modules as extensions; empty where they are not to be, or cannot be, compiled."""
    building = any(command in sys.argv for command in ("build_ext", "bdist_wheel", "editable_wheel"))
    if not building or os.environ.get("PLANNER_INTERPRETED"):
        return []
    try:
        from mypyc.build import mypycify

        modules = mypycify(COMPILED, opt_level="3")
    except (Exception, SystemExit) as error:  # mypyc ends the process where it cannot go on
        print(f"the simulator stays interpreted: {error!r}", file=sys.stderr)
        return []
    for module in modules:
        module.optional = True
        if sys.platform != "win32":  # where a processor can multiply and add in one rounding, it must not
            module.extra_compile_args = [*module.extra_compile_args, "-ffp-contract=off"]
    return modules


setup(ext_modules=extensions())
