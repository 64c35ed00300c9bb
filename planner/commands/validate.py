"""`planner validate`: measured results beside the plans that they measure."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.commands._options import add_results, check_outputs, write_json
from planner.commands._terminal import DONE, console
from planner.measurements.results import READERS, LoadResult, read_results
from planner.report import names, verdict
from sim.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from planner.store import Run
    from planner.validation import PlanCheck, Validation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner validate`."""
    add_results(parser)
    parser.add_argument(
        "measured",
        nargs="+",
        metavar="MEASURED",
        help="a result file or folder, as PLAN=FILE, or FILE where its path holds the plan's id or it is the only one "
        "and of the recommended plan",
    )
    parser.add_argument("--tool", metavar="NAME", help=f"who wrote it ({', '.join(READERS)}), where not guessed right")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the comparison as JSON (- for the output)")


def run(args: argparse.Namespace) -> int:
    """Compare and print. Returns 0: a prediction that is off is a result, not a failure."""
    from planner.store import load_run
    from planner.validation import validate

    check_outputs(args, "--json")
    found = load_run(args.results)
    validation = validate(found, assigned(found, args.measured, args.tool))
    if not write_json(args.json, validation.to_dict()):
        _print_validation(console(), validation)
    return DONE


def assigned(run: Run, measured: Sequence[str], tool: str | None = None) -> list[tuple[str, LoadResult]]:
    """(plan id, result) of every run in the files. Raises InputError where it is not clear whose a file is."""
    plans = run.by_id()
    pairs: list[tuple[str, LoadResult]] = []
    for argument in measured:
        head, equals, tail = argument.partition("=")
        named = bool(equals) and "/" not in head and not Path(argument).exists()
        path = Path(tail if named else argument)
        if named and head not in plans:
            raise InputError("MEASURED", f"the run has no plan {head!r} ({argument})")
        plan = head if named else _plan_in(path, plans) or _only(run, argument, measured)
        pairs += [(plan, result) for result in read_results(path, tool)]
    return pairs


def _plan_in(path: Path, plans: dict[str, Any]) -> str | None:
    """The plan whose id is a part of the path, as in `export/1-ID/result.json`; the innermost counts."""
    for part in reversed(path.absolute().parts):
        words = part.replace("-", ".").replace("_", ".").split(".")
        found = next((word for word in words if word in plans), None)
        if found is not None:
            return found
    return None


def _only(run: Run, argument: str, measured: Sequence[str]) -> str:
    recommended = verdict.recommended(run)
    if len(measured) > 1 or recommended is None:
        raise InputError("MEASURED", f"whose result is {argument}? Write it as PLAN={argument}, PLAN being a plan's id")
    return str(recommended["id"])


# -- as text ------------------------------------------------------------------------------------------------------


def _print_validation(out: Console, validation: Validation) -> None:
    """A table for each result, then the order of the plans, then what to recalibrate."""
    from planner.report.layout import line

    for check in validation.plans:
        _print_plan(out, check)
    for order in validation.order:
        metric = names.metric_name(order.metric)
        if not order.broken:
            line(out, f"The order of the plans by {metric} survives ({order.pairs} of {order.pairs} pairs).")
            continue
        swapped = ", ".join(f"{low} and {high}" for low, high in order.broken)
        line(out, f"The order by {metric} is kept in {order.kept} of {order.pairs} pairs; swapped: {swapped}.")
    if validation.advice:
        line(out, "To recalibrate:")
        for advice in validation.advice:
            line(out, f"- {advice}.", indent=2)
        line(out, "`--json FILE` and then `planner calibrate --from-validation FILE --out SET.yaml` fit them.")
    else:
        line(out, "Nothing to recalibrate: mean TTFT and TPOT, where measured, are within 10% of the prediction.")


def _print_plan(out: Console, check: PlanCheck) -> None:
    from planner.report.layout import line, table

    stage = f", stage {check.result.stage}" if check.result.stage is not None else ""
    line(out, f"{check.label} {check.plan_id}{stage}: {check.result.path} ({check.result.tool})", style="bold")
    grid = table()
    intervals = any(metric.interval for metric in check.metrics)
    for heading in ("", "predicted", "measured", "error", *(("interval", "") if intervals else ())):
        grid.add_column(heading, justify="left" if heading == "" else "right")
    for metric in check.metrics:
        row = [names.axis_label(metric.metric), names.number(metric.predicted), names.number(metric.measured)]
        row.append(f"{100 * metric.error:+.1f}%")
        if intervals:
            ends = metric.interval
            row += [f"{names.number(ends[0])} to {names.number(ends[1])}" if ends else "-"]
            row += [{True: "inside", False: "outside", None: ""}[metric.inside]]
        grid.add_row(*row)
    out.print(grid)
    for text, predicted, measured in check.limits:
        words = {True: "holds", False: "is broken"}
        same = "as predicted" if predicted == measured else f"predicted: {words[predicted]}"
        line(out, f"{text} {words[measured]} ({same}).")
    for note in check.notes:
        line(out, f"Note: {note}.", indent=6)
    out.print()
