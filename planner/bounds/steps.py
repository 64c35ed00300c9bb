"""The least time that engine steps can take: for one request alone, and for a share in everybody's steps.

All that is used of the step time is that it never falls in any argument but where the engine changes its mode of
launching (`_breakpoints`), and that without the host's time it is linear in contexts, pairs and the split of a batch
into decodes and prefills.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sim.deployment import Deployment
from sim.latency import Coefficients, StepTime, build_step_time

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

GRID_RATIO = 1.03  # of neighbouring batch sizes above the CUDA graphs'
MAX_SHAPES = 512  # prefills of more different shapes than this are rounded down to a coarser grid
MANY_PAIRS = 10**12  # at which attention dwarfs everything else of a step


def context_sums(prompt: Ints, output: Ints, window: int) -> tuple[Array, Array]:
    """Of each request's output - 1 decode steps: the sum of contexts, and of contexts cut to `window`."""
    steps = np.maximum(output - 1, 0).astype(np.float64)
    whole = steps * prompt + steps * (steps - 1) / 2
    if not window:
        return whole, np.zeros_like(whole)
    inside = np.clip(window - prompt, 0, steps)  # steps whose context is still within the window
    cut = inside * prompt + inside * (inside - 1) / 2 + (steps - inside) * window
    return whole, cut


def pairs(new: Ints, computed: Ints, window: int) -> tuple[Ints, Ints]:
    """Causal query-key pairs of `new` tokens after `computed` ones: all, and with at most `window` keys a query."""
    every = new * computed + new * (new + 1) // 2
    if not window:
        return every, np.zeros_like(every)
    growing = np.clip(window - computed, 0, new)  # queries that see all there is
    return every, growing * computed + growing * (growing + 1) // 2 + (new - growing) * window


