"""The command line: parse, call, print."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sim.errors import InputError
from sim.version import __version__

if TYPE_CHECKING:
    from rich.console import Console

MOST = 1_000  # workers, or plans to export

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130

DESCRIPTION = "How many GPUs does an LLM service need, and how should they be configured?"
EPILOG = "exit codes: 0 done; 1 the run failed; 2 the input is wrong; 130 interrupted, what was evaluated is kept"

Command = Callable[[argparse.Namespace], int]


class _Parser(argparse.ArgumentParser):
    """Says what is wrong on one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


class _Version(argparse.Action):
    """Prints the version, and whether the engine runs compiled."""

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and how the engine runs")

    def __call__(self, parser: argparse.ArgumentParser, *ignored: Any) -> None:
        from planner.versions import engine_mode

        print(f"planner {__version__} (engine: {engine_mode()})")
        parser.exit(DONE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    args = argparse.Namespace()
    _tolerate_odd_streams()
    try:
        args = _parser(arguments).parse_args(arguments)
        code = args.command(args)
        sys.stdout.flush()
        return code
    except InputError as error:
        if debug:
            raise
        return _fail(_located(error, args), WRONG_INPUT)
    except BrokenPipeError:
        # The reader has gone (`planner models | head`); keep the interpreter from complaining about it on the way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except Exception as error:
        if debug:
            raise
        what = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        return _fail(f"{where}{what} (--debug shows where)", FAILED)


def _tolerate_odd_streams() -> None:
    """Let a closed output swallow what is printed, and one of few characters show a question mark for the others."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, open as long as we run
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _fail(message: str, code: int) -> int:
    with contextlib.suppress(OSError):  # nobody reads it
        print(f"planner: {' '.join(message.split())}", file=sys.stderr)
    return code


def _located(error: InputError, args: argparse.Namespace) -> str:
    """The error's text, behind the file that the command reads; a wrong option is not a matter of the file."""
    file = getattr(args, "space", None) or getattr(args, "plan", None)
    return str(error) if not isinstance(file, Path) or error.field.startswith("--") else f"{file}: {error}"


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(prog="planner", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for name, (text, add_arguments, run) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        command.add_argument("--debug", action="store_true", help="show the traceback of an error")
        command.set_defaults(command=run)
        # Some commands import what they need to describe their options: only the one that is called does so.
        if name in arguments[:2]:
            add_arguments(command)
    return parser


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise  # to main, rather than end the process with an error

    return Piped(stderr=stderr, highlight=False)


# -- search -----------------------------------------------------------------------------------------------------


def _search_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("space", type=Path, metavar="SPACE", help="the space.yaml to search")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run directory (default: results/NAME)")
    _add_set(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace the run that is in the directory")
    parser.add_argument("--resume", action="store_true", help="go on with the run that is in the directory")
    executors = ("auto", "serial", "processes", "ray")
    parser.add_argument("--executor", choices=executors, help="who simulates (default: as SPACE says)")
    parser.add_argument("--workers", type=_positive, metavar="N", help="at a time (default: one per processor)")
    parser.add_argument("--ray-address", metavar="ADDRESS", help="simulate on this Ray cluster, as 10.0.0.1:6379")
    parser.add_argument("--no-reuse", action="store_true", help="simulate what earlier searches simulated already")
    parser.add_argument("--quiet", action="store_true", help="no progress and no table")


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="override a field, as --set workload.arrival.rate_rps=8; repeat it for more",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:20]) <= MOST:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MOST:,}, got {text[:20]!r}")
    return int(text)


def _search(args: argparse.Namespace) -> int:
    from planner.policy_path import find_policies
    from planner.progress import ProgressDisplay
    from planner.search.session import SearchOptions, search
    from planner.space import load_space

    if args.overwrite and args.resume:
        raise InputError("--overwrite", "contradicts --resume; give one of them")
    find_policies(args.space.parent, Path.cwd())
    space = load_space(args.space, args.overrides)
    out = args.out or Path("results") / space.name
    options = SearchOptions(
        out,
        args.overwrite,
        args.resume,
        args.executor,
        args.workers,
        ray_address=args.ray_address,
        reuse=not args.no_reuse,
        warn=_warn,
    )
    with ProgressDisplay(_console(stderr=True), args.quiet) as display:
        run = search(space, options, display)
    if not args.quiet:
        from planner.report.console import print_front

        print_front(_console(), run)
        _warn_of_failures(run.evaluations)
        _console().print(f"Results: {out}", soft_wrap=True)
    if run.manifest["interrupted"]:
        return _fail(f"interrupted; {len(run.evaluations)} evaluations kept in {out}, --resume goes on", INTERRUPTED)
    every_one_failed = run.evaluations and all(evaluation.get("failed") for evaluation in run.evaluations)
    return FAILED if every_one_failed else DONE


