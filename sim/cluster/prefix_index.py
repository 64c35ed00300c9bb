"""What a router believes its replicas have cached: an approximate index of its own, or the engines' own caches."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from sim.cluster.plugins import make_plugin, must_be_positive, spec_of
from sim.cluster.policies import ReplicaViews, RequestView
from sim.engine.blocks import ContentPaths
from sim.engine.nodes import Path
from sim.errors import InputError
from sim.workload import Pieces

MIN_BLOCK_TOKENS = 64


class PrefixIndex:
    """Tells how much of a prompt each replica is believed to have cached."""

    def matches(self, request: RequestView, replicas: ReplicaViews) -> tuple[list[int], int]:
        """(tokens matched at each replica, tokens of the prompt that could match)."""
        raise NotImplementedError

    def routed(self, request: RequestView, replica: int) -> None:
        """The request goes to `replica`."""


@dataclass(slots=True)
class ApproximateIndex(PrefixIndex):
    """llm-d's approximate index: one LRU of `block_size_tokens` blocks a replica, updated when a request is routed.

    A replica's match counts each leading block that it holds up to the first that no replica holds; its own need not
    be contiguous. `auto_tune` sizes an LRU as the engine's number of (16-token) blocks, though an entry is a larger
    block: the router then believes in a cache about four times the real one. Else `lru_capacity_per_server` entries.
    `max_prefix_tokens_to_match` 0 is no limit.
    """

    block_size_tokens: int = MIN_BLOCK_TOKENS
    auto_tune: bool = True
    lru_capacity_per_server: int = 31250
    max_prefix_tokens_to_match: int = 0
    _believed: BelievedCaches | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        must_be_positive(self, "block_size_tokens", "lru_capacity_per_server")
        self.block_size_tokens = max(MIN_BLOCK_TOKENS, int(self.block_size_tokens))

    def matches(self, request: RequestView, replicas: ReplicaViews) -> tuple[list[int], int]:
        if self._believed is None:
            capacity = [r.num_blocks if self.auto_tune else int(self.lru_capacity_per_server) for r in replicas]
            self._believed = BelievedCaches(capacity, self.block_size_tokens, int(self.max_prefix_tokens_to_match))
        blocks, total = self._believed.matches(request.content, request.prompt_tokens)
        tokens = [0] * len(replicas)
        for replica, count in blocks.items():
            tokens[replica] = count * self.block_size_tokens
        return tokens, total * self.block_size_tokens

    def routed(self, request: RequestView, replica: int) -> None:
        assert self._believed is not None
        self._believed.touch(request.content, request.prompt_tokens, replica)


@dataclass(slots=True)
class PreciseIndex(PrefixIndex):
    """llm-d's precise index, fed by the engines' KV events: what their prefix caches really hold, at once."""

    def matches(self, request: RequestView, replicas: ReplicaViews) -> tuple[list[int], int]:
        total = request.prompt_tokens // replicas[0].block_size * replicas[0].block_size
        return replicas.cached_tokens(request), total


PREFIX_INDEXES: dict[str, type[PrefixIndex]] = {"approximate": ApproximateIndex, "precise": PreciseIndex}


def make_index(value: object, field: str) -> PrefixIndex:
    """The prefix index that a parameter names."""
    index = make_plugin("prefix index", PREFIX_INDEXES, PrefixIndex, spec_of(value, field), field)
    if not isinstance(index, PrefixIndex):  # pragma: no cover - make_plugin has seen to it
        raise InputError(field, "is no prefix index")
    return index


class _Node:
    """A run of blocks that ends `end` blocks into the prompts that go through it, and who was last sent it."""

    __slots__ = ("children", "end", "holders", "key", "parent")

    def __init__(self, parent: _Node | None, key: int, end: int, holders: dict[int, _Touch]) -> None:
        self.parent = parent
        self.key = key
        self.end = end
        self.holders = holders
        self.children: dict[int, _Node] = {}


class _Touch:
    """One routed prompt as entries of a replica's LRU: its blocks `first` to `end`; those before are elsewhere or gone.

    A prompt enters its blocks in order, so a later one with a common prefix takes blocks away from the front, and so
    does eviction: what is left is always a tail.
    """

    __slots__ = ("end", "first", "node")

    def __init__(self, end: int, root: _Node) -> None:
        self.first = 0
        self.end = end
        self.node = root


class BelievedCaches:
    """One LRU of blocks a replica over one tree of runs, so that a prompt costs by its runs and not by its blocks."""

    def __init__(self, capacities: list[int], block_tokens: int, max_tokens: int = 0) -> None:
        self._capacities = [max(1, capacity) for capacity in capacities]
        self._block_tokens = block_tokens
        self._max_blocks = max_tokens // block_tokens if max_tokens else 1 << 60
        self._paths = ContentPaths(block_tokens)
        self._path_of: dict[Pieces, Path] = {}
        self._root = _Node(None, -1, 0, {})
        self._order: list[OrderedDict[_Touch, None]] = [OrderedDict() for _ in capacities]
        self.entries = [0] * len(capacities)

    def _path(self, content: Pieces) -> Path:
        path = self._path_of.get(content)
        if path is None:
            path = self._path_of[content] = self._paths.path(content)
        return path

    def matches(self, content: Pieces, prompt_tokens: int) -> tuple[dict[int, int], int]:
        """({replica: blocks matched} of those with any, full blocks of the prompt)."""
        total = min(prompt_tokens // self._block_tokens, self._max_blocks)
        found: dict[int, int] = {}
        node, depth = self._root, 0
        for key, end in self._path(content):
            end = min(end, total)
            while depth < end:
                child = node.children.get(key)
                if child is None:
                    return found, total
                holders = child.holders
                for touch in holders.values():
                    if touch.first <= depth:
                        break
                else:
                    return found, total  # nobody holds its first block
                stop = min(child.end, end)
                for replica, touch in holders.items():
                    begin = touch.first if touch.first > depth else depth
                    if begin < stop:
                        found[replica] = found.get(replica, 0) + stop - begin
                depth, node = stop, child
                if stop < child.end:
                    return found, total
        return found, total

    def touch(self, content: Pieces, prompt_tokens: int, replica: int) -> None:
        """The prompt's blocks are now the most recent of `replica`."""
        total = min(prompt_tokens // self._block_tokens, self._max_blocks)
        if total == 0:
            return
        order = self._order[replica]
        touch = _Touch(total, self._root)
        node, depth, had = self._root, 0, 0
        for key, end in self._path(content):
            end = min(end, total)
            while depth < end:
                child = node.children.get(key)
                if child is None:
                    child = node.children[key] = _Node(node, key, end, {})
                elif child.end > end:
                    child = self._split(child, end)
                before = child.holders.get(replica)
                if before is not None and before.first < child.end:
                    had += child.end - max(before.first, depth)
                    before.first = child.end
                    if before.first == before.end:
                        del order[before]
                child.holders[replica] = touch
                depth, node = child.end, child
        touch.node = node
        order[touch] = None
        self.entries[replica] += total - had
        self._evict(replica)

    def _split(self, node: _Node, end: int) -> _Node:
        parent = node.parent
        assert parent is not None
        head = _Node(parent, node.key, end, dict(node.holders))
        parent.children[node.key] = head
        head.children[node.key] = node
        node.parent = head
        return head

    def _evict(self, replica: int) -> None:
        order = self._order[replica]
        excess = self.entries[replica] - self._capacities[replica]
        while excess > 0:
            oldest = next(iter(order))
            gone = min(excess, oldest.end - oldest.first)
            oldest.first += gone
            excess -= gone
            self.entries[replica] -= gone
            if oldest.first == oldest.end:
                del order[oldest]
                node: _Node | None = oldest.node
                while node is not None:
                    if node.holders.get(replica) is oldest:
                        del node.holders[replica]
                    node = node.parent
