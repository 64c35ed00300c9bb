"""Distributions of think times, in seconds: what a spec may say, and how each one is drawn."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Discriminator, Field, Tag, model_serializer, model_validator

from sim.errors import InputError
from sim.workload._types import NS_PER_S, PS_PER_NS, IntColumn
from sim.workload._validation import MAX_SECONDS, TAG, Seconds, StrictModel
from sim.workload.distributions import Draws, ExponentialDraws, LogNormalDraws, NormalDraws, dist_tag, with_dist


class ConstantSeconds(StrictModel):
    """Always `value`; a plain number in a spec means this."""

    dist: Literal["constant"] = "constant"
    value: Seconds

    @model_serializer
    def _as_a_plain_number(self) -> float:
        return self.value


class _ClippedSeconds(StrictModel):
    """Draws are clipped to [min, max]."""

    min: Seconds = 0.0
    max: Seconds = float(MAX_SECONDS)

    @model_validator(mode="after")
    def _ordered(self) -> _ClippedSeconds:
        if self.min > self.max:
            raise InputError("max", f"must be at least min ({self.min:g}), got {self.max:g}")
        return self


class NormalSeconds(NormalDraws, _ClippedSeconds):
    """A normal with its tails clipped."""

    dist: Literal["normal"] = "normal"


class LogNormalSeconds(LogNormalDraws, _ClippedSeconds):
    """By `mean` and `sd` of the times themselves, or by `mu` and `sigma` of their logarithm."""

    dist: Literal["lognormal"] = "lognormal"


class ExponentialSeconds(ExponentialDraws, _ClippedSeconds):
    """With the given mean."""

    dist: Literal["exponential"] = "exponential"


class UniformSeconds(_ClippedSeconds):
    """Anything between `min` and `max`."""

    dist: Literal["uniform"] = "uniform"
    max: Annotated[float, Field(gt=0, le=MAX_SECONDS)]

    def draw(self, rng: np.random.Generator, n: int) -> Draws:
        """`n` times in seconds."""
        return rng.uniform(self.min, self.max, n)


_KINDS = ("constant", "normal", "lognormal", "exponential", "uniform")


AnySeconds = ConstantSeconds | NormalSeconds | LogNormalSeconds | ExponentialSeconds | UniformSeconds

SecondsDistribution = Annotated[
    Annotated[ConstantSeconds, Tag(TAG + "constant")]
    | Annotated[NormalSeconds, Tag(TAG + "normal")]
    | Annotated[LogNormalSeconds, Tag(TAG + "lognormal")]
    | Annotated[ExponentialSeconds, Tag(TAG + "exponential")]
    | Annotated[UniformSeconds, Tag(TAG + "uniform")],
    Discriminator(dist_tag),
    BeforeValidator(lambda raw: with_dist(raw, _KINDS, "seconds")),
]
"""A distribution of times in a spec: a plain number of seconds, or a mapping with `dist`."""


def sample_ps(dist: AnySeconds, rng: np.random.Generator, n: int) -> IntColumn:
    """`n` times of whole nanoseconds, in picoseconds, int64."""
    if isinstance(dist, ConstantSeconds):
        return np.full(n, round(dist.value * NS_PER_S) * PS_PER_NS, np.int64)
    seconds = np.clip(dist.draw(rng, n), dist.min, dist.max)
    return np.rint(seconds * NS_PER_S).astype(np.int64) * PS_PER_NS
