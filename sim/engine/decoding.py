"""The decoding sequences of a replica as sums that no step touches."""

from __future__ import annotations

import heapq
from typing import Final

from sim.engine.batch import Sequence

ORDER_BITS: Final = 28  # a step and an order of admission share one heap key
ORDER_MASK: Final = (1 << 28) - 1


class Decoding:
    """The decoding ones of the `running` (by order of admission), summed up.

    The context of a sequence after step s is its `offset` + s, so that the sum of contexts is `context_offset` +
    `num` s. It needs a new block in the steps equal to its phase, modulo the block size.
    """

    def __init__(self, running: dict[int, Sequence], block_size: int, window: int) -> None:
        self.num = 0
        self.context_offset = 0
        self.block_phase: Final[list[int]] = [0] * block_size  # how many need a new block in step = p mod block_size
        self.num_in_window = 0  # whose context is within the sliding window
        self.window_offset = 0  # of those, the sum of offsets
        self.finish_heap: Final[list[int]] = []  # (last step, order) of the decoding, and of some that are no more
        self.window_heap: Final[list[int]] = []  # (step at which its context exceeds the window, order)
        self._running: Final = running
        self._block_size: Final = block_size
        self._window: Final = window

    def ends_with(self, sequence: Sequence, step: int) -> None:
        """The sequence's last token is made by `step`."""
        sequence.finish_step = step
        heapq.heappush(self.finish_heap, (step << ORDER_BITS) | sequence.order)

    def join(self, sequence: Sequence, step: int) -> None:
        """From step + 1 on the sequence decodes; its context after `step` is its target."""
        offset = sequence.target - step
        sequence.offset = offset
        sequence.decoding = True
        self.num += 1
        self.context_offset += offset
        self.block_phase[(1 - offset) % self._block_size] += 1
        if self._window and sequence.target < self._window:
            sequence.in_window = True
            self.num_in_window += 1
            self.window_offset += offset
            heapq.heappush(self.window_heap, ((self._window - offset + 1) << ORDER_BITS) | sequence.order)

    def leave(self, sequence: Sequence) -> None:
        """The sequence decodes no more."""
        offset = sequence.offset
        sequence.decoding = False
        self.num -= 1
        self.context_offset -= offset
        self.block_phase[(1 - offset) % self._block_size] -= 1
        self._leave_window(sequence)

    def _leave_window(self, sequence: Sequence) -> None:
        if sequence.in_window:
            sequence.in_window = False
            self.num_in_window -= 1
            self.window_offset -= sequence.offset

    def cross_window(self, step: int) -> None:
        """Sequences whose context exceeds the window at `step` count as the window from now on."""
        heap = self.window_heap
        limit = (step + 1) << ORDER_BITS
        while heap and heap[0] < limit:
            sequence = self._running.get(heapq.heappop(heap) & ORDER_MASK)
            if sequence is not None:
                self._leave_window(sequence)

    def window_context(self, step: int) -> int:
        """Sum of min(context, window) over the decoding sequences after `step`."""
        outside = self.num - self.num_in_window
        return self.window_offset + self.num_in_window * step + outside * self._window

    def new_blocks(self, step: int, steps: int) -> int:
        """Blocks that `steps` steps from `step` on need."""
        size = self._block_size
        phases = self.block_phase
        blocks = steps // size * self.num
        for partial in range(step, step + steps % size):
            blocks += phases[partial % size]
        return blocks

    def steps_alike(self, step: int, free: int) -> int:
        """How many decode steps from `step` on, at least 1, have one batch and no need for more than `free` blocks."""
        heap = self.finish_heap
        while heap[0] & ORDER_MASK not in self._running:
            heapq.heappop(heap)
        steps = (heap[0] >> ORDER_BITS) - step + 1
        if self.window_heap:
            crossing = (self.window_heap[0] >> ORDER_BITS) - step
            if crossing < steps:
                steps = crossing
        size = self._block_size
        if (steps // size + 1) * self.num > free:
            fit = free // self.num * size
            left = free % self.num
            phases = self.block_phase
            while fit < steps:
                left -= phases[(step + fit) % size]
                if left < 0:
                    break
                fit += 1
            if fit < steps:
                steps = fit
        return steps if steps > 1 else 1
