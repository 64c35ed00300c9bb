"""Random small configurations of one replica, made to hit ties, full caches, duplicates and preemptions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from sim.latency._base import StepTime
from tests.oracle import OracleLink, OracleReplica, OracleRequest


class RandomStepTime(StepTime):
    """Non-negative integer coefficients; steps of equal batches may cost anything from nothing to much."""

    def __init__(self, random: Random) -> None:
        # With a coarse unit every time is a multiple of it, and arrivals tie with boundaries.
        self.unit_ps = random.choice((1, 1, 1000, 1000, 1000))
        largest = random.choice((1, 3, 20)) if self.unit_ps > 1 else random.choice((3, 1000, 1_000_000_000))
        self.window = random.choice((0, 0, random.randint(1, 64), random.randint(1, 400)))

        def coefficient(scale: int = largest) -> int:
            return self.unit_ps * random.choice((0, random.randint(0, max(1, scale)), random.randint(0, max(1, scale))))

        self.per_step = coefficient(10 * largest)
        self.per_seq = coefficient()
        self.padding = random.choice((1, 1, 2, 4))  # batches are padded to a multiple, as CUDA graphs do
        self.per_context = [coefficient(largest // 10) for _ in range(random.choice((1, 1, 3)))]
        self.per_window_context = [coefficient(largest // 10) for _ in range(random.choice((1, 1, 2)))]
        self.per_prefill = coefficient()
        self.per_prefill_token = coefficient()
        self.per_pair = coefficient(largest // 50)
        self.per_window_pair = coefficient(largest // 50)
        self.per_prefill_context = coefficient(largest // 20)
        self.per_sampled = coefficient()
        self.host = random.choice((0, 0, coefficient(60 * largest)))  # what a step takes at least
        self.host_per_seq = coefficient() if self.host else 0

    def decode(self, num_seqs: int) -> tuple[int, int, int]:
        padded = -(-num_seqs // self.padding) * self.padding
        return (
            self.per_step + padded * self.per_seq + num_seqs * self.per_sampled,
            self.per_context[num_seqs % len(self.per_context)],
            self.per_window_context[num_seqs % len(self.per_window_context)],
        )

    def floor(self, num_seqs: int) -> int:
        return self.host + num_seqs * self.host_per_seq

    def mixed(
        self,
        num_decodes: int,
        decode_context: int,
        decode_window_context: int,
        num_prefills: int,
        prefill_tokens: int,
        prefill_pairs: int,
        prefill_window_pairs: int,
        prefill_context: int,
        num_sampled: int,
    ) -> int:
        _, per_context, per_window_context = self.decode(num_decodes)
        return (
            self.per_step
            + num_decodes * self.per_seq
            + per_context * decode_context
            + per_window_context * decode_window_context
            + num_prefills * self.per_prefill
            + prefill_tokens * self.per_prefill_token
            + prefill_pairs * self.per_pair
            + prefill_window_pairs * self.per_window_pair
            + prefill_context * self.per_prefill_context
            + num_sampled * self.per_sampled
        )


@dataclass(frozen=True, slots=True)
class RequestShape:
    queue_ps: int
    prompt_tokens: int
    output_tokens: int
    priority: int
    pieces: tuple[tuple[int, int], ...]
    remote_tokens: int = 0
    link: int = 0  # over which they come

    def oracle_request(self, links: list[OracleLink]) -> OracleRequest:
        lengths = self.prompt_tokens, self.output_tokens
        request = OracleRequest(self.queue_ps, *lengths, self.priority, self.pieces)
        if self.remote_tokens:
            request.remote_tokens, request.link = self.remote_tokens, links[self.link]
        return request


@dataclass(frozen=True, slots=True)
class Case:
    """One replica's settings (keyword arguments of the replica), its step time, and its requests in queue order.

    `follows` names the request before in the session of each, -1 where there is none; whoever runs the case at a
    replica queues all of them at their times, a cluster can let them follow.
    """

    seed: int
    settings: dict[str, Any]
    step_time: StepTime
    requests: tuple[RequestShape, ...]
    follows: tuple[int, ...]
    links: tuple[tuple[int, int, int], ...] = ()  # bytes a second, bytes a token, latency in ps

    def oracle_requests(self) -> list[OracleRequest]:
        """Fresh requests for an oracle run; index i of the list is the request's index."""
        links = [OracleLink(*link) for link in self.links]
        return [r.oracle_request(links) for r in self.requests]


