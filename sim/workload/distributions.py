"""Distributions of token lengths: what a spec may say, and how each one is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_serializer, model_validator

from sim.errors import InputError
from sim.workload._types import IntColumn
from sim.workload._validation import (
    LONGEST_TOKENS,
    TAG,
    LogTokens,
    MeanTokens,
    NonNegative,
    Positive,
    SdLogTokens,
    SdTokens,
    StrictModel,
    Tokens,
    one_of,
)

Draws = npt.NDArray[np.float64]


class _Clipped(StrictModel):
    """Lengths are rounded to whole tokens, then clipped to [min, max] (as inference-perf and BLIS do)."""

    min: Tokens | None = None
    max: Annotated[Tokens, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> _Clipped:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise InputError("max", f"must be at least min ({self.min}), got {self.max}")
        return self

    def draw(self, rng: np.random.Generator, n: int) -> Draws:
        """`n` lengths in tokens, before rounding and clipping."""
        raise NotImplementedError


class Constant(StrictModel):
    """Always `value`; a plain number in a spec means this."""

    dist: Literal["constant"] = "constant"
    value: Tokens

    @model_serializer
    def _as_a_plain_number(self) -> int:
        return self.value


class NormalDraws(StrictModel):
    """Normal draws, of lengths or of seconds."""

    mean: MeanTokens
    sd: SdTokens

    def draw(self, rng: np.random.Generator, n: int) -> Draws:
        """`n` values, before any clipping."""
        return self.mean + self.sd * rng.standard_normal(n)


class LogNormalDraws(StrictModel):
    """Lognormal draws, by `mean` and `sd` of the values themselves, or by `mu` and `sigma` of their logarithm."""

    mean: MeanTokens | None = None
    sd: SdTokens | None = None
    mu: LogTokens | None = None
    sigma: SdLogTokens | None = None

    @model_validator(mode="after")
    def _one_parameterisation(self) -> LogNormalDraws:
        given = {name for name in ("mean", "sd", "mu", "sigma") if getattr(self, name) is not None}
        if given not in ({"mean", "sd"}, {"mu", "sigma"}):
            raise InputError("", "lognormal needs mean and sd, or mu and sigma")
        return self

    def draw(self, rng: np.random.Generator, n: int) -> Draws:
        """`n` values, before any clipping."""
        if self.mean is not None and self.sd is not None:
            variance = math.log1p((self.sd / self.mean) ** 2)
            mu, sigma = math.log(self.mean) - variance / 2, math.sqrt(variance)
        else:
            assert self.mu is not None
            assert self.sigma is not None
            mu, sigma = self.mu, self.sigma
        return _exp(mu + sigma * rng.standard_normal(n))


class ExponentialDraws(StrictModel):
    """Exponential draws of the given mean, of lengths or of seconds."""

    mean: MeanTokens

    def draw(self, rng: np.random.Generator, n: int) -> Draws:
        """`n` values, before any clipping."""
        return self.mean * rng.standard_exponential(n)


class Normal(NormalDraws, _Clipped):
    """A normal with its tails clipped, so that the mean of the lengths is near `mean` where clipping is rare."""

    dist: Literal["normal"] = "normal"


class LogNormal(LogNormalDraws, _Clipped):
    """By `mean` and `sd` of the lengths themselves, or by `mu` and `sigma` of their logarithm."""

    dist: Literal["lognormal"] = "lognormal"


class Exponential(ExponentialDraws, _Clipped):
    """With the given mean."""

    dist: Literal["exponential"] = "exponential"


class Uniform(StrictModel):
    """Whole numbers from `min` to `max`, both included."""

    dist: Literal["uniform"] = "uniform"
    min: Tokens
    max: Annotated[Tokens, Field(ge=1)]

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.min > self.max:
            raise InputError("max", f"must be at least min ({self.min}), got {self.max}")
        return self


class ParetoLogNormal(_Clipped):
    """A Pareto tail (shape `alpha`, least value `xm`) with probability `pareto_weight`, else lognormal(mu, sigma).

    The mixture that ServeGen (arXiv 2505.09999) fits to production prompt lengths.
    """

    dist: Literal["pareto-lognormal"] = "pareto-lognormal"
    alpha: Positive
    xm: Positive
    mu: LogTokens
    sigma: SdLogTokens
    pareto_weight: Annotated[float, Field(ge=0, le=1)]

    def draw(self, rng: np.random.Generator, n: int) -> Draws:
        from_pareto = rng.random(n) < self.pareto_weight
        pareto = _exp(math.log(self.xm) + rng.standard_exponential(n) / self.alpha)
        lognormal = _exp(self.mu + self.sigma * rng.standard_normal(n))
        return np.where(from_pareto, pareto, lognormal)


def _histogram(raw: Any) -> Any:
    # JSON has text keys where YAML has whole numbers.
    if not isinstance(raw, Mapping):
        return raw
    bins: dict[int, Any] = {}
    for key, weight in raw.items():
        try:
            bins[int(key)] = weight
        except (TypeError, ValueError):
            raise InputError(str(key), "histogram keys are lengths in whole tokens") from None
    return bins


class Empirical(_Clipped):
    """A histogram: length in tokens -> weight. Weights need not add up to 1."""

    dist: Literal["empirical"] = "empirical"
    histogram: Annotated[dict[Tokens, NonNegative], BeforeValidator(_histogram)]

    @model_validator(mode="after")
    def _has_weight(self) -> Empirical:
        if not sum(self.histogram.values()) > 0:
            raise InputError("histogram", "needs at least one length with a weight greater than 0")
        return self

    def draw(self, rng: np.random.Generator, n: int) -> Draws:
        lengths = sorted(self.histogram)
        cumulative = np.cumsum([self.histogram[length] for length in lengths])
        values = np.asarray(lengths, np.float64)
        picks = np.searchsorted(cumulative, rng.random(n) * cumulative[-1], side="right")
        drawn: Draws = values[np.minimum(picks, len(values) - 1)]
        return drawn


_KINDS = ("constant", "normal", "lognormal", "exponential", "uniform", "pareto-lognormal", "empirical")


def with_dist(raw: Any, kinds: Sequence[str], unit: str) -> Any:
    """What a spec gives for a distribution, a plain number as the constant that it means. Raises InputError for what is
    neither that nor a mapping of one of these kinds."""
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return {"dist": "constant", "value": raw}
    if isinstance(raw, Mapping):
        if "dist" not in raw:
            raise InputError("dist", f"is required: one of {', '.join(kinds)}")
        if raw["dist"] not in kinds:
            raise InputError("dist", one_of(raw["dist"], kinds))
    elif not isinstance(raw, StrictModel):
        raise InputError("", f"must be a number of {unit} or a mapping with dist, got {raw!r}")
    return raw


def dist_tag(raw: Any) -> str:
    """The tag, in a union of distributions, of what `with_dist` let pass."""
    return TAG + str(raw["dist"] if isinstance(raw, Mapping) else raw.dist)


Distribution = Annotated[
    Annotated[Constant, Tag(TAG + "constant")]
    | Annotated[Normal, Tag(TAG + "normal")]
    | Annotated[LogNormal, Tag(TAG + "lognormal")]
    | Annotated[Exponential, Tag(TAG + "exponential")]
    | Annotated[Uniform, Tag(TAG + "uniform")]
    | Annotated[ParetoLogNormal, Tag(TAG + "pareto-lognormal")]
    | Annotated[Empirical, Tag(TAG + "empirical")],
    Discriminator(dist_tag),
    BeforeValidator(lambda raw: with_dist(raw, _KINDS, "tokens")),
]
"""A distribution of lengths in a spec: a plain number, or a mapping with `dist`."""


def _not_zero(dist: AnyDistribution) -> AnyDistribution:
    if isinstance(dist, Constant) and dist.value < 1:
        raise InputError("", "must be at least 1 token, got 0")
    return dist


NonZeroDistribution = Annotated[Distribution, AfterValidator(_not_zero)]
"""A distribution of lengths that are 1 or more: smaller draws become 1, a plain 0 is refused."""

AnyDistribution = Constant | Normal | LogNormal | Exponential | Uniform | ParetoLogNormal | Empirical


def _exp(values: Draws) -> Draws:
    return np.asarray(np.exp(np.minimum(values, math.log(LONGEST_TOKENS))), np.float64)


def sample_lengths(dist: AnyDistribution, rng: np.random.Generator, n: int, at_least: int = 1) -> IntColumn:
    """`n` lengths in whole tokens, int64, none below `at_least`."""
    if isinstance(dist, Constant):
        return np.full(n, max(dist.value, at_least), np.int64)
    if isinstance(dist, Uniform):
        return np.maximum(rng.integers(dist.min, dist.max, n, dtype=np.int64, endpoint=True), at_least)
    low = max(at_least, dist.min if dist.min is not None else 0)
    high = max(low, dist.max if dist.max is not None else LONGEST_TOKENS)
    return np.rint(np.clip(dist.draw(rng, n), low, high)).astype(np.int64)
