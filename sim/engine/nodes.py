"""What a prefix cache is made of: runs of blocks that share their fate, in a radix tree."""

from __future__ import annotations

Path = list[tuple[int, int]]
"""Where a content lies in the tree: (key, end) a piece, `end` in blocks from the start of the content."""


class Node:
    """A run of `num_blocks` cached blocks of one piece: held by `holders` requests, in the free queue if by none, or
    evicted from there into tier `tier` (0: neither)."""

    __slots__ = ("children", "holders", "key", "num_blocks", "parent", "ready_ps", "stamp", "tier")

    def __init__(self, parent: Node | None, key: int, num_blocks: int, holders: int, ready_ps: int = 0) -> None:
        self.parent = parent
        self.key = key
        self.num_blocks = num_blocks
        self.holders = holders
        self.ready_ps = ready_ps  # when the load of its KV ends; 0: it was computed
        self.stamp = 0  # of its valid entry in the free queue, or in its tier's; 0: not in it
        self.tier = 0
        self.children: dict[int, Node] = {}
