"""A replica that notes down its state at even intervals while it runs, for pictures of a run over time."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from math import fsum
from typing import Final

import numpy as np
import numpy.typing as npt

from sim.engine.batch import Prefills
from sim.engine.blocks import ContentPaths
from sim.engine.replica import NEVER, Replica
from sim.engine.requests import RequestTable
from sim.engine.scheduler import EngineConfig
from sim.latency import StepTime
from sim.latency.parts import step_parts
from sim.latency.step_time import PhysicalStepTime

Floats = npt.NDArray[np.float64]

FIRST_INTERVAL_PS: Final = 10_000_000_000  # 10 ms; doubled whenever the samples are too many
MOST_SAMPLES: Final = 1_024
_COLUMNS: Final = 6  # number on the grid, waiting, running, blocks held, tokens hit, tokens looked up


@dataclass(frozen=True, slots=True)
class Timeline:
    """The state of one replica at even times, one entry a sample; idle stretches are there as zeros.

    `waiting` and `running` count requests, `kv_usage` is the share of KV blocks held (0 to 1), `prefix_hit_rate` the
    share of the prompt tokens looked up since the sample before that were cached (nan where none were looked up).
    """

    time_s: Floats
    waiting: Floats
    running: Floats
    kv_usage: Floats
    prefix_hit_rate: Floats


class SampledReplica(Replica):
    """A `Replica` that samples itself. Sampling only looks: what it serves, and when, is the same to the bit."""

    def __init__(self, table: RequestTable, config: EngineConfig, step_time: StepTime, paths: ContentPaths) -> None:
        super().__init__(table, config, step_time, paths)
        self._interval_ps = FIRST_INTERVAL_PS
        self._next_sample = 0  # its number on the grid of `_interval_ps`
        self._samples: array[int] = array("q")
        self.decode_steps: dict[int, list[int]] = {}  # of each number of decodes: steps, and their time in ps
        self.mixed_steps: array[int] = array("q")  # of each: what `StepTime.mixed` was given, and its time in ps

    def advance(self, until_ps: int) -> None:
        """As `Replica.advance`, with a stop at every sample on the way; idle stretches are skipped."""
        sample_ps = self._next_sample * self._interval_ps
        while sample_ps < until_ps:
            if self.due_ps == NEVER:
                if until_ps < NEVER:
                    self._go_on_with(-(-until_ps // self._interval_ps))
                break
            super().advance(sample_ps)
            self._note_down(sample_ps)
            self._go_on_with(self._next_sample + 1)
            sample_ps = self._next_sample * self._interval_ps
        super().advance(until_ps)

    def _commit_run(self, steps: int) -> None:
        total_ps = steps * self._run_first_ps + self._run_slope_ps * (steps * (steps - 1) // 2)
        counted = self.decode_steps.setdefault(self._decoding.num, [0, 0])
        counted[0] += steps
        counted[1] += total_ps
        super()._commit_run(steps)

    def _finish_mixed(self, step: int, batch: Prefills) -> int:
        decoding = self._decoding
        decodes, context = decoding.num, decoding.context_offset + decoding.num * step
        window_context = decoding.window_context(step) if self._window else 0
        prefills = (batch.num_prefills, batch.tokens, batch.pairs, batch.window_pairs, batch.context)
        sampled = decodes + len(self._ending)
        duration_ps = super()._finish_mixed(step, batch)
        self.mixed_steps.extend((decodes, context, window_context, *prefills, sampled, duration_ps))
        return duration_ps

    def _note_down(self, at_ps: int) -> None:
        stats = self.stats
        state = (self.num_waiting, self.num_running, self.used_blocks(at_ps), stats.hit_tokens, stats.looked_up_tokens)
        self._samples.extend((self._next_sample, *state))

    def _go_on_with(self, number: int) -> None:
        """`number` is the next sample, on a grid so coarse that there are few."""
        while number >= MOST_SAMPLES:
            number = -(-number // 2)
            self._interval_ps *= 2
            kept = np.array(self._samples, dtype=np.int64).reshape(-1, _COLUMNS)
            kept = kept[kept[:, 0] % 2 == 0]
            kept[:, 0] //= 2
            self._samples = array("q", kept.tobytes())
        self._next_sample = number

    def time_parts(self) -> dict[str, float]:
        """ps by resource of the time that it was busy; empty with a latency model other than the shipped one.

        Where the end of the run cut its last steps short, the parts of all steps are shortened in proportion.
        """
        step_time = self._step_time
        if not isinstance(step_time, PhysicalStepTime):
            return {}
        parts = step_parts(step_time, self.decode_steps, self.mixed_steps)
        whole_ps = fsum(parts.values())
        share = min(1.0, self.stats.busy_ps / whole_ps) if whole_ps else 1.0
        return parts if share > 1 - 1e-12 else {name: ps * share for name, ps in parts.items()}

    def timeline(self) -> Timeline:
        """What was noted down, from time 0 to the last sample at which the replica was busy."""
        noted = np.array(self._samples, dtype=np.int64).reshape(-1, _COLUMNS)
        count = int(noted[-1, 0]) + 1 if len(noted) else 0
        full = np.zeros((count, _COLUMNS), dtype=np.int64)
        full[noted[:, 0]] = noted
        hit, looked_up = (np.diff(np.maximum.accumulate(full[:, column]), prepend=0) for column in (4, 5))
        rate = np.divide(hit, looked_up, out=np.full(count, np.nan), where=looked_up > 0)
        return Timeline(
            time_s=np.arange(count, dtype=np.float64) * (self._interval_ps / 1e12),
            waiting=full[:, 1].astype(np.float64),
            running=full[:, 2].astype(np.float64),
            kv_usage=full[:, 3] / self.pool.num_blocks,
            prefix_hit_rate=rate,
        )
