"""How long one kernel takes, in microseconds: physics of the datasheet times an efficiency of at most one.

Only + - * / and comparisons are used, which IEEE 754 rounds alike everywhere, so that a step takes the same
picoseconds on every platform.
"""

from __future__ import annotations

from sim.latency.coefficient_set import AllReduceCoefficients, GemmCoefficients


def overlapped(first: float, second: float, loss: float) -> float:
    """Two times that overlap: the larger one, and `loss` (0: perfectly, 1: not at all) of the smaller one."""
    return first + loss * second if first > second else second + loss * first


class GemmTime:
    """Time of `tokens` x k times k x n, for the weights of one matrix on one GPU."""

    def __init__(
        self,
        n: int,
        k: int,
        weight_bytes: float,
        flops_per_s: float,
        bytes_per_s: float,
        coefficients: GemmCoefficients,
    ) -> None:
        effective = bytes_per_s * coefficients.bandwidth / 1e6
        self.launch_us: float = coefficients.launch_us
        self.overlap_loss: float = coefficients.overlap_loss
        self.host_us: float = coefficients.host_us
        self.weights_us: float = weight_bytes / effective
        self.activations_us: float = coefficients.activation_passes * 2.0 * (n + k) / effective
        self.compute_us: float = 2.0 * n * k / (flops_per_s * coefficients.compute / 1e6)

    def us(self, tokens: int) -> float:
        """Of `tokens` rows, at least 1."""
        memory = self.weights_us + tokens * self.activations_us
        return self.launch_us + overlapped(memory, tokens * self.compute_us, self.overlap_loss)


def experts_touched(num_experts: int, experts_per_token: int, tokens: int) -> float:
    """Expected number of distinct experts that `tokens` tokens choose: E (1 - (1 - k/E)^tokens)."""
    missed, base, exponent = 1.0, 1.0 - experts_per_token / num_experts, tokens
    while exponent:  # by squaring: pow() may differ between C libraries
        if exponent & 1:
            missed *= base
        base *= base
        exponent >>= 1
    return num_experts * (1.0 - missed)


class GroupedGemmTime:
    """Time of one mixture layer's routed experts on one GPU: the experts that are touched read their weights."""

    def __init__(
        self,
        num_experts: int,
        experts_per_token: int,
        weights_per_expert: int,
        bytes_per_weight: float,
        activation_bytes_per_token: float,
        flops_per_s: float,
        bytes_per_s: float,
        coefficients: GemmCoefficients,
    ) -> None:
        effective = bytes_per_s * coefficients.bandwidth / 1e6
        self.num_experts: int = num_experts
        self.experts_per_token: int = experts_per_token
        self.launch_us: float = coefficients.launch_us
        self.overlap_loss: float = coefficients.overlap_loss
        self.host_us: float = coefficients.host_us
        self.expert_us: float = weights_per_expert * bytes_per_weight / effective
        self.activations_us: float = coefficients.activation_passes * activation_bytes_per_token / effective
        flops = 2.0 * experts_per_token * weights_per_expert
        self.token_us: float = flops / (flops_per_s * coefficients.compute / 1e6)

    def us(self, tokens: int) -> float:
        """Of `tokens` tokens, at least 1."""
        return self.launch_us + overlapped(self.memory_us(tokens), tokens * self.token_us, self.overlap_loss)

    def memory_us(self, tokens: int) -> float:
        """Of what is read and written: the weights of the experts touched, and the activations."""
        touched = experts_touched(self.num_experts, self.experts_per_token, tokens)
        return touched * self.expert_us + tokens * self.activations_us


def one_shot_limit_bytes(gpus: int) -> int:
    """The largest payload that vLLM's all-reduce among `gpus` GPUs sends in one shot: 512 KiB among up to 4, 256 KiB
    among 8 (csrc/custom_all_reduce.cuh)."""
    return 524288 if gpus <= 4 else 262144


class AllReduceTime:
    """Time of one all-reduce: one-shot for small payloads (`one_shot_limit_bytes`), two-shot or NCCL above."""

    def __init__(self, gpus: int, link_bytes_per_s: float, coefficients: AllReduceCoefficients) -> None:
        link = link_bytes_per_s / 1e6
        self.threshold: int = one_shot_limit_bytes(gpus)
        self.one_shot_us: float = coefficients.one_shot_us
        self.one_shot_us_per_byte: float = (gpus - 1) / (link * coefficients.one_shot_bandwidth)
        self.two_shot_us: float = coefficients.two_shot_us
        self.two_shot_us_per_byte: float = 2.0 * (gpus - 1) / gpus / (link * coefficients.two_shot_bandwidth)

    def us(self, payload_bytes: int) -> float:
        """Of `payload_bytes` on every GPU. Never falls as the payload grows."""
        one_shot = self.one_shot_us + min(payload_bytes, self.threshold) * self.one_shot_us_per_byte
        if payload_bytes <= self.threshold:
            return one_shot
        return max(one_shot, self.two_shot_us + payload_bytes * self.two_shot_us_per_byte)
