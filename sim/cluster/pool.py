"""Replicas that serve alike, on one clock, and what the gateway counts and scrapes of them."""

from __future__ import annotations

import heapq
from functools import partial

from sim.cluster.policies import ReplicaView, ReplicaViews
from sim.engine.link import Link
from sim.engine.replica import NEVER, Replica


class Pool:
    """The replicas of one pool, by their position in it, and their views for the gateway's policies.

    Over `links`, one a replica, comes the KV cache of prompts that were computed in another pool.
    """

    def __init__(self, replicas: list[Replica], block_size: int, links: list[Link] | None = None) -> None:
        self.replicas = replicas
        self._links: list[Link] = links or []
        self.views = ReplicaViews(
            [
                ReplicaView(
                    num_blocks=replica.pool.num_blocks,
                    block_size=block_size,
                    look_up=partial(self._cached_tokens, number),
                )
                for number, replica in enumerate(replicas)
            ]
        )
        self.views.look_up_all = self._cached_everywhere
        self._block_size = block_size
        self._routed_tokens = [0] * len(replicas)
        self._completed = [0] * len(replicas)
        # (queue time, request, replica, tokens of its prompt that were computed elsewhere)
        self._on_the_way: list[tuple[int, int, int, int]] = []
        self._due_ps = [NEVER] * len(replicas)  # when each replica needs attention
        self._due: list[tuple[int, int]] = []  # a heap of (due time, replica); outdated where it is not in _due_ps

    def count_routed(self, number: int, tokens: int) -> None:
        """A request of that many prompt tokens was routed to a replica."""
        view = self.views[number]
        view.routed += 1
        view.unseen += 1
        view.in_flight += 1
        view.in_flight_tokens += tokens
        self._routed_tokens[number] += tokens

    def send(self, index: int, number: int, queue_ps: int, remote_tokens: int = 0) -> None:
        """A request will be queued at a replica; the KV cache of that many tokens of its prompt lies elsewhere."""
        heapq.heappush(self._on_the_way, (queue_ps, index, number, remote_tokens))

    def advance(self, until_ps: int) -> None:
        """Queue what is due and handle every boundary, strictly before `until_ps`."""
        on_the_way, due = self._on_the_way, self._due
        while on_the_way and on_the_way[0][0] < until_ps:
            queue_ps, index, chosen, remote_tokens = heapq.heappop(on_the_way)
            replica = self.replicas[chosen]
            replica.advance(queue_ps)
            if remote_tokens:
                replica.enqueue_remote(index, queue_ps, remote_tokens, self._links[chosen])
            else:
                replica.enqueue(index, queue_ps)
            self._note(chosen)
        while due and due[0][0] < until_ps:
            due_ps, number = heapq.heappop(due)
            if due_ps == self._due_ps[number]:
                self._due_ps[number] = NEVER
                self.replicas[number].advance(until_ps)
                self._note(number)

    def let_go(self, index: int, number: int, at_ps: int) -> None:
        """The blocks that a replica kept of a request which has left are free."""
        self.replicas[number].let_go(index, at_ps)
        self._note(number)

    def starved(self) -> bool:
        """Whether a replica has requests that wait for blocks which are kept."""
        return any(replica.starved for replica in self.replicas)

    def next_due_ps(self) -> int:
        """When the next request is queued in an engine, or an engine needs attention."""
        due = self._due
        while due and due[0][0] != self._due_ps[due[0][1]]:
            heapq.heappop(due)
        queue_ps = self._on_the_way[0][0] if self._on_the_way else NEVER
        return min(queue_ps, due[0][0]) if due else queue_ps

    def scrape(self, now: int) -> None:
        """What the router knows of the replicas is now what they are."""
        views = self.views
        views.scraped_ps = now
        views.scrapes += 1
        for view, replica in zip(views, self.replicas, strict=True):
            view.waiting = replica.num_waiting
            view.running = replica.num_running
            view.kv_usage = replica.used_blocks(now) / replica.pool.num_blocks
            view.unseen = view.routed - replica.stats.requests

    def _note(self, number: int) -> None:
        """A replica has moved: when it is due next, and what the router's own counts are."""
        replica = self.replicas[number]
        due_ps = replica.due_ps
        if due_ps != self._due_ps[number]:
            self._due_ps[number] = due_ps
            if due_ps != NEVER:
                heapq.heappush(self._due, (due_ps, number))
        completed = replica.stats.completed
        if completed != self._completed[number]:
            self._completed[number] = completed
            view = self.views[number]
            view.in_flight = view.routed - completed
            view.in_flight_tokens = self._routed_tokens[number] - replica.stats.completed_prompt_tokens

    def _cached_tokens(self, number: int, index: int) -> int:
        """Leading tokens of a request's prompt that a replica's prefix cache holds now."""
        replica = self.replicas[number]
        next_ps = replica.next_ps
        cached = replica.cached_blocks(index, self.views.now_ps) * self._block_size
        if replica.next_ps != next_ps:
            self._note(number)  # the look has cut a run of steps
        return cached

    def _cached_everywhere(self, index: int) -> list[int]:
        """`_cached_tokens` of every replica, for a request that none of them has seen."""
        now, size, replicas = self.views.now_ps, self._block_size, self.replicas
        path, limit = replicas[0].content_path(index), replicas[0].cacheable_blocks(index)
        if not path:
            return [0] * len(replicas)
        tokens: list[int] = []
        for number, replica in enumerate(replicas):
            next_ps = replica.next_ps
            tokens.append(replica.cached_of(path, limit, now) * size)
            if replica.next_ps != next_ps:
                self._note(number)
        return tokens
