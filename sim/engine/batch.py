"""What is in an engine's batch: running requests, and the prefill chunks of one step."""

from __future__ import annotations

from sim.engine.nodes import Node


class Sequence:
    """A running request: first it prefills, then it decodes, then (its last token made, or being made) it is finishing.

    While it decodes its context after step s is `offset` + s, and it is a part of the replica's sums.
    """

    __slots__ = (
        "blocks",
        "computed",
        "decoding",
        "duplicate",
        "emitted",
        "finish_step",
        "finishing",
        "hit",
        "in_window",
        "index",
        "loads",
        "node",
        "offset",
        "order",
        "registered",
        "target",
    )

    def __init__(self, index: int, order: int, target: int, emitted: int, node: Node, registered: int) -> None:
        self.index = index
        self.order = order  # of admission
        self.target = target  # tokens that its prefill computes or finds
        self.emitted = emitted  # before this admission
        self.node = node  # the last cached node it holds
        self.registered = registered  # blocks up to the end of that node
        self.hit = registered  # of them, what it found in the prefix cache
        self.loads: list[tuple[int, int]] | None = None  # (tier, or 0 for a remote, tokens)
        self.duplicate = False
        self.computed = 0
        self.blocks = registered  # held, while it prefills; what was put aside holds those of all its target
        self.decoding = False
        self.offset = 0
        self.in_window = False
        self.finish_step = -1
        self.finishing = False


class Prefills:
    """The prefill chunks of a step, as the step time wants them (see `StepTime.mixed`)."""

    __slots__ = ("context", "num_prefills", "pairs", "tokens", "window_pairs")

    def __init__(self) -> None:
        self.num_prefills = 0
        self.tokens = 0
        self.pairs = 0
        self.window_pairs = 0
        self.context = 0

    def add(self, computed: int, chunk: int, window: int) -> None:
        self.num_prefills += 1
        self.tokens += chunk
        self.pairs += chunk * computed + chunk * (chunk + 1) // 2
        self.context += computed + chunk
        if window:
            inside = window - computed
            if inside < 0:
                inside = 0
            elif inside > chunk:
                inside = chunk
            self.window_pairs += inside * computed + inside * (inside + 1) // 2 + (chunk - inside) * window
