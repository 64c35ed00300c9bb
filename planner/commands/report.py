"""`planner report`: the report of a run as a page, or as Markdown."""

from __future__ import annotations

import argparse
from pathlib import Path

from planner.commands._options import add_results, check_outputs
from planner.commands._terminal import DONE

FORMATS = ("html", "md")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner report`."""
    add_results(parser)
    parser.add_argument("--format", choices=FORMATS, default="html", help="a page, or Markdown (default: html)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where to write (default: RESULTS/report.html; md goes to the output)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the report and print its path; Markdown without `--out` is printed itself. Returns 0."""
    from planner.report.html import report_html
    from planner.report.markdown import report_markdown
    from planner.store import REPORT, load_run, write_atomically

    check_outputs(args, "--out")
    found = load_run(args.results)
    text = report_html(found) if args.format == "html" else report_markdown(found)
    out = args.out or (args.results / REPORT if args.format == "html" else None)
    if out is None:
        print(text, end="")
        return DONE
    write_atomically(out, text)
    print(out)
    return DONE
