"""Server-sent events: a channel as a response, resumed where the client left off."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request

from planner.service.channel import Channel, Event
from planner.service.errors import ServiceError

KEEP_ALIVE_S = 15
SEND_TIMEOUT_S = 30.0  # to a client that no longer reads


class Streams:
    """Counts the open streams, and opens no more than `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0

    def respond(self, events: AsyncIterator[Event]) -> EventSourceResponse:
        """The events as a response. Raises ServiceError where too many streams are open."""
        if self._open >= self._most:
            raise ServiceError(503, f"{self._most} event streams are open already", headers={"Retry-After": "10"})
        return EventSourceResponse(
            self._counted(events),
            ping=KEEP_ALIVE_S,
            send_timeout=SEND_TIMEOUT_S,
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},  # no proxy may hold events back
        )

    async def _counted(self, events: AsyncIterator[Event]) -> AsyncIterator[ServerSentEvent]:
        self._open += 1
        try:
            async for event in events:
                yield ServerSentEvent(event.data, event=event.kind, id=str(event.number))
        finally:
            self._open -= 1


def last_seen(request: Request) -> int | None:
    """The number of the last event that a client has seen; None: it comes for the first time."""
    given = request.headers.get("last-event-id", "")
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 20 else None


async def live(channel: Channel, state: str, seen: int | None) -> AsyncIterator[Event]:
    """What a channel has beyond `seen`, or all if that is None, and what will come. `state`, the job as it is now, is
    what a new visitor sees first."""
    if seen is None or seen > channel.last:  # beyond: numbers of a service whose clock was ahead
        yield Event(channel.last, "state", state)
        seen = 0
    async for event in channel.after(seen):
        yield event


async def ended(state: str, front: str | None, at: float) -> AsyncIterator[Event]:
    """The events of a job that ended at that time: what it is, what it found, and that no more will come."""
    number = int(at * 1e6)
    yield Event(number, "state", state)
    if front is not None:
        yield Event(number, "front", front)
    yield Event(number, "end", state)