def _warn(text: str) -> None:
    print(f"planner: {text}", file=sys.stderr)


def _warn_of_failures(evaluations: Sequence[dict[str, Any]]) -> None:
    failed = [evaluation for evaluation in evaluations if evaluation.get("failed")]
    if failed:
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        print(f"planner: {failed[0]['id']}{more}: {failed[0]['why_not']}", file=sys.stderr)


# -- simulate ---------------------------------------------------------------------------------------------------


def _simulate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", type=Path, metavar="PLAN", help="the plan.yaml to simulate")
    _add_set(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the metrics as JSON (- for the output)")
    parser.add_argument("--requests", type=Path, metavar="FILE", help="write a CSV row for each request")
    parser.add_argument("--quiet", action="store_true", help="print no table")


def _simulate(args: argparse.Namespace) -> int:
    from planner.plan import load_plan, simulate_plan
    from planner.policy_path import find_policies
    from planner.store import check_output, to_json, write_atomically

    find_policies(args.plan.parent, Path.cwd())
    to_output = str(args.json) == "-"
    for path, option in ((None if to_output else args.json, "--json"), (args.requests, "--requests")):
        if path is not None:
            check_output(path, option)
    if str(args.requests) == "-":
        raise InputError("--requests", "must be a file; only --json takes - for the output")
    if args.requests is not None and args.requests == args.json:
        raise InputError("--requests", f"{args.requests} is where --json writes; give another file")
    plan = load_plan(args.plan, args.overrides)
    result = simulate_plan(plan)
    summary = result.summary()
    if args.json is not None and not to_output:
        write_atomically(args.json, to_json(summary))
    if args.requests is not None:
        result.requests_csv(args.requests)
    if to_output:
        print(to_json(summary), end="")
    elif not args.quiet:
        from planner.report.console import print_result

        print_result(_console(), summary, plan)
    return DONE


# -- what there is to see of a run --------------------------------------------------------------------------------


def _run_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, metavar="RESULTS", help="a run directory that `planner search` wrote")


def _show(args: argparse.Namespace) -> int:
    from planner.report.console import print_front
    from planner.store import load_run

    print_front(_console(), load_run(args.results))
    return DONE


def _plot_arguments(parser: argparse.ArgumentParser) -> None:
    from planner.report import plot_command

    plot_command.add_arguments(parser)


def _plot(args: argparse.Namespace) -> int:
    from planner.report import plot_command

    return plot_command.run(args)


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    _run_argument(parser)
    parser.add_argument("--top-k", type=_positive, default=3, metavar="K", help="how many plans (default: 3)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: RESULTS/export)")
    parser.add_argument("--target", default="vllm", help="what to write for (default: vllm)")


def _export(args: argparse.Namespace) -> int:
    from planner.export import export_plans

    for path in export_plans(args.results, args.top_k, args.out or args.results / "export", target=args.target):
        print(path)
    return DONE


def _models(args: argparse.Namespace) -> int:
    from planner.report.console import print_models

    print_models(_console())
    return DONE


def _hardware(args: argparse.Namespace) -> int:
    from planner.report.console import print_hardware

    print_hardware(_console())
    return DONE


# -- commands that bring their own options ------------------------------------------------------------------------


def _fidelity_arguments(parser: argparse.ArgumentParser) -> None:
    from planner import fidelity

    fidelity.add_arguments(parser)


def _fidelity(args: argparse.Namespace) -> int:
    from planner import fidelity

    return fidelity.run(args) or DONE


def _calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    from planner import calibrate

    calibrate.add_arguments(parser)


def _calibrate(args: argparse.Namespace) -> int:
    from planner import calibrate

    return calibrate.run(args) or DONE


def _report_arguments(parser: argparse.ArgumentParser) -> None:
    from planner.report import command

    command.add_arguments(parser)


def _report(args: argparse.Namespace) -> int:
    from planner.report import command

    return command.run(args)


def _validate_arguments(parser: argparse.ArgumentParser) -> None:
    from planner import validate

    validate.add_arguments(parser)


