"""What the time of engine steps went to: the terms of a `PhysicalStepTime`, by resource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum

from sim.latency.step_time import PS_PER_US, PhysicalStepTime, padded_tokens

WEIGHTS = "reading weights"
COMPUTE = "compute"
KV_READS = "reading the KV cache"
ALL_REDUCE = "all-reduce"
OVERHEAD = "launches, sampling and the host"
IDLE = "idle"
RESOURCES = (WEIGHTS, COMPUTE, KV_READS, ALL_REDUCE, OVERHEAD)
MIXED_COLUMNS = 10  # what `StepTime.mixed` is given, and what it gives


def step_parts(
    step_time: PhysicalStepTime, decode_steps: Mapping[int, Sequence[int]], mixed_steps: Sequence[int]
) -> dict[str, float]:
    """ps by resource of the steps that a replica made; they add up to the time that it was busy.

    `decode_steps` holds (steps, their time in ps) by number of decodes, `mixed_steps` the columns of each mixed step
    one behind the other.
    """
    found = [decode_parts(step_time, decodes, *counted) for decodes, counted in decode_steps.items()]
    for start in range(0, len(mixed_steps), MIXED_COLUMNS):
        *batch, total_ps = mixed_steps[start : start + MIXED_COLUMNS]
        found.append(mixed_parts(step_time, tuple(batch), total_ps))
    return {name: fsum(parts.get(name, 0.0) for parts in found) for name in RESOURCES}


def decode_parts(step_time: PhysicalStepTime, decodes: int, steps: int, total_ps: int) -> dict[str, float]:
    """ps by resource of `steps` steps of `decodes` decodes each that took `total_ps` together; they add up to it.

    What a step takes beyond its constant is the reading of contexts. Where the host is the slower one, its steps are
    as long as `PhysicalStepTime.floor`, and all the time is the host's.
    """
    constant, _, _ = step_time.decode(decodes)
    if total_ps <= steps * step_time.floor(decodes):
        return {OVERHEAD: float(total_ps)}
    parts = _forward_parts(step_time, padded_tokens(decodes, step_time._max_capture), decodes)
    known = fsum(parts.values())
    parts[OVERHEAD] = constant - known  # what the layers' kernels do not take of a step without contexts
    return {name: steps * ps for name, ps in parts.items()} | {KV_READS: float(total_ps - steps * constant)}


def mixed_parts(step_time: PhysicalStepTime, batch: tuple[int, ...], total_ps: int) -> dict[str, float]:
    """ps by resource of a step with prefill chunks; `batch` is what `StepTime.mixed` was given, the parts add up to
    `total_ps`, what it gave."""
    decodes, context, window_context, prefills, tokens, pairs, window_pairs, prefill_context, sampled = batch
    parts = _forward_parts(step_time, padded_tokens(decodes + tokens, step_time._max_capture), sampled)
    parts[COMPUTE] += pairs * step_time._full_pair_ps + tokens * step_time._ramp_ps
    kv_reads = context * step_time._mixed_context_ps + prefill_context * step_time._prefill_context_ps
    if step_time._windowed_layers:
        seen = min(prefill_context, prefills * step_time.window)
        parts[COMPUTE] += window_pairs * step_time._window_pair_ps
        kv_reads += seen * step_time._window_tile_ps + window_context * step_time._mixed_window_ps
    parts[KV_READS] = kv_reads
    parts[OVERHEAD] = total_ps - fsum(parts.values())
    return parts


def _forward_parts(step_time: PhysicalStepTime, tokens: int, rows: int) -> dict[str, float]:
    """ps of the matrices and all-reduces of a pass over `tokens` rows of which `rows` are sampled."""
    weights: list[float] = []
    compute: list[float] = []
    reduced = 0.0
    gemms = [(gemm, count, tokens) for gemm, count in step_time._gemms]
    for gemm, count, size in [*gemms, (step_time._lm_head, 1, rows)] if rows else gemms:
        memory, flops = gemm.weights_us + size * gemm.activations_us, size * gemm.compute_us
        _share(count, memory, flops, gemm.overlap_loss, weights, compute)
    experts = step_time._experts
    if experts is not None:
        _share(
            step_time._moe_layers,
            experts.memory_us(tokens),
            tokens * experts.token_us,
            experts.overlap_loss,
            weights,
            compute,
        )
    if step_time._all_reduce is not None:
        reduced = 2 * step_time._layers * step_time._all_reduce.us(tokens * step_time._hidden_bytes)
    parts: Mapping[str, float] = {WEIGHTS: fsum(weights), COMPUTE: fsum(compute), ALL_REDUCE: reduced}
    return {name: us * PS_PER_US for name, us in parts.items()}


def _share(count: int, memory: float, flops: float, loss: float, weights: list[float], compute: list[float]) -> None:
    """Of two times that overlap the longer one counts in full, and of the other what is not hidden."""
    weights.append(count * (memory if memory >= flops else loss * memory))
    compute.append(count * (flops if flops > memory else loss * flops))
