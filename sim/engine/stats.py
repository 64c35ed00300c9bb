"""What a replica counts while it runs: steps, time, seats, blocks, and the gaps between tokens."""

from __future__ import annotations

import struct
from array import array
from typing import Final

import numpy as np

from sim.workload import IntColumn

_FLUSH_AT: Final = 4 * 4096
_BIN_BITS: Final = 45  # of a float64's 52 mantissa bits: what is left makes bins under 0.8% wide


class ReplicaStats:
    """Counters of one replica; areas are integrals over time, in picoseconds."""

    def __init__(self) -> None:
        self.requests = 0
        self.completed = 0
        self.completed_prompt_tokens = 0
        self.preemptions = 0
        self.peak_waiting = 0
        self.hit_tokens = 0
        self.looked_up_tokens = 0
        self.loaded_tokens = 0  # from elsewhere over a link, tiers aside
        self.tier_tokens: list[int] = []  # loaded from each tier
        self.steps = 0
        self.busy_ps = 0
        self.block_area = 0.0  # blocks held x time
        self.seat_area = 0.0  # seats taken x time
        self._gaps: array[int] = array("q")  # first, slope, steps, sequences of gaps not yet in bins
        self._bins: dict[int, int] = {}

    def steps_done(
        self, first_ps: int, slope_ps: int, steps: int, total_ps: int, decodes: int, twice_blocks: int, seats: int
    ) -> None:
        """Steps of first, first + slope, ... that took `total_ps` together, each with `decodes` decoding sequences.

        `twice_blocks` is the blocks held before them plus the blocks held after.
        """
        self.steps += steps
        self.busy_ps += total_ps
        self.block_area += 0.5 * twice_blocks * total_ps
        self.seat_area += float(seats) * total_ps
        if decodes:
            self.inter_token(first_ps, slope_ps, steps, decodes)

    def cut(self, beyond_ps: int, blocks: int, seats: int) -> None:
        """The run ended `beyond_ps` before the last steps that it began, which hold so many blocks and seats."""
        self.busy_ps = max(0, self.busy_ps - beyond_ps)
        self.block_area = max(0.0, self.block_area - float(blocks) * beyond_ps)
        self.seat_area = max(0.0, self.seat_area - float(seats) * beyond_ps)

    def held_idle(self, blocks: int, time_ps: int) -> None:
        """Blocks were held while no step executed."""
        self.block_area += float(blocks) * float(time_ps)

    def loaded(self, level: int, tokens: int) -> None:
        """A request that takes its seat has loaded tokens from a tier, counted from 1, or from elsewhere (0)."""
        if level:
            self.tier_tokens[level - 1] += tokens
        else:
            self.loaded_tokens += tokens

    def inter_token(self, first_ps: int, slope_ps: int, steps: int, sequences: int) -> None:
        """`sequences` sequences each see `steps` gaps between tokens: first, first + slope, ..."""
        self._gaps.extend((first_ps, slope_ps, steps, sequences))
        if len(self._gaps) >= _FLUSH_AT:
            self._flush()

    def inter_token_bins(self) -> dict[int, int]:
        """How many gaps between tokens fell in each bin (see `bin_of`)."""
        self._flush()
        return self._bins

    def _flush(self) -> None:
        """Count the noted gaps into their bins."""
        first, slope, steps, sequences = np.array(self._gaps, dtype=np.int64).reshape(-1, 4).T
        self._gaps = array("q")
        last = first + slope * (steps - 1)
        keys, last_keys = _keys(first), _keys(last)
        one_bin = keys == last_keys
        self._count(keys[one_bin], steps[one_bin] * sequences[one_bin])
        first, slope, steps, sequences = (column[~one_bin] for column in (first, slope, steps, sequences))
        before = np.repeat(np.cumsum(steps) - steps, steps)
        gaps = np.repeat(first, steps) + np.repeat(slope, steps) * (np.arange(len(before)) - before)
        self._count(_keys(gaps), np.repeat(sequences, steps))

    def _count(self, keys: IntColumn, weights: IntColumn) -> None:
        if len(keys) == 0:
            return
        lowest = int(keys.min())
        counts = np.bincount(keys - lowest, weights=weights.astype(np.float64))
        for offset in np.flatnonzero(counts).tolist():
            self._bins[lowest + offset] = self._bins.get(lowest + offset, 0) + int(counts[offset])


def _keys(gaps_ps: IntColumn) -> IntColumn:
    """`bin_of` for a column."""
    keys: IntColumn = gaps_ps.astype(np.float64).view(np.int64) >> _BIN_BITS
    return keys


def bin_of(gap_ps: int) -> int:
    """The bin of a gap: the leading bits of its float64 form, so that a bin is under 0.8% wide."""
    bits: int = struct.unpack("<q", struct.pack("<d", float(gap_ps)))[0]
    return bits >> _BIN_BITS


def bin_start(key: int) -> float:
    """The smallest gap in a bin, in picoseconds."""
    start: float = struct.unpack("<d", struct.pack("<q", key << _BIN_BITS))[0]
    return start
