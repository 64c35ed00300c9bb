"""The command line: parse, call, print."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from planner.commands._terminal import DONE, FAILED, INTERRUPTED, WRONG_INPUT, fail
from sim.errors import InputError
from sim.version import __version__

DESCRIPTION = "How many GPUs does an LLM service need, and how should they be configured?"
EPILOG = "exit codes: 0 done; 1 the run failed; 2 the input is wrong; 130 interrupted, what was evaluated is kept"


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
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except InputError as error:
        if debug:
            raise
        return fail(_located(error, args), WRONG_INPUT)
    except BrokenPipeError:
        # The reader has gone (`planner models | head`); keep the interpreter from complaining about it on the way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        return fail("interrupted", INTERRUPTED)
    except Exception as error:
        if debug:
            raise
        what = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        return fail(f"{where}{what} (--debug shows where)", FAILED)


def _tolerate_odd_streams() -> None:
    """Let a closed output swallow what is printed, and one of few characters show a question mark for the others."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, open as long as we run
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _located(error: InputError, args: argparse.Namespace) -> str:
    """The error's text, behind the file that the command reads; a wrong option is not a matter of the file."""
    file = getattr(args, "space", None) or getattr(args, "plan", None)
    return str(error) if file is None or error.field.startswith("--") else f"{file}: {error}"


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(prog="planner", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for name, (text, module) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        command.add_argument("--debug", action="store_true", help="show the traceback of an error")
        if name in arguments[:2]:
            found = import_module(module)
            command.set_defaults(run=found.run)
            found.add_arguments(command)
    return parser


# Name: what it does, and the module that does it, which is imported only when it is called.
COMMANDS = {
    "search": ("search a space for the best plans", "planner.commands.search"),
    "simulate": ("simulate one plan", "planner.commands.simulate"),
    "runs": ("list the runs in a folder", "planner.commands.runs"),
    "diff": ("say what changed from the front of one run to that of another, and why", "planner.commands.diff"),
    "capacity": ("find the highest rate that a plan carries within its SLO", "planner.commands.capacity"),
    "sweep": ("simulate a plan over arrival rates, and find its knee", "planner.commands.sweep"),
    "show": ("show the front of a run", "planner.commands.show"),
    "plot": ("draw a run: its front, settings, latencies, replicas over time", "planner.commands.plot"),
    "report": ("write the report of a run: a page, or Markdown", "planner.commands.report"),
    "export": ("write the commands that deploy and load-test the best plans", "planner.commands.export"),
    "explain": ("say what limits a plan, by what would help it", "planner.commands.explain"),
    "sensitivity": ("say which parameter of a plan moves what", "planner.commands.sensitivity"),
    "compare": ("simulate two plans and show them side by side", "planner.commands.compare"),
    "validate": ("compare plans with what load generators measured", "planner.commands.validate"),
    "workload": ("describe a workload or a trace: `planner workload describe FILE`", "planner.commands.workload"),
    "serve": ("serve searches over HTTP, with a web page", "planner.service.command"),
    "models": ("list the models of the catalog", "planner.commands.models"),
    "hardware": ("list the GPUs of the catalog", "planner.commands.hardware"),
    "fidelity": ("compare the simulator with measured runs", "planner.commands.fidelity"),
    "calibrate": ("fit the latency model to measurements", "planner.commands.calibrate"),
}

if __name__ == "__main__":
    sys.exit(main())
