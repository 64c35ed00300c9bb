"""`planner report`: the report of a run as a page, or as Markdown."""

from __future__ import annotations

import argparse
from pathlib import Path

FORMATS = ("html", "md")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner report`."""
    parser.add_argument("results", type=Path, metavar="RESULTS", help="a run directory that `planner search` wrote")
    parser.add_argument("--format", choices=FORMATS, default="html", help="a page, or Markdown (default: html)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where to write (default: RESULTS/report.html; md goes to the output)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the report and print its path; Markdown without `--out` is printed itself. Returns 0."""
    from planner.report.html import report_html
    from planner.report.markdown import report_markdown
    from planner.store import REPORT, check_outputs, load_run, write_atomically

    check_outputs(args, "--out")
    found = load_run(args.results)
    text = report_html(found) if args.format == "html" else report_markdown(found)
    out = args.out or (args.results / REPORT if args.format == "html" else None)
    if out is None:
        print(text, end="")
        return 0
    write_atomically(out, text)
    print(out)
    return 0
