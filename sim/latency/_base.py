"""The interface between the engine and the physics: how long a step takes, and what surrounds a request."""

from __future__ import annotations

from dataclasses import dataclass

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class StepTime:
    """How long one engine step takes, in whole picoseconds. Subclass it to bring another latency model.

    A step's duration is an integer constant of its batch plus integers times the sums of contexts, so that a run of
    decode steps is an arithmetic series that the engine adds up exactly. `window` is the sliding window in tokens of
    the model's windowed layers (0: none); a windowed context counts min(context, window).
    """

    window: int = 0

    def decode(self, num_seqs: int) -> tuple[int, int, int]:
        """Of a step in which `num_seqs` sequences each decode one token: (ps, ps per context token, ps per windowed
        context token). A sequence's context includes the token being decoded."""
        raise NotImplementedError

    def floor(self, num_seqs: int) -> int:
        """What a step of `num_seqs` decodes takes at least, whatever the contexts, in ps: the host's time, say, which
        overlaps the GPU's."""
        return 0

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
        """Of a step with at least one prefill chunk, in ps.

        `prefill_pairs` sums, over chunks of q new tokens after p computed ones, the causal query-key pairs
        q p + q (q + 1) / 2; `prefill_window_pairs` the same with each query seeing at most `window` keys;
        `prefill_context` sums p + q; `num_sampled` counts the sequences that emit a token (decodes and prefills
        that end in this step).
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RequestOverhead:
    """What happens to a request outside the engine's steps, in picoseconds.

    A request that arrives (the client sends it) at time a is queued in the engine at
    a + before_queue_ps + before_queue_ps_per_token x prompt tokens (+ gateway_ps behind a gateway). The client sees
    its first token first_token_ps after the end of the step that made it, and its last token last_token_ps after.
    """

    before_queue_ps: int
    before_queue_ps_per_token: int
    first_token_ps: int
    last_token_ps: int
    gateway_ps: int = 0