def random_case(seed: int, loads: bool = False) -> Case:
    """The case of this seed; the same on every platform. With `loads` parts of some prompts come over links."""
    random = Random(f"loads {seed}" if loads else seed)
    step_time = RandomStepTime(random)
    block_size = random.choice((1, 2, 3, 4, 5, 7, 8, 12, 16, 16, 16, 31, 32))
    long_decodes = random.random() < 0.12
    count = random.randint(1, 6) if long_decodes else random.choice((1, 2, 3, 5, 8, 12, 20, 30))
    lengths = _lengths(random, count, block_size, long_decodes)
    if loads and random.random() < 0.5:
        lengths = _documents(random, random.choice((8, 20, 40)), block_size)
    follows = _sessions(random, lengths) if random.random() < 0.4 else [-1] * len(lengths)
    settings = _settings(random, block_size, [prompt + output for prompt, output, _ in lengths])
    times = _queue_times(random, step_time, lengths, settings["max_num_seqs"])
    levels = random.choice((1, 2, 3, 10))
    requests = [
        RequestShape(queue_ps, prompt, output, random.randrange(levels), pieces)
        for queue_ps, (prompt, output, pieces) in zip(times, lengths, strict=True)
    ]
    links: tuple[tuple[int, int, int], ...] = ()
    if loads and random.random() < 0.7:
        settings["tiers"] = _tiers(random, step_time, settings)
    if loads and (not settings.get("tiers") or random.random() < 0.3):
        links = tuple(_link(random, step_time, settings) for _ in range(random.choice((1, 1, 2))))
        share = random.choice((0.2, 0.6, 1.0))
        requests = [_loaded(random, r, len(links)) if random.random() < share else r for r in requests]
    if random.random() < 0.2:
        requests = _at_boundaries(random, step_time, settings, requests, links)
    return Case(seed, settings, step_time, tuple(requests), tuple(follows), links)


