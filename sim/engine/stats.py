"""What a replica counts while it runs: steps, time, seats, blocks, and the gaps between tokens."""

from __future__ import annotations


class ReplicaStats:
    """Counters of one replica; areas are integrals over time, in picoseconds."""

    def __init__(self) -> None:
        self.requests = 0
        self.completed = 0
        self.preemptions = 0
        self.peak_waiting = 0
        self.hit_tokens = 0
        self.looked_up_tokens = 0
        self.steps = 0
        self.busy_ps = 0
        self.block_area = 0.0  # blocks held x time
        self.seat_area = 0.0  # seats taken x time
        self.inter_token_bins: dict[int, int] = {}

    def steps_done(self, steps: int, duration_ps: int, twice_blocks: int, seats: int) -> None:
        """Steps that took `duration_ps` together; `twice_blocks` is blocks held before them plus blocks held after."""
        self.steps += steps
        self.busy_ps += duration_ps
        self.block_area += 0.5 * twice_blocks * duration_ps
        self.seat_area += float(seats) * duration_ps

    def inter_token(self, first_ps: int, slope_ps: int, steps: int, sequences: int) -> None:
        """`sequences` sequences each see `steps` gaps between tokens: first, first + slope, ..."""
        bins = self.inter_token_bins
        shift = first_ps.bit_length() - 8
        if shift > 0:
            key = first_ps >> shift
            if (first_ps + slope_ps * (steps - 1)) >> shift == key:  # all in one bin, as nearly always
                key |= shift << 8
                bins[key] = bins.get(key, 0) + steps * sequences
                return
        while steps > 0:
            key = bin_of(first_ps)
            count = steps
            if slope_ps:
                inside = (bin_end(key) - first_ps + slope_ps - 1) // slope_ps
                if inside < count:
                    count = inside
            bins[key] = bins.get(key, 0) + count * sequences
            steps -= count
            first_ps += count * slope_ps


def bin_of(gap_ps: int) -> int:
    """The bin of a gap: its 8 leading bits and how many follow them, so that a bin is under 0.8% wide."""
    shift = gap_ps.bit_length() - 8
    if shift <= 0:
        return gap_ps
    return (shift << 8) | (gap_ps >> shift)


def bin_start(key: int) -> int:
    """The smallest gap in a bin, in picoseconds."""
    return (key & 255) << (key >> 8)


def bin_end(key: int) -> int:
    """The smallest gap beyond a bin, in picoseconds."""
    return ((key & 255) + 1) << (key >> 8)
