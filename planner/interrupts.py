"""Ctrl-C and SIGTERM, so that they end a search between two evaluations and never in the middle of keeping one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While entered, a signal raises KeyboardInterrupt inside `allowed()`, and elsewhere waits for the next of these.

    A second signal raises wherever the program is: whoever asks twice wants out.
    """

    def __init__(self) -> None:
        self._allowed = False
        self._received = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._received += 1
        if self._allowed or self._received > 1:
            raise KeyboardInterrupt

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Where a signal may raise KeyboardInterrupt; one that came before raises at once."""
        if self._received:
            raise KeyboardInterrupt
        self._allowed = True
        try:
            yield
        finally:
            self._allowed = False