def _tiers(
    random: Random, step_time: RandomStepTime, settings: dict[str, Any]
) -> tuple[tuple[int, tuple[int, int, int]], ...]:
    """Up to three tiers: (blocks, link)."""
    blocks = settings["num_blocks"]
    sizes = [random.choice((0, 1, 3, blocks // 2, blocks, 5 * blocks)) for _ in range(random.randint(1, 3))]
    return tuple((size, _link(random, step_time, settings)) for size in sizes)


def _link(random: Random, step_time: RandomStepTime, settings: dict[str, Any]) -> tuple[int, int, int]:
    """A link that moves a token in a share of a step; often in whole units of time."""
    constant, per_context, _ = step_time.decode(settings["max_num_seqs"])
    step_ps = constant + 10 * per_context + 1
    token_ps = max(1, round(step_ps * random.choice((0.001, 0.001, 0.01, 0.1, 0.5))))
    latency_ps = random.choice((0, 0, random.randint(0, 3 * step_ps)))
    if random.random() < 0.7:
        token_ps = token_ps // step_time.unit_ps * step_time.unit_ps or token_ps
        latency_ps -= latency_ps % step_time.unit_ps
    elif random.random() < 0.5:
        size = random.randint(1, 10**6)
        return size * 10**12 // token_ps + random.randint(0, 99), size, latency_ps  # of a token's time, about
    return 10**12, token_ps, latency_ps


def _loaded(random: Random, request: RequestShape, links: int) -> RequestShape:
    prompt = request.prompt_tokens
    tokens = random.choice((prompt, prompt, prompt - 1, random.randint(0, prompt), prompt + 5))
    return replace(request, remote_tokens=max(0, tokens), link=random.randrange(links))


def _lengths(
    random: Random, count: int, block_size: int, long_decodes: bool
) -> list[tuple[int, int, tuple[tuple[int, int], ...]]]:
    """(prompt tokens, output tokens, pieces) of each request."""
    longest_prompt = random.choice((1, 4, block_size, 2 * block_size, 40, 120))
    longest_output = random.choice((150, 400, 1500)) if long_decodes else random.choice((1, 2, 8, 20, 50))
    content_ids = random.choice((1, 2, 3))
    most_pieces = random.choice((0, 1, 2, 2, 4))
    piece_lengths = [
        random.choice((1, block_size, random.randint(1, 6 * block_size))) for _ in range(random.randint(1, 3))
    ]
    lengths = []
    for _ in range(count):
        pieces = tuple(
            (random.randrange(content_ids), random.choice(piece_lengths)) for _ in range(random.randint(0, most_pieces))
        )
        shared = sum(tokens for _, tokens in pieces)
        private = random.choice((0, 1, random.randint(0, longest_prompt), random.randint(0, longest_prompt)))
        if random.random() < 0.2:
            private += -(shared + private) % block_size  # a prompt of whole blocks
        prompt = max(1, shared + private)
        if random.random() < 0.2:
            prompt = random.randint(1, prompt)  # what is shared may go on into the answer, and beyond it
        output = 1 if random.random() < 0.1 else random.randint(1, longest_output)
        lengths.append((prompt, output, pieces))
    return lengths


def _sessions(random: Random, lengths: list[tuple[int, int, tuple[tuple[int, int], ...]]]) -> list[int]:
    """Makes some of the requests turns of sessions, whose prompts hold all that was said before; who follows whom."""
    follows = [-1] * len(lengths)
    last: list[int] = []  # of each session
    for index, (prompt, output, pieces) in enumerate(lengths):
        if not last or random.random() < 0.4:
            last.append(index)
            whole = sum(tokens for _, tokens in pieces)
            more = max(1, prompt - whole) + random.choice((output, 10_000))
            lengths[index] = (max(prompt, whole + 1), output, (*pieces, (100 + index, more)))
            continue
        session = random.randrange(len(last))
        before, last[session] = last[session], index
        follows[index] = before
        asked = random.choice((1, random.randint(1, 20)))
        lengths[index] = (lengths[before][0] + lengths[before][1] + asked, output, lengths[before][2])
    return follows


def _documents(random: Random, count: int, block_size: int) -> list[tuple[int, int, tuple[tuple[int, int], ...]]]:
    """Requests about a few documents that come again and again, some of which begin alike."""
    documents: list[tuple[tuple[int, int], ...]] = []
    for number in range(random.randint(2, 5)):
        begin = random.choice(documents)[:1] if documents and random.random() < 0.4 else ()
        documents.append((*begin, (number, random.randint(block_size, 8 * block_size))))
    lengths = []
    for _ in range(count):
        pieces = random.choice(documents)
        prompt = sum(tokens for _, tokens in pieces) + random.choice((0, 1, random.randint(0, 2 * block_size)))
        lengths.append((prompt, random.randint(1, random.choice((1, 5, 3 * block_size))), pieces))
    return lengths


def _settings(random: Random, block_size: int, totals: list[int]) -> dict[str, Any]:
    max_num_seqs = random.choice((1, 2, 3, 4, 8, 32))
    needs = sorted(-(-(total - 1) // block_size) for total in totals)
    at_least = needs[-1]
    if random.random() < 0.15:
        at_least = random.choice(needs)  # the larger ones are rejected
    spare = random.choice((0, 0, 1, 2, at_least // 2, at_least, sum(needs), 2 * sum(needs)))
    max_model_len = max(totals) if random.random() < 0.9 else random.randint(min(totals), max(totals))
    return {
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_seqs + random.choice((0, 1, 3, 10, 50, 500)),
        "max_model_len": max_model_len + random.choice((0, 0, 1000)),
        "block_size": block_size,
        "num_blocks": max(1, at_least + spare),
        "enable_prefix_caching": random.random() < 0.8,
        "async_scheduling": random.random() < 0.5,
        "long_prefill_token_threshold": random.choice((0, 0, 0, 1, 4, 16, 64)),
        "scheduling": random.choice(("fcfs", "fcfs", "priority", "sjf")),
        "preemption": random.choice(("fcfs", "priority")),
    }


def _queue_times(
    random: Random, step_time: RandomStepTime, lengths: list[tuple[int, int, Any]], max_num_seqs: int
) -> list[int]:
    """Ascending queue times: bursts, a busy replica, or one that falls idle; multiples of the unit, most of them."""
    constant, per_context, per_window_context = step_time.decode(max_num_seqs)
    tokens = sum(prompt + output for prompt, output, _ in lengths) // len(lengths)
    step_ps = constant + per_context * tokens + per_window_context * min(tokens, step_time.window) + 1
    gap_steps = random.choice((0, 1, 1, 2, 4, tokens, 5 * tokens))
    burst = random.choice((0.0, 0.0, 0.3, 0.8))
    now = random.choice((0, random.randint(0, 1000) * step_time.unit_ps))
    jitter = random.random() < 0.2
    times = []
    for _ in lengths:
        times.append(now)
        if gap_steps and random.random() >= burst:
            gap = random.randint(0, 2 * gap_steps * step_ps)
            now += gap if jitter else gap // step_time.unit_ps * step_time.unit_ps
    return times


def _at_boundaries(
    random: Random,
    step_time: StepTime,
    settings: dict[str, Any],
    requests: list[RequestShape],
    links: tuple[tuple[int, int, int], ...],
) -> list[RequestShape]:
    """The same requests, most of them queued exactly when a step of the run ends, some 1 ps to a side."""
    replica = OracleReplica(step_time, **settings)
    made = [OracleLink(*link) for link in links]
    most_steps = random.choice((1, 3, 30))
    tied: list[RequestShape] = []
    now = requests[0].queue_ps
    for index, request in enumerate(requests):
        shape = replace(request, queue_ps=now)
        tied.append(shape)
        replica.enqueue(index, shape.oracle_request(made))
        for _ in range(random.randint(0, most_steps)):
            boundary_ps = replica.next_boundary_ps()
            if boundary_ps is not None:
                now = boundary_ps
                replica.advance(now + 1)
        boundary_ps = replica.next_boundary_ps()
        if boundary_ps is not None:
            now = max(now, boundary_ps + random.choice((0, 0, 0, 0, -1, 1)))
            replica.advance(now)
    return tied
