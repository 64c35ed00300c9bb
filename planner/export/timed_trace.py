"""Requests as `vllm bench serve --dataset-name timed_trace` replays them: times, lengths, and ids of shared chunks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from sim.errors import InputError
from sim.workload import PS_PER_S, Pieces, Workload

MAX_IDS = 30_000_000  # chunks written; some 250 MB


def chunk_tokens(workload: Workload, block_size: int) -> int:
    """Tokens a chunk: the largest multiple of `block_size` at whose ends every shared run of full KV blocks ends.

    Prefix caching hits full blocks only, so what two prompts share beyond their last common block does not count.
    """
    ends = {0}
    for pieces in workload.contents:
        total = 0
        for _, tokens in pieces:
            total += tokens
            ends.add(total // block_size * block_size)
    if workload.follows is not None:  # the next turn's prompt begins with this one's
        ends.update((workload.prompt_tokens // block_size * block_size).tolist())
    return math.gcd(*ends) or max(block_size, 512 // block_size * block_size)


def trace_lines(workload: Workload, chunk: int) -> Iterator[str]:
    """One JSON line a request: `timestamp` (s), `input_length`, `output_length`, `hash_ids` (one a chunk of tokens).

    Requests that share a prefix have the same leading ids, as far as whole chunks agree; everything else has ids of
    its own. Raises InputError where the file would be unreasonably large.
    """
    total = int((-(-workload.prompt_tokens // chunk)).sum())
    if total > MAX_IDS:
        raise InputError("workload", f"needs a trace of {total:,} chunks, more than {MAX_IDS:,}; export fewer requests")
    shared = _SharedChunks(chunk)
    ids = [shared.ids(pieces) for pieces in workload.contents]
    private = shared.count
    earliest_ps = workload.earliest_ps()
    for index in range(len(workload)):
        chunks = -(-int(workload.prompt_tokens[index]) // chunk)
        whole = int(workload.prompt_tokens[index]) // chunk
        known = ids[int(workload.content[index])][:whole]
        own = range(private, private + chunks - len(known))
        private = own.stop
        line = {
            "timestamp": int(earliest_ps[index]) / PS_PER_S,
            "input_length": int(workload.prompt_tokens[index]),
            "output_length": int(workload.output_tokens[index]),
            "hash_ids": [*known, *own],
        }
        yield json.dumps(line, separators=(",", ":")) + "\n"


class _SharedChunks:
    """Numbers the whole chunks of shared content: equal tokens behind equal tokens get equal numbers."""

    def __init__(self, chunk: int) -> None:
        self._chunk = chunk
        self._numbers: dict[tuple[int, tuple[tuple[int, int, int], ...]], int] = {}

    @property
    def count(self) -> int:
        return len(self._numbers)

    def ids(self, pieces: Pieces) -> list[int]:
        """The numbers of the whole chunks of a prompt that begins with `pieces`."""
        found: list[int] = []
        part: list[tuple[int, int, int]] = []
        room = self._chunk
        for piece, tokens in pieces:
            start = 0
            while start < tokens:
                taken = min(room, tokens - start)
                part.append((piece, start, taken))
                start += taken
                room -= taken
                if room == 0:
                    parent = found[-1] if found else -1
                    found.append(self._numbers.setdefault((parent, tuple(part)), len(self._numbers)))
                    part, room = [], self._chunk
        return found
