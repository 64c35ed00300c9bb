"""What commands say: exit codes, the console, lines to standard error."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130


def console(stderr: bool = False) -> Console:
    """A console that lets a closed pipe be an error, rather than end the process by itself."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise  # to main

    return Piped(stderr=stderr, highlight=False)


def warn(text: str) -> None:
    """One line on standard error."""
    with contextlib.suppress(OSError):  # nobody reads it
        print(f"planner: {' '.join(text.split())}", file=sys.stderr)


def fail(text: str, code: int) -> int:
    """Say what is wrong on one line; returns `code`."""
    warn(text)
    return code
