"""Coefficient sets out of kernel tables, step tables and serving runs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from planner.calibration.assemble import assemble, copied
from planner.calibration.blocks import BLOCKS
from planner.calibration.kernels import read_kernel_rows
from planner.calibration.serving import FIT_SHARE, BlockFit, fit_block, is_fit_row
from planner.calibration.steps import read_step_rows
from planner.measurements import MeasuredRun, read_runs
from sim.errors import InputError
from sim.latency import parse_coefficients
from sim.memory import kv_capacity

LAYERS = ("kernels", "serving")
HELD_OUT = "_dev"  # in the name of an open-loop file: never fitted on

Say = Callable[[str], None]


def sort_files(paths: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """(kernel tables, step tables, files of serving runs), told apart by their columns."""
    kernels: list[str] = []
    steps: list[str] = []
    runs: list[str] = []
    for path in paths:
        if not Path(path).is_file():
            raise InputError(path, "no such file")
        if path.endswith(".json"):
            if HELD_OUT in Path(path).stem:
                raise InputError(path, "is a set to check on, never to fit on; give the train set")
            runs.append(path)
            continue
        with open(path, newline="", encoding="utf-8") as file:
            columns = next(csv.reader(file), [])
        (kernels if "op" in columns else steps if "measured_ms" in columns else runs).append(path)
    return kernels, steps, runs


def fit_runs(paths: Sequence[str]) -> list[MeasuredRun]:
    """The runs that layer (b) may be fitted on: open-loop train sets, and the load points that `is_fit_row` picks."""
    runs, _ = read_runs(paths)
    return [run for run in runs if run.quality == "ok" and _may_fit(run) and _starts(run)]


def _may_fit(run: MeasuredRun) -> bool:
    return run.source.endswith("train") or (run.regime != "replay" and is_fit_row(run.id))


def _starts(run: MeasuredRun) -> bool:
    try:
        kv_capacity(run.deployment)
    except InputError:
        return False
    return True


def fit_serving(document: dict[str, Any], runs: Sequence[MeasuredRun], say: Say) -> dict[str, Any]:
    """The document with layer (b) fitted, block after block; blocks that no run speaks for keep their start."""
    fits: list[BlockFit] = []
    for block in BLOCKS:
        if not any(block.chosen(run) for run in runs):
            continue
        say(f"fitting: {block.name}")
        document, fit = fit_block(document, block, runs)
        fits.append(fit)
        say(f"  {fit.runs} runs, median error before {fit.before}, after {fit.after}")
    document.setdefault("provenance", {})["serving"] = {
        "rule": f"open-loop train runs; load points whose crc32(id) is a multiple of {FIT_SHARE}",
        "blocks": [
            {
                "name": f.name,
                "runs": f.runs,
                "values": f.values,
                "bounds": f.bounds,
                "intervals": f.intervals,
                "left_out": f.left_out,
                "before": f.before,
                "after": f.after,
            }
            for f in fits
        ],
    }
    return document


def calibrate(paths: Sequence[str], layer: str | None, start: str | None, say: Say) -> dict[str, Any]:
    """A coefficient document fitted on the files. `layer` restricts it to one; `start` is the file that layer
    (b) begins with where no kernel table is given."""
    kernels, steps, runs = sort_files(paths)
    document: dict[str, Any] | None = None
    if layer != "serving" and (kernels or steps):
        if not kernels:
            raise InputError("calibrate", "needs a kernel table beside the step table")
        say("fitting: kernels")
        rows = [row for path in kernels for row in read_kernel_rows(path)]
        document = assemble(rows, [row for path in steps for row in read_step_rows(path)])
    if document is None:
        document = _read_document(start)
    if layer != "kernels" and runs:
        document = fit_serving(copied(document), fit_runs(runs), say)
    document.setdefault("provenance", {})["data"] = sorted(Path(path).name for path in paths)
    parse_coefficients(document, "fitted")  # what is written can be read
    return document


def _read_document(start: str | None) -> dict[str, Any]:
    if start is None:
        raise InputError("--start", "is required without a kernel table: the coefficient file to begin with")
    if not Path(start).is_file():
        raise InputError("--start", f"no such file: {start}")
    document = yaml.safe_load(Path(start).read_text(encoding="utf-8"))
    parse_coefficients(document, "start")
    return dict(document)


# -- command ------------------------------------------------------------------------------------------------------
