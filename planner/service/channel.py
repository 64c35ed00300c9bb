"""What is new, for those who watch: the latest value of each kind, numbered, so that a watcher may come back later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """One event as server-sent events have it; `data` is JSON."""

    number: int
    kind: str
    data: str


class Channel:
    """Of each key the latest event. Each holds a whole value, so that one who missed some has missed nothing.

    Used from the event loop's thread only. Numbers grow over restarts of the service too.
    """

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._latest: dict[str, Event] = {}
        self._changed = asyncio.Event()
        self._number = int(time.time() * 1000) * 1000
        self.closed = False

    def publish(self, kind: str, data: str, key: str | None = None) -> None:
        """Tell every watcher; `key` says whose value it replaces (default: that of the same kind)."""
        self._number += 1
        name = key or kind
        self._latest.pop(name, None)  # so that keys are in order of their events
        self._latest[name] = Event(self._number, kind, data)
        while len(self._latest) > self._most:
            del self._latest[next(iter(self._latest))]
        self._wake()

    def close(self) -> None:
        """No more will come: watchers end when they have seen what there is."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def last(self) -> int:
        """The number of the latest event."""
        return self._number

    async def after(self, number: int) -> AsyncIterator[Event]:
        """Every event later than `number`, those that are there and those to come, until the channel closes."""
        while True:
            changed = self._changed
            for event in [event for event in self._latest.values() if event.number > number]:
                number = event.number
                yield event
            if self.closed:
                return
            if changed is self._changed:
                await changed.wait()