class StepFloors:
    """Floors of the steps of one replica of `deployment`, in picoseconds."""

    def __init__(self, deployment: Deployment, coefficients: Coefficients) -> None:
        self._true = build_step_time(deployment, coefficients)
        engine = coefficients.engine
        without_host = dataclasses.replace(engine, host_step_us=0.0, host_sequence_us=0.0)
        self._linear: StepTime = self._true
        self._host_ps = (0.0, 0.0)
        if deployment.async_scheduling:  # the host's time hides behind the GPU's: a step is the longer of the two
            self._linear = build_step_time(deployment, dataclasses.replace(coefficients, engine=without_host))
            self._host_ps = (engine.host_step_us * 1e6, engine.host_sequence_us * 1e6)
        self.window = self._true.window
        self._seats = min(deployment.max_num_seqs, deployment.max_num_batched_tokens)
        self._budget = deployment.max_num_batched_tokens
        self._breakpoints = sorted({min(512, 2 * deployment.max_num_seqs), 512})
        self._grid = self._batch_sizes()
        self._least_mixed = float(self._true.mixed(0, 0, 0, 1, 1, 0, 0, 0, 0))
        alone, context, window_context = self._true.decode(1)
        self._decode_ps = float(min(alone, self._linear.mixed(1, 0, 0, 1, 1, 0, 0, 0, 1)))
        self._decode_host_ps = float(min(alone, self._true.mixed(1, 0, 0, 1, 1, 0, 0, 0, 1)))
        self.context_ps = (float(context), float(window_context))
        self.pair_ps = self._pair_slopes()
        self._cut_ps = self._least_mixed  # of a step that cuts a prefill short
        if not deployment.long_prefill_token_threshold:  # only a spent budget does, and preemption leaves some unspent
            self._cut_ps = self._tokens_ps(max(1, self._budget - self._seats))
        self._token_rates = self._rates_of_chunks()
        self._lines = self._supporting_lines()

    def _batch_sizes(self) -> list[int]:
        """Sizes that split 1..budget into ranges within which a step never gets shorter as it grows."""
        sizes = {1, 2, 4, *range(8, 257, 8), *range(272, 513, 16), *self._breakpoints, self._seats, self._budget}
        size = 512.0
        while size < self._budget:
            size *= GRID_RATIO
            sizes.add(int(size))
        return sorted(size for size in sizes if size <= self._budget)

    def _pair_slopes(self) -> tuple[float, float]:
        """ps per causal pair, and per pair within the window."""
        n = MANY_PAIRS
        base = self._linear.mixed(0, 0, 0, 1, 1, n, n, 0, 0)
        full = self._linear.mixed(0, 0, 0, 1, 1, 2 * n, n, 0, 0) - base
        windowed = self._linear.mixed(0, 0, 0, 1, 1, n, 2 * n, 0, 0) - base
        return max(0.0, (full - 1) / n), max(0.0, (windowed - 1) / n)

    # -- one request alone -----------------------------------------------------------------------------------------

    def _tokens_ps(self, tokens: int) -> float:
        """The least time of a step with at least one prefill and at least `tokens` tokens."""
        sizes = [tokens, *(size + 1 for size in self._breakpoints if tokens <= size < self._budget)]
        return max(self._least_mixed, min(self._without_host_ps(size) for size in sizes))

    def _without_host_ps(self, tokens: int) -> float:
        """The least time of a step with `tokens` tokens, the host's aside: linear in how many of them are decodes."""
        mixed = self._linear.mixed
        return float(min(mixed(0, 0, 0, 0, tokens, 0, 0, 0, 0), mixed(tokens, 0, 0, 0, 0, 0, 0, 0, 0)))

    def _chunk_ps(self, new: int, computed: int, ends: bool) -> float:
        """The least time of a step with such a chunk, one that `ends` the prefill or not, whatever else is in it."""
        every, windowed = (int(p[0]) for p in pairs(np.array([new]), np.array([computed]), self.window))
        context = computed + new
        least = float(self._true.mixed(0, 0, 0, 1, new, every, windowed, context, ends))
        for size in self._breakpoints:  # beyond it the step may be shorter again
            if new <= size < self._budget:
                others = size + 1 - new
                longer = min(
                    self._linear.mixed(others, 0, 0, 1, new, every, windowed, context, ends),
                    self._linear.mixed(0, 0, 0, 2, new + others, every, windowed, context, ends),
                )
                least = min(least, max(float(longer), self._least_mixed))
        return least

    def _rates_of_chunks(self) -> Array:
        """For each grid size: the least time a token of steps whose chunk is up to that large."""
        rates = []
        below = 0
        for size in self._grid:
            rates.append(self._chunk_ps(below + 1, 0, False) / size)
            below = size
        return np.minimum.accumulate(np.array(rates))

    def prefill_ps(self, new: Ints, computed: Ints) -> Array:
        """The least time from a request's first step to its first token: `new` prompt tokens to compute after
        `computed` cached ones, in one step or in several."""
        shapes, inverse = np.unique(np.stack([new, computed], axis=1), axis=0, return_inverse=True)
        if len(shapes) > MAX_SHAPES:
            shapes = np.stack([_rounded_down(shapes[:, 0]), _rounded_down(shapes[:, 1])], axis=1)
            shapes, again = np.unique(shapes, axis=0, return_inverse=True)
            inverse = np.ravel(again)[np.ravel(inverse)]
        values = np.array([self._shape_ps(int(q), int(p)) for q, p in shapes])
        return np.asarray(values[np.ravel(inverse)], dtype=np.float64)

    def _shape_ps(self, new: int, computed: int) -> float:
        position = int(np.searchsorted(self._grid, min(new, self._budget)))
        cuts = max(1, -(-new // self._budget) - 1)
        several = max(new * float(self._token_rates[position]), cuts * self._cut_ps + self._least_mixed)
        return several if new > self._budget else min(self._chunk_ps(new, computed, True), several)

    def decode_ps(self, prompt: Ints, output: Ints) -> Array:
        """The least time from a request's first token to its last."""
        steps = np.maximum(output - 1, 0)
        whole, cut = context_sums(prompt, output, self.window)
        linear = steps * self._decode_ps + whole * self.context_ps[0] + cut * self.context_ps[1]
        return np.maximum(linear, steps * self._decode_host_ps)

    def gap_ps(self, context: int) -> float:
        """The least time between two tokens of a sequence with at least `context` tokens."""
        linear = self._decode_ps + context * self.context_ps[0] + min(context, self.window) * self.context_ps[1]
        return max(linear, self._decode_host_ps)

    # -- a share in everybody's steps --------------------------------------------------------------------------------

    def _supporting_lines(self) -> list[tuple[float, float]]:
        """(ps a step, ps a token): no step of t tokens takes less than the sum, by any of these lines."""
        points: list[tuple[float, float]] = []
        below = 0
        for size in self._grid:
            t = below + 1
            least = self._without_host_ps(t)
            if t <= self._seats:
                least = min(least, float(self._linear.decode(t)[0]))
            points.append((float(size), least))
            below = size
        lines = [(min(value for _, value in points), 0.0)]
        hull = _lower_hull(points)
        for (t0, v0), (t1, v1) in itertools.pairwise(hull):
            slope = (v1 - v0) / (t1 - t0)
            if slope >= 0 and v0 - slope * t0 >= 0:
                lines.append((v0 - slope * t0, slope))
        last = hull[-1]
        lines.append((0.0, min(value / t for t, value in points) if len(points) > 1 else last[1] / last[0]))
        return lines

    def work_ps(self, prompt: Ints, output: Ints, new: Ints, computed: Ints) -> Array:
        """The least time of one replica that each request takes for itself: its share of the steps it is in.

        A step has at most max_num_seqs decodes, so d decode tokens need d / max_num_seqs steps or more.
        """
        decodes = np.maximum(output - 1, 0).astype(np.float64)
        total = float(decodes.sum())
        tokens = total + float(new.sum())
        per_step, per_token = max(self._lines, key=lambda line: line[0] * total / self._seats + line[1] * tokens)
        work = decodes * (per_step / self._seats + per_token) + new * per_token
        whole, cut = context_sums(prompt, output, self.window)
        every, windowed = pairs(new, computed, self.window)
        work = work + whole * self.context_ps[0] + cut * self.context_ps[1]
        work = work + every * self.pair_ps[0] + windowed * self.pair_ps[1]
        host = decodes * (self._host_ps[0] / self._seats + self._host_ps[1])
        return np.asarray(host if host.sum() > work.sum() else work, dtype=np.float64)


def _rounded_down(values: Ints) -> Ints:
    """Positive values to the next lower point of a grid 3% apart; 0 stays."""
    points = [1]
    while points[-1] < values.max(initial=1):
        points.append(max(points[-1] + 1, int(points[-1] * GRID_RATIO)))
    grid = np.array(points, dtype=np.int64)
    return np.where(values > 0, grid[np.maximum(np.searchsorted(grid, values, side="right") - 1, 0)], 0)


def _lower_hull(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The lower convex hull of points in ascending order of x (Andrew's monotone chain)."""
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while len(hull) > 1 and (hull[-1][0] - hull[-2][0]) * (y - hull[-2][1]) <= (hull[-1][1] - hull[-2][1]) * (
            x - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    return hull
