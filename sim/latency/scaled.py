"""Step times of a deployment, and the same off by a factor: what a latency model says where it errs."""

from __future__ import annotations

from dataclasses import fields, replace

from sim.deployment import Deployment
from sim.latency._base import StepTime
from sim.latency.coefficient_set import Coefficients
from sim.latency.step_time import PhysicalStepTime


class ScaledStepTime(StepTime):
    """Another latency model with every step `factor` times as long."""

    def __init__(self, base: StepTime, factor: float) -> None:
        self._base = base
        self._factor = factor
        self.window = base.window

    def decode(self, num_seqs: int) -> tuple[int, int, int]:
        constant, per_context, per_window_context = self._base.decode(num_seqs)
        factor = self._factor
        return round(constant * factor), round(per_context * factor), round(per_window_context * factor)

    def floor(self, num_seqs: int) -> int:
        return round(self._base.floor(num_seqs) * self._factor)

    def mixed(self, *batch: int) -> int:
        return round(self._base.mixed(*batch) * self._factor)


def build_step_time(deployment: Deployment, coefficients: Coefficients, greedy: bool = False) -> StepTime:
    """The step time of one replica of `deployment`; `InputError` if the model cannot be sharded that way.

    `greedy`: requests ask for temperature 0; otherwise they sample as the checkpoint's generation_config.json says.
    """
    base = PhysicalStepTime(deployment, coefficients, greedy)
    return base if coefficients.step_factor == 1.0 else ScaledStepTime(base, coefficients.step_factor)


def off_by(coefficients: Coefficients, step_factor: float, overhead_factor: float) -> Coefficients:
    """The same set with every step, and everything around a request, that many times as long."""
    request = coefficients.request
    scaled = {field.name: getattr(request, field.name) * overhead_factor for field in fields(request)}
    return replace(coefficients, request=type(request)(**scaled), step_factor=coefficients.step_factor * step_factor)