def _validate(args: argparse.Namespace) -> int:
    from planner import validate

    return validate.run(args)


def _explain_arguments(parser: argparse.ArgumentParser) -> None:
    from planner import explain

    explain.add_arguments(parser)


def _explain(args: argparse.Namespace) -> int:
    from planner import explain

    return explain.run(args)


def _sensitivity_arguments(parser: argparse.ArgumentParser) -> None:
    from planner import sensitivity_command

    sensitivity_command.add_arguments(parser)


def _sensitivity(args: argparse.Namespace) -> int:
    from planner import sensitivity_command

    return sensitivity_command.run(args)


def _compare_arguments(parser: argparse.ArgumentParser) -> None:
    from planner import compare

    compare.add_arguments(parser)


def _compare(args: argparse.Namespace) -> int:
    from planner import compare

    return compare.run(args)


def _capacity_arguments(parser: argparse.ArgumentParser) -> None:
    from planner import capacity_command

    capacity_command.add_capacity_arguments(parser)


def _capacity(args: argparse.Namespace) -> int:
    from planner import capacity_command
    from planner.policy_path import find_policies

    find_policies(args.plan.parent, Path.cwd())
    return capacity_command.run_capacity(args)


def _sweep_arguments(parser: argparse.ArgumentParser) -> None:
    from planner import capacity_command

    capacity_command.add_sweep_arguments(parser)


def _sweep(args: argparse.Namespace) -> int:
    from planner import capacity_command
    from planner.policy_path import find_policies

    find_policies(args.plan.parent, Path.cwd())
    return capacity_command.run_sweep(args)


def _runs_arguments(parser: argparse.ArgumentParser) -> None:
    from planner import runs

    runs.add_runs_arguments(parser)


def _runs(args: argparse.Namespace) -> int:
    from planner import runs

    return runs.list_runs(args)


def _diff_arguments(parser: argparse.ArgumentParser) -> None:
    from planner import runs

    runs.add_diff_arguments(parser)


def _diff(args: argparse.Namespace) -> int:
    from planner import runs

    return runs.diff(args)


def _workload_arguments(parser: argparse.ArgumentParser) -> None:
    from planner import workload_command

    workload_command.add_arguments(parser)


def _workload(args: argparse.Namespace) -> int:
    from planner import workload_command

    return workload_command.run(args)


def _serve_arguments(parser: argparse.ArgumentParser) -> None:
    from planner.service import command

    command.add_arguments(parser)


def _serve(args: argparse.Namespace) -> int:
    from planner.service import command

    return command.run(args)


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """The command has none."""


_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], Command]] = {
    "search": ("search a space for the best plans", _search_arguments, _search),
    "simulate": ("simulate one plan", _simulate_arguments, _simulate),
    "runs": ("list the runs in a folder", _runs_arguments, _runs),
    "diff": ("say what changed from the front of one run to that of another, and why", _diff_arguments, _diff),
    "capacity": ("find the highest rate that a plan carries within its SLO", _capacity_arguments, _capacity),
    "sweep": ("simulate a plan over arrival rates, and find its knee", _sweep_arguments, _sweep),
    "show": ("show the front of a run", _run_argument, _show),
    "plot": ("draw a run: its front, settings, latencies, replicas over time", _plot_arguments, _plot),
    "report": ("write the report of a run: a page, or Markdown", _report_arguments, _report),
    "export": ("write the commands that deploy and load-test the best plans", _export_arguments, _export),
    "explain": ("say what limits a plan, by what would help it", _explain_arguments, _explain),
    "sensitivity": ("say which parameter of a plan moves what", _sensitivity_arguments, _sensitivity),
    "compare": ("simulate two plans and show them side by side", _compare_arguments, _compare),
    "validate": ("compare plans with what load generators measured", _validate_arguments, _validate),
    "workload": ("describe a workload or a trace: `planner workload describe FILE`", _workload_arguments, _workload),
    "serve": ("serve searches over HTTP, with a web page", _serve_arguments, _serve),
    "models": ("list the models of the catalog", _no_arguments, _models),
    "hardware": ("list the GPUs of the catalog", _no_arguments, _hardware),
    "fidelity": ("compare the simulator with measured runs", _fidelity_arguments, _fidelity),
    "calibrate": ("fit the latency model to measurements", _calibrate_arguments, _calibrate),
}

if __name__ == "__main__":
    sys.exit(main())
