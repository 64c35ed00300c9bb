"""Draws sessions: conversations whose every turn's prompt is all that was said before, and a new question."""

from __future__ import annotations

import numpy as np

from sim.errors import InputError
from sim.random_streams import random_stream
from sim.workload._bodies import Bodies
from sim.workload._spec import MAX_REQUESTS, SessionsSpec
from sim.workload._types import PS_PER_S, IntColumn, Pieces
from sim.workload._validation import MAX_SECONDS
from sim.workload.distributions import sample_lengths
from sim.workload.durations import sample_ps


def draw_sessions(spec: SessionsSpec, n: int, seed: int, scope: str, field: str) -> Bodies:
    """The turns of `n` sessions, one session after the other. Raises InputError where they are too many or too long."""
    turns = sample_lengths(spec.turns, random_stream(seed, f"{scope}turns"), n)
    total = int(turns.sum())
    if total > MAX_REQUESTS:
        raise InputError(f"{field}.turns", f"makes {total:,} requests; at most {MAX_REQUESTS:,} can be simulated")
    session = np.repeat(np.arange(n), turns)
    first = np.zeros(total, bool)
    first[np.cumsum(turns) - turns] = True
    system, group = _system_prompts(spec, n, seed, scope)
    asked, output = np.zeros(total, np.int64), np.zeros(total, np.int64)
    asked[first] = sample_lengths(spec.first_input or spec.input, random_stream(seed, f"{scope}first_input"), n)
    asked[~first] = sample_lengths(spec.input, random_stream(seed, f"{scope}input"), total - n)
    output[:] = sample_lengths(spec.output, random_stream(seed, f"{scope}output"), total)
    think_ps = np.zeros(total, np.int64)
    think_ps[~first] = sample_ps(spec.think_time_s, random_stream(seed, f"{scope}think_time"), total - n)
    if n and float(think_ps.max()) * float(turns.max()) > MAX_SECONDS * PS_PER_S:
        raise InputError(f"{field}.think_time_s", f"makes sessions of more than {MAX_SECONDS:,} s")
    if spec.max_context is not None:
        output = np.minimum(output, spec.max_context - 1)
        asked[first] = np.minimum(asked[first], spec.max_context - output[first] - system)
    said = np.cumsum(asked + output)
    context = said - (said - asked - output)[first][session] + system[session]  # the answer included
    kept = np.arange(total) if spec.max_context is None else np.flatnonzero(first | (context <= spec.max_context))
    session, first, context, output = session[kept], first[kept], context[kept], output[kept]
    prompt = context - output
    return Bodies(
        prompt,
        output,
        _contents(spec, session, prompt, asked[kept], system, group),
        session + 1,
        session=session,
        follows=np.where(first, -1, np.arange(len(kept)) - 1),
        think_ps=think_ps[kept],
        of_arrival=session,
    )


def _system_prompts(spec: SessionsSpec, n: int, seed: int, scope: str) -> tuple[IntColumn, IntColumn]:
    """Tokens and number of each session's system prompt."""
    if spec.prefix is None:
        return np.zeros(n, np.int64), np.zeros(n, np.int64)
    groups = spec.prefix.groups
    tokens = sample_lengths(spec.prefix.tokens, random_stream(seed, f"{scope}prefix_tokens"), groups, at_least=0)
    group = random_stream(seed, f"{scope}prefix_group").integers(0, groups, n, dtype=np.int64)
    return tokens[group], group


def _contents(
    spec: SessionsSpec, session: IntColumn, prompt: IntColumn, asked: IntColumn, system: IntColumn, group: IntColumn
) -> list[Pieces]:
    """The content of each session as a whole, behind that of none: system prompt, then what its last turn begins with.

    What the last turn asks and gets is in no other prompt, so it is left out.
    """
    n = len(system)
    last = np.cumsum(np.bincount(session, minlength=n)) - 1
    first = np.concatenate([[0], last[:-1] + 1]).astype(np.int64)
    shared = np.minimum(system, prompt[first]).tolist() if n else []
    reused = np.where(last > first, (prompt - asked)[last] - system, 0).tolist()
    groups = 0 if spec.prefix is None else spec.prefix.groups
    contents: list[Pieces] = [()]
    for number, (of_group, head, rest) in enumerate(zip(group.tolist(), shared, reused, strict=True)):
        pieces = ((of_group + 1, head), (groups + number + 1, rest))
        contents.append(tuple(piece for piece in pieces if piece[1]))
    return contents
