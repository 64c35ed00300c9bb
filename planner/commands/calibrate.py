"""`planner calibrate`: coefficient sets out of measurements."""

from __future__ import annotations

import argparse

from planner.commands._options import check_outputs
from planner.commands._terminal import DONE
from sim.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner calibrate`."""
    parser.add_argument(
        "data",
        nargs="*",
        metavar="[kernels|serving] DATA",
        help="kernel table, step table, open-loop JSON, load-points CSV; a layer's name in front fits that layer alone",
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="the coefficient file to write")
    parser.add_argument("--start", metavar="FILE", help="the coefficient file to begin with, without a kernel table")
    parser.add_argument(
        "--from-validation",
        metavar="FILE",
        help="fit the overheads to your own runs, as `planner validate --json` has them",
    )
    parser.add_argument("--results", metavar="RESULTS", help="with --from-validation: rank this run's front again")


def run(args: argparse.Namespace) -> int:
    """`planner calibrate`: writes a coefficient file and prints how each fit went. Returns 0."""
    check_outputs(args, "--out")
    if args.from_validation is not None:
        from planner.recalibrate import run_from_validation

        if args.data:
            raise InputError("--from-validation", "takes no data files beside it")
        return run_from_validation(args.from_validation, args.start, args.out, args.results, print)
    from planner.calibrate import LAYERS, calibrate
    from planner.calibration.coefficient_file import write_coefficients

    layer = args.data[0] if args.data and args.data[0] in LAYERS else None
    paths = args.data[1:] if layer else args.data
    if not paths:
        raise InputError("calibrate", "needs at least one data file")
    document = calibrate(paths, layer, args.start, print)
    write_coefficients(document, args.out)
    print(f"written: {args.out}")
    return DONE
