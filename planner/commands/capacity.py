"""`planner capacity`: the highest rate that a plan carries, and the fewest replicas for a rate."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from planner.commands._options import check_outputs, write_json
from planner.commands._probing import add_plan, prober
from planner.commands._terminal import DONE, warn
from sim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.capacity import Capacity, Probe, Prober


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner capacity`."""
    add_plan(parser)
    parser.add_argument("--rate", type=float, metavar="RPS", help="for the fewest replicas (default: the plan's own)")


def run(args: argparse.Namespace) -> int:
    """Find and print both capacities. Returns 0."""
    from planner.capacity import TOLERANCE, fewest_replicas, max_rate
    from planner.parameters import gpu_count

    if args.rate is not None and not 0 < args.rate < float("inf"):
        raise InputError("--rate", f"must be a number greater than 0, got {args.rate:g}")
    check_outputs(args, "--json")
    asked = prober(args)
    rate = args.rate or asked.base_rps
    found = max_rate(asked)
    replicas, tried = fewest_replicas(asked, rate)
    deployment = asked.plan.deployment
    gpus = None if replicas is None else gpu_count(deployment | {"replicas": replicas})
    document = {
        "max_rate_rps": found.max_rate_rps,
        "broken_at_rps": found.broken_at_rps,
        "tolerance": TOLERANCE,
        "limited_by": found.limited_by,
        "rate_rps": rate,
        "min_replicas": replicas,
        "min_gpus": gpus,
        "simulations": len(found.probes) + len(tried),
        "probes": [{"rate_rps": p.rate_rps, "holds": p.holds, "cut_short": p.cut_short} for p in found.probes],
    }
    if not write_json(args.json, document):
        kind = "decode replica" if deployment["prefill_replicas"] else "replica"
        _print_capacity(found, replicas, gpus, rate, document["simulations"], kind)
    _warn_of_rising_load(asked, (*found.probes, *(probe for _, probe in tried)))
    return DONE


def _warn_of_rising_load(asked: Prober, probes: Sequence[Probe]) -> None:
    held = max((probe for probe in probes if probe.holds), key=lambda probe: probe.rate_rps, default=None)
    rising = None if held is None else asked.rising_load(held)
    if held is not None and rising is not None:
        warn(f"at {held.rate_rps:.4g} requests/s {rising}")


def _print_capacity(
    found: Capacity, replicas: int | None, gpus: int | None, rate: float, simulations: Any, kind: str
) -> None:
    if found.max_rate_rps:
        at = f"; at {found.broken_at_rps:.4g} it does not hold" if found.broken_at_rps is not None else ""
        print(f"Carries {found.max_rate_rps:.4g} requests/s within its SLO{at}.")
    else:
        print("Carries no rate within its SLO.")
    print(f"What gives way: {found.limited_by}.")
    if replicas is None:
        print(f"No number of {kind}s carries {rate:.4g} requests/s.")
    else:
        s = "" if replicas == 1 else "s"
        print(f"For {rate:.4g} requests/s it takes {replicas} {kind}{s} ({gpus} GPUs), and no fewer.")
    print(f"{simulations} simulations.")
