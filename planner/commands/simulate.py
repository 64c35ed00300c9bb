"""`planner simulate`: one plan, simulated."""

from __future__ import annotations

import argparse
from pathlib import Path

from planner.commands._options import add_set, check_outputs, write_json
from planner.commands._terminal import DONE, console, warn
from sim.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner simulate`."""
    parser.add_argument("plan", type=Path, metavar="PLAN", help="the plan.yaml to simulate")
    add_set(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the metrics as JSON (- for the output)")
    parser.add_argument("--requests", type=Path, metavar="FILE", help="write a CSV row for each request")
    parser.add_argument("--quiet", action="store_true", help="print no table")


def run(args: argparse.Namespace) -> int:
    """Simulate, print, and write what was asked for. Returns 0; raises InputError."""
    from planner.plan import load_plan, simulate_plan
    from planner.policy_path import find_policies
    from planner.steady import rising_load

    find_policies(args.plan.parent, Path.cwd())
    check_outputs(args, "--json", "--requests")
    _check_requests(args.requests, args.json)
    plan = load_plan(args.plan, args.overrides)
    result = simulate_plan(plan)
    summary = result.summary()
    if args.requests is not None:
        result.requests_csv(args.requests)
    if not write_json(args.json, summary) and not args.quiet:
        from planner.report.console import print_result

        print_result(console(), summary, plan)
    answer_s = (summary["e2e_ms"]["mean"] or 0.0) / 1e3
    rising = rising_load(result.workload, answer_s, stable=summary["saturation"] == "stable")
    if rising is not None:
        warn(rising)
    return DONE


def _check_requests(requests: Path | None, json: Path | None) -> None:
    if str(requests) == "-":
        raise InputError("--requests", "must be a file; only --json takes - for the output")
    if requests is not None and requests == json:
        raise InputError("--requests", f"{requests} is where --json writes; give another file")
