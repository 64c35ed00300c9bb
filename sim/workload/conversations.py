"""What the sessions of a trace share, and what its turns wait for, where a spec asks for that."""

from __future__ import annotations

import numpy as np

from sim.workload._bodies import Bodies
from sim.workload._types import PS_PER_NS, IntColumn, Pieces


def with_growing_prompts(bodies: Bodies) -> Bodies:
    """The same requests, in order of time, where a prompt goes on from the request before in its session.

    It does if it is at least as long as that one's prompt and answer: then it begins with them. A shorter one has
    begun anew.
    """
    assert bodies.session is not None
    prompt, total = bodies.prompt_tokens.tolist(), (bodies.prompt_tokens + bodies.output_tokens).tolist()
    chain = list(range(len(bodies)))  # the first request of each one's conversation
    reach: dict[int, int] = {}  # of conversations with two requests or more: what all but the last one said
    before: dict[int, int] = {}
    for index, session in enumerate(bodies.session.tolist()):
        last = before.get(session, -1) if session >= 0 else -1
        before[session] = index
        if last >= 0 and prompt[index] >= total[last]:
            chain[index] = chain[last]
            reach[chain[index]] = total[last]
    contents, content = list(bodies.contents), bodies.content.copy()
    following_id = 1 + max((piece for pieces in contents for piece, _ in pieces), default=0)
    whole: dict[int, int] = {}  # the content of each conversation
    for number, (first, tokens) in enumerate(reach.items()):
        begins: Pieces = bodies.contents[int(bodies.content[first])]
        rest = tokens - sum(n for _, n in begins)
        whole[first] = len(contents)
        contents.append((*begins, (following_id + number, rest)))
    for index, first in enumerate(chain):
        if first in whole:
            content[index] = whole[first]
    bodies.contents, bodies.content = contents, content
    return bodies


def with_waiting_turns(bodies: Bodies, arrival_ns: IntColumn, answered_ns: IntColumn) -> Bodies:
    """The same requests, in order of time, each of a session waiting for the answer before; users think as long as
    they did after it, 0 if they did not wait.
    """
    assert bodies.session is not None
    follows = np.full(len(bodies), -1, np.int64)
    before: dict[int, int] = {}
    for index, session in enumerate(bodies.session.tolist()):
        if session >= 0:
            follows[index] = before.get(session, -1)
            before[session] = index
    think_ns = np.where(follows < 0, 0, np.maximum(0, arrival_ns - answered_ns[follows]))
    bodies.follows, bodies.think_ps = follows, think_ns * PS_PER_NS
    return bodies
