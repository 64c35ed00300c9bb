"""What KV travels over on its way to a replica: its share of a network card, a PCIe slot or a disk."""

from __future__ import annotations

from collections import deque
from typing import Final

_PS_PER_S: Final = 10**12


class Link:
    """A serial link of one replica: a transfer starts when those before it have ended, and has all of the bandwidth.

    A transfer of n tokens takes `latency_ps` + n `bytes_per_token` / `bytes_per_s`, rounded up to a picosecond.
    """

    def __init__(self, bytes_per_s: int, bytes_per_token: int, latency_ps: int = 0) -> None:
        self.free_ps = 0  # when the last transfer reserved so far ends
        self.tokens = 0  # of all transfers
        self.busy_ps = 0  # of all transfers
        self.transfers = 0
        self.moving_ps = 0  # of all transfers, the wait for the link included
        self._reserved: Final[deque[tuple[int, int]]] = deque()  # (end, tokens) of those that may not have ended
        self._bytes_per_s: Final = bytes_per_s
        self._bytes_per_token: Final = bytes_per_token
        self._latency_ps: Final = latency_ps

    def duration_ps(self, tokens: int) -> int:
        """How long the KV of that many tokens takes once it has the link."""
        size = tokens * self._bytes_per_token * _PS_PER_S
        return self._latency_ps - -size // self._bytes_per_s

    def end_ps(self, now: int, tokens: int) -> int:
        """When a transfer asked for now would end."""
        start = self.free_ps if self.free_ps > now else now
        return start + self.duration_ps(tokens)

    def reserve(self, now: int, tokens: int) -> int:
        """Transfer the KV of that many tokens as soon as the link is free; returns when that ends."""
        end = self.end_ps(now, tokens)
        self.tokens += tokens
        self.transfers += 1
        self.moving_ps += end - now
        self.busy_ps += self.duration_ps(tokens)
        self.free_ps = end
        reserved = self._reserved
        while reserved and reserved[0][0] <= now:
            reserved.popleft()
        reserved.append((end, tokens))
        return end

    def close(self, at_ps: int) -> None:
        """The simulation ends at `at_ps`: of what was reserved counts what has come by then."""
        for end, tokens in self._reserved:
            whole = self.duration_ps(tokens)
            left = min(whole, end - at_ps)
            if left > 0:
                moving = whole - self._latency_ps  # the latency comes first, and moves nothing
                self.busy_ps -= left
                self.tokens -= tokens if left >= moving else tokens * left // moving
