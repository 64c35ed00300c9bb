"""Where KV goes that the GPU's memory has no room for: tiers below it, each with a size and a link."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from sim.engine.link import Link
from sim.engine.nodes import Node


@dataclass(frozen=True, slots=True)
class TierConfig:
    """A tier of each replica, and the link over which its KV comes back."""

    name: str
    num_blocks: int
    bytes_per_s: int
    bytes_per_token: int  # over the link
    latency_ps: int = 0


class Tier:
    """The blocks in one tier, in the order in which they came: the first is the first to go."""

    def __init__(self, config: TierConfig) -> None:
        self.name: Final = config.name
        self.num_blocks: Final = config.num_blocks
        self.link: Final = Link(config.bytes_per_s, config.bytes_per_token, config.latency_ps)
        self.used = 0
        self.stamp = 0
        self.queue: deque[tuple[Node | None, int]] = deque()  # (node, stamp) or (None, blocks that nobody can find)

    def compact(self) -> None:
        """Drop the entries of nodes that have left, once they are many."""
        if len(self.queue) > 64 and len(self.queue) > 2 * self.used:
            self.queue = deque(entry for entry in self.queue if entry[0] is None or entry[0].stamp == entry[1])


class Tiers:
    """The tiers of one replica, nearest first. What leaves one goes to the next, and is lost behind the last.

    On every path of the radix tree the blocks on the GPU come first, then those of the first tier, and so on: a run
    loses its last blocks first, and it was whole when its first blocks were used last.
    """

    def __init__(self, configs: list[TierConfig]) -> None:
        self.tiers: Final = [Tier(config) for config in configs if config.num_blocks > 0]

    def enter(self, level: int, node: Node, count: int) -> None:
        """The last `count` blocks of a node, which leave where they were, enter tier `level`, counted from 1."""
        child = node.children.get(node.key)
        joins = False  # a run that came just before it and follows on it
        if level <= len(self.tiers):
            tier = self.tiers[level - 1]
            if child is not None and child.tier == level and len(node.children) == 1 and tier.queue:
                newest, stamp = tier.queue[-1]
                joins = newest is child and stamp == child.stamp
        if joins and child is not None:
            child.num_blocks += count
        if count == node.num_blocks and (joins or level > len(self.tiers)):
            self._remove(node, child if joins else None)
        elif joins or level > len(self.tiers):
            node.num_blocks -= count
        else:
            self._append(self.tiers[level - 1], level, node if count == node.num_blocks else _cut(node, count))
        if level <= len(self.tiers):
            self.tiers[level - 1].used += count
            self._shrink(level)

    def enter_unfindable(self, level: int, count: int) -> None:
        """`count` blocks whose content nobody can look for enter tier `level`; they take room like the others."""
        if level > len(self.tiers):
            return
        tier = self.tiers[level - 1]
        queue = tier.queue
        if queue and queue[-1][0] is None:
            queue[-1] = (None, queue[-1][1] + count)
        else:
            queue.append((None, count))
        tier.used += count
        self._shrink(level)

    def leave(self, node: Node) -> None:
        """The node is in its tier no more: it was computed again, or is being loaded."""
        tier = self.tiers[node.tier - 1]
        tier.used -= node.num_blocks
        node.tier = 0
        node.stamp = 0
        tier.compact()

    def _remove(self, node: Node, successor: Node | None) -> None:
        """Take a node out of the tree, and put the run that follows on it in its place."""
        parent = node.parent
        assert parent is not None
        if successor is None:
            del parent.children[node.key]
        else:
            parent.children[node.key] = successor
            successor.parent = parent

    def _append(self, tier: Tier, level: int, node: Node) -> None:
        tier.stamp += 1
        node.tier = level
        node.stamp = tier.stamp
        tier.queue.append((node, tier.stamp))

    def _shrink(self, level: int) -> None:
        """What a tier has no room for goes to the next one, the oldest first."""
        tier = self.tiers[level - 1]
        while tier.used > tier.num_blocks:
            node, number = tier.queue[0]
            surplus = tier.used - tier.num_blocks
            if node is None:
                if number > surplus:
                    tier.queue[0] = (None, number - surplus)
                    number = surplus
                else:
                    tier.queue.popleft()
                tier.used -= number
                self.enter_unfindable(level + 1, number)
            elif node.stamp != number:
                tier.queue.popleft()  # the node left the tier before
            else:
                if node.num_blocks <= surplus:
                    surplus = node.num_blocks
                    node.stamp = 0
                    tier.queue.popleft()
                tier.used -= surplus
                self.enter(level + 1, node, surplus)


def _cut(node: Node, count: int) -> Node:
    """Split off the last `count` blocks of a node as a child of the rest, which keeps its place in its queue."""
    end = Node(node, node.key, count, 0)
    end.children = node.children
    for child in end.children.values():
        child.parent = end
    node.children = {node.key: end}
    node.num_blocks -= count
    return end
