"""The router's approximate prefix index: what it believes each replica has cached, from what it routed there."""

from __future__ import annotations

from sim.cluster.policies import RequestView
from sim.engine.blocks import BlockPool, ContentPaths, Path
from sim.workload import Pieces

BLOCK_TOKENS = 64


class PrefixIndex:
    """One LRU of 64-token blocks a replica.

    Its capacity counts entries: llm-d's `autoTune` sizes it as the engine's number of (16-token) blocks, so the router
    believes in a cache about four times the real one.
    """

    def __init__(self, capacities: list[int]) -> None:
        self._pools = [BlockPool(max(1, capacity)) for capacity in capacities]
        self._paths = ContentPaths(BLOCK_TOKENS)
        self._path_of: dict[Pieces, Path] = {}

    def _path(self, request: RequestView) -> Path:
        path = self._path_of.get(request.content)
        if path is None:
            path = self._path_of[request.content] = self._paths.path(request.content)
        return path

    def matches(self, request: RequestView) -> list[float]:
        """The share of the prompt's full blocks that each replica is believed to hold, 0 to 1."""
        total = request.prompt_tokens // BLOCK_TOKENS
        path = self._path(request)
        if total == 0 or not path:
            return [0.0] * len(self._pools)
        return [pool.match(path, total).num_blocks / total for pool in self._pools]

    def routed(self, request: RequestView, replica: int) -> None:
        """The request goes to `replica`: its blocks are now that replica's most recent."""
        pool = self._pools[replica]
        total = min(request.prompt_tokens // BLOCK_TOKENS, pool.num_blocks)
        path = self._path(request)
        match = pool.match(path, total)
        node = pool.hold(match) if match.num_blocks else pool.root
        pool.take(total - match.num_blocks)
        node, registered, _ = pool.register(node, match.num_blocks, path, total)
        pool.release(node, registered, total)
