"""What prompts share: keeping content private that one request alone has, and compressing block traces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.workload._types import IntColumn, Pieces


def intern_pieces(pieces: Sequence[Pieces]) -> tuple[list[Pieces], IntColumn]:
    """Distinct contents in order of first use behind the empty one, and each request's index into them."""
    index: dict[Pieces, int] = {(): 0}
    column = np.fromiter((index.setdefault(p, len(index)) for p in pieces), np.int64, len(pieces))
    return list(index), column


def keep_shared(contents: Sequence[Pieces], content: IntColumn) -> tuple[list[Pieces], IntColumn]:
    """The same requests with every leading token dropped that no second request has.

    Sharing between any two requests is unchanged; a piece that is cut is the last of its request.
    """
    uses = np.bincount(content, minlength=len(contents)).tolist()
    child: dict[tuple[int, int], int] = {}
    users, longest, second = [0], [0], [0]
    for pieces, count in zip(contents, uses, strict=True):
        node = 0
        for piece, tokens in pieces if count else ():
            node = child.setdefault((node, piece), len(users))
            if node == len(users):
                users.append(0)
                longest.append(0)
                second.append(0)
            users[node] += count
            at_most = tokens if count > 1 else min(tokens, longest[node])
            second[node] = max(second[node], at_most)
            longest[node] = max(longest[node], tokens)
    kept = []
    for pieces, count in zip(contents, uses, strict=True):
        node, shared = 0, []
        for piece, tokens in pieces if count else ():
            node = child[(node, piece)]
            if users[node] < 2:
                break
            if second[node] < tokens:
                if second[node]:
                    shared.append((piece, second[node]))
                break
            shared.append((piece, tokens))
        kept.append(tuple(shared))
    distinct, renumbered = intern_pieces(kept)
    return distinct, renumbered[content]


class BlockTrie:
    """Prompts given as ids of equal blocks, and the few pieces that say the same.

    Blocks that no second request has are dropped; of the rest, each run of blocks between two branchings becomes one
    piece. Add every request, then ask for the pieces.
    """

    __slots__ = ("_block_tokens", "_child", "_ends", "_lengths", "_parent", "_users")

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._child: dict[tuple[int, int], int] = {}
        self._parent = [-1]
        self._users = [0]
        self._ends: list[int] = []
        self._lengths: list[int] = []

    def add(self, block_ids: Sequence[int], prompt_tokens: int) -> None:
        """One request; ids past its last token are ignored, tokens past its last block are private."""
        node = 0
        for block in block_ids[: -(-prompt_tokens // self._block_tokens)]:
            parent, node = node, self._child.setdefault((node, block), len(self._users))
            if node == len(self._users):
                self._users.append(0)
                self._parent.append(parent)
            self._users[node] += 1
        self._ends.append(node)
        self._lengths.append(prompt_tokens)

    def contents(self) -> tuple[list[Pieces], IntColumn]:
        """Distinct contents, and each added request's index into them."""
        head, depth = self._chains()
        piece_id: dict[int, int] = {}
        paths: dict[int, Pieces] = {0: ()}
        result = []
        for end, length in zip(self._ends, self._lengths, strict=True):
            node = end
            while node and self._users[node] < 2:
                node = self._parent[node]
            path = self._path(node, head, depth, paths, piece_id)
            excess = depth[node] * self._block_tokens - length
            if excess > 0:
                last, tokens = path[-1]
                path = (*path[:-1], (last, tokens - excess))
            result.append(path)
        return keep_shared(*intern_pieces(result))

    def _chains(self) -> tuple[list[int], list[int]]:
        """For every shared block the first block of its run, and how many blocks deep it lies."""
        branches = [0] * len(self._users)
        for node in range(1, len(self._users)):
            if self._users[node] > 1:
                branches[self._parent[node]] += 1
        head, depth = [0] * len(self._users), [0] * len(self._users)
        for node in range(1, len(self._users)):
            parent = self._parent[node]
            depth[node] = depth[parent] + 1
            head[node] = head[parent] if parent and branches[parent] == 1 else node
        return head, depth

    def _path(
        self, node: int, head: list[int], depth: list[int], paths: dict[int, Pieces], piece_id: dict[int, int]
    ) -> Pieces:
        """Pieces from the root to `node`, whole blocks."""
        runs = []
        at = node
        while at not in paths:
            runs.append(at)
            at = self._parent[head[at]]
        path = paths[at]
        for last in reversed(runs):
            first = head[last]
            tokens = (depth[last] - depth[first] + 1) * self._block_tokens
            path = (*path, (piece_id.setdefault(first, len(piece_id) + 1), tokens))
            paths[last] = path
        return path
