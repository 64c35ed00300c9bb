"""KV-cache blocks of one replica: the free queue, and a prefix cache kept as a radix tree of runs of blocks.

Blocks that share their fate are one entry: a node of the tree is a run of cached blocks with the same holders, a
number in the free queue is a run of blocks with nothing findable in them. Holders of a node hold its ancestors, and a
run is freed and evicted from its end, so whatever is cached is a prefix of its path (docs/engine.md).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from sim.engine.nodes import Node, Path
from sim.engine.tiers import Tiers


class Match:
    """The longest cached prefix of a path: its last node, of which `taken` blocks match, and its size in blocks."""

    __slots__ = ("free_blocks", "node", "num_blocks", "ready_ps", "taken")

    def __init__(self, node: Node, taken: int, num_blocks: int, free_blocks: int, ready_ps: int) -> None:
        self.node = node
        self.taken = taken
        self.num_blocks = num_blocks
        self.free_blocks = free_blocks  # how many of them nobody holds
        self.ready_ps = ready_ps  # when the last of their loads ends


class BlockPool:
    """The blocks of one replica. `free` is the number that nobody holds, cached ones included.

    With `tiers` what is evicted goes there; without, it is lost.
    """

    def __init__(self, num_blocks: int, tiers: Tiers | None = None) -> None:
        self.num_blocks: Final = num_blocks
        self.tiers: Final = tiers
        self._unused = num_blocks  # blocks that never held anything; they are at the front of the queue
        self.free = num_blocks
        self.root: Final = Node(None, -1, 0, 1)
        self._queue: deque[tuple[Node | None, int]] = deque([(None, num_blocks)])  # (node, stamp) or (None, blocks)
        self._stamp = 0

    def take(self, count: int) -> None:
        """Allocate `count` blocks from the front of the free queue, evicting what is cached in them."""
        self.free -= count
        if self.tiers is not None:
            self._take_down(self.tiers, count)
            return
        queue = self._queue
        while count > 0:
            node, number = queue[0]
            if node is None:
                if number > count:
                    queue[0] = (None, number - count)
                    return
                count -= number
                queue.popleft()
            elif node.stamp != number:
                queue.popleft()  # the node left the queue before
            elif node.num_blocks > count:
                node.num_blocks -= count
                return
            else:
                count -= node.num_blocks
                node.num_blocks = 0
                node.stamp = 0
                queue.popleft()
                parent = node.parent
                assert parent is not None
                del parent.children[node.key]

    def spares(self, count: int) -> bool:
        """Whether the first `count` blocks of the free queue have nothing cached in them. Changes nothing."""
        for node, number in self._queue:
            if count <= 0:
                return True
            if node is None:
                count -= number
            elif node.stamp == number:
                return False
        return count <= 0

    def _take_down(self, tiers: Tiers, count: int) -> None:
        """`take` where what is evicted goes down the tiers."""
        queue = self._queue
        while count > 0:
            node, number = queue[0]
            if node is None:
                if number > count:
                    queue[0] = (None, number - count)
                    number = count
                else:
                    queue.popleft()
                count -= number
                unused = number if number < self._unused else self._unused
                self._unused -= unused
                if number > unused:
                    tiers.enter_unfindable(1, number - unused)
            elif node.stamp != number:
                queue.popleft()  # the node left the queue before
            else:
                evicted = count
                if node.num_blocks <= count:
                    evicted = node.num_blocks
                    node.stamp = 0
                    queue.popleft()
                count -= evicted
                tiers.enter(1, node, evicted)

    def match(self, path: Path, limit: int) -> Match:
        """The longest cached prefix of `path`, of at most `limit` blocks. Changes nothing."""
        node, taken, num_blocks, free_blocks, ready_ps = self.walk(path, limit)
        return Match(node, taken, num_blocks, free_blocks, ready_ps)

    def walk(self, path: Path, limit: int) -> tuple[Node, int, int, int, int]:
        """What `match` finds, as (node, taken, num_blocks, free_blocks, ready_ps)."""
        node = self.root
        taken = 0
        depth = 0
        free_blocks = 0
        ready_ps = 0
        for key, end in path:
            if end > limit:
                end = limit
            while depth < end:
                child = node.children.get(key)
                if child is None or child.tier:
                    return node, taken, depth, free_blocks, ready_ps
                node = child
                taken = child.num_blocks
                if taken > end - depth:
                    taken = end - depth
                if child.holders == 0:
                    free_blocks += taken
                elif child.ready_ps > ready_ps:
                    ready_ps = child.ready_ps
                depth += taken
                if taken < child.num_blocks:
                    return node, taken, depth, free_blocks, ready_ps
        return node, taken, depth, free_blocks, ready_ps

    def below(self, match: Match, path: Path, limit: int) -> list[tuple[int, int]]:
        """How `path` goes on in the tiers behind a match, up to `limit` blocks: (tier from 1, blocks), in order."""
        found: list[tuple[int, int]] = []
        node = match.node
        depth = match.num_blocks
        if match.taken < node.num_blocks:
            return found
        for key, end in path:
            if end > limit:
                end = limit
            while depth < end:
                child = node.children.get(key)
                if child is None:
                    return found
                taken = child.num_blocks
                if taken > end - depth:
                    taken = end - depth
                if found and found[-1][0] == child.tier:
                    found[-1] = (child.tier, found[-1][1] + taken)
                else:
                    found.append((child.tier, taken))
                depth += taken
                if taken < child.num_blocks:
                    return found
                node = child
        return found

    def hold(self, match: Match) -> Node:
        """Hold what `match` found; returns the last node held."""
        node = match.node
        if match.taken < node.num_blocks:
            node = self._split(node, match.taken)
        above: Node | None = node
        while above is not None:
            if above.holders == 0:
                self.free -= above.num_blocks
                above.stamp = 0
            above.holders += 1
            above = above.parent
        return node

    def _split(self, node: Node, num_blocks: int) -> Node:
        """Split off the first `num_blocks` of a node as a new parent of the rest, which keeps its place in the
        queue.
        """
        parent = node.parent
        assert parent is not None
        head = Node(parent, node.key, num_blocks, node.holders, node.ready_ps)
        head.tier = node.tier
        parent.children[node.key] = head
        head.children[node.key] = node
        node.parent = head
        node.num_blocks -= num_blocks
        return head

    def register(self, node: Node, registered: int, path: Path, full: int, ready_ps: int = 0) -> tuple[Node, int, bool]:
        """Make a request's blocks from `registered` up to `full` findable, behind `node`, the last one it holds.

        With `ready_ps` they are being loaded until then. Returns the last node now held, how many blocks are
        registered, and whether a duplicate ended it.
        """
        for key, end in path:
            if end <= registered:
                continue
            if end > full:
                end = full
            if end <= registered:
                break
            if key in node.children:
                if not node.children[key].tier:
                    return node, registered, True
                node, registered = self._claim(node, registered, key, end, ready_ps)
                if registered == end:
                    continue
                if key in node.children:
                    return node, registered, True
            if node.key == key and node.holders == 1 and not node.children and not ready_ps:
                node.num_blocks += end - registered
            else:
                child = Node(node, key, end - registered, 1, ready_ps)
                node.children[key] = child
                node = child
            registered = end
        return node, registered, False

    def _claim(self, node: Node, registered: int, key: int, end: int, ready_ps: int) -> tuple[Node, int]:
        """Blocks up to `end` that lie in tiers behind `node` are a request's now, and in the tiers no more."""
        assert self.tiers is not None
        while registered < end:
            child = node.children.get(key)
            if child is None or not child.tier:
                break
            if child.num_blocks > end - registered:
                child = self._split(child, end - registered)
            self.tiers.leave(child)
            child.holders = 1
            child.ready_ps = ready_ps
            registered += child.num_blocks
            node = child
        return node, registered

    def release(self, node: Node, registered: int, held: int) -> None:
        """Give back a request's `held` blocks, of which the first `registered` are cached ones that end at `node`."""
        queue = self._queue
        private = held - registered
        if private > 0:
            self.free += private
            if queue and queue[-1][0] is None:
                queue[-1] = (None, queue[-1][1] + private)
            else:
                queue.append((None, private))
        while node.parent is not None:
            node.holders -= 1
            if node.holders == 0:
                self.free += node.num_blocks
                self._stamp += 1
                node.stamp = self._stamp
                queue.append((node, self._stamp))
            node = node.parent
        if len(queue) > 64 and len(queue) > 2 * self.num_blocks:
            self._compact()

    def _compact(self) -> None:
        """Drop the entries of nodes that have left the queue."""
        live = [entry for entry in self._queue if entry[0] is None or entry[0].stamp == entry[1]]
        self._queue = deque(live)


class ContentPaths:
    """Turns contents (pieces in tokens) into paths (keys and blocks) for one block size.

    A block lies in the piece that covers its last token. What distinguishes it from its siblings is every piece that
    begins after the end of the block before it, with the place where it begins.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size: Final = block_size
        self._keys: dict[tuple[int, ...], int] = {}

    def path(self, pieces: tuple[tuple[int, int], ...]) -> Path:
        """The path of the full blocks that lie in `pieces`."""
        path: Path = []
        position = 0
        done = 0
        begun: tuple[int, ...] = ()
        for content, tokens in pieces:
            begun = (*begun, content, position)
            position += tokens
            end = position // self._block_size
            if end > done:
                key = self._keys.setdefault(begun, len(self._keys))
                path.append((key, end))
                done = end
                begun = ()
        return path
