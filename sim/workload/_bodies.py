"""Requests without their arrivals, as columns that can be cut, reordered and joined."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.workload._types import IntColumn, Pieces


@dataclass(slots=True)
class Bodies:
    """Columns as those of `Workload`; classes and tenants by name."""

    prompt_tokens: IntColumn
    output_tokens: IntColumn
    contents: list[Pieces]
    content: IntColumn
    slo_class: list[str] | None = None
    tenant: list[str] | None = None
    session: IntColumn | None = None
    follows: IntColumn | None = None
    think_ps: IntColumn | None = None  # of those that follow another, else 0; None: all 0
    of_arrival: IntColumn | None = None  # the arrival that brings each request, ascending; None: each its own

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def arrivals(self) -> IntColumn:
        """The arrival that brings each request."""
        return np.arange(len(self)) if self.of_arrival is None else self.of_arrival

    def taken(self, rows: IntColumn) -> Bodies:
        """The requests of `rows`, in that order; whoever follows one of them must have it among them."""
        follows = self.follows
        if follows is not None:
            place = np.full(len(self) + 1, -1, np.int64)  # its last entry, which is that of -1, stays -1
            place[rows] = np.arange(len(rows))
            follows = place[follows[rows]]
        return Bodies(
            self.prompt_tokens[rows],
            self.output_tokens[rows],
            self.contents,
            self.content[rows],
            _names(self.slo_class, rows),
            _names(self.tenant, rows),
            None if self.session is None else self.session[rows],
            follows,
            None if self.think_ps is None else self.think_ps[rows],
            None if self.of_arrival is None else self.of_arrival[rows],
        )


def _names(column: list[str] | None, rows: IntColumn) -> list[str] | None:
    return None if column is None else [column[row] for row in rows.tolist()]


def joined(parts: list[Bodies]) -> Bodies:
    """The parts' requests one part after the other; contents and sessions of different parts stay different.

    Every part must have classes and tenants; what arrivals bring them is left out.
    """
    contents: list[Pieces] = []
    content, first_id = [], 0
    for part in parts:
        content.append(part.content + len(contents))
        contents += [tuple((piece + first_id, tokens) for piece, tokens in pieces) for pieces in part.contents]
        first_id = max((piece for pieces in contents for piece, _ in pieces), default=first_id)
    session, follows, think_ps = [], [], []
    sessions = rows = 0
    for part in parts:
        nobody, nothing = np.full(len(part), -1, np.int64), np.zeros(len(part), np.int64)
        session.append(nobody if part.session is None else _shifted(part.session, sessions))
        follows.append(nobody if part.follows is None else _shifted(part.follows, rows))
        think_ps.append(nothing if part.think_ps is None else part.think_ps)
        sessions = max(sessions, int(session[-1].max(initial=-1)) + 1)
        rows += len(part)
    return Bodies(
        np.concatenate([part.prompt_tokens for part in parts]),
        np.concatenate([part.output_tokens for part in parts]),
        contents,
        np.concatenate(content),
        [name for part in parts for name in part.slo_class or []],
        [name for part in parts for name in part.tenant or []],
        np.concatenate(session) if sessions else None,
        np.concatenate(follows) if any(part.follows is not None for part in parts) else None,
        np.concatenate(think_ps),
    )


def _shifted(column: IntColumn, by: int) -> IntColumn:
    """`column` with `by` added to all entries that are not -1."""
    return np.where(column < 0, -1, column + by)
