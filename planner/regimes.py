"""How far measurements lie from predictions, by regime: the table behind every plan's interval.

A regime is a GPU, a kind of weights, a kind of model and a kind of load. `planner fidelity ... --regimes FILE` makes
the table from measured runs; the shipped one is planner/validated_regimes.yaml.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

if TYPE_CHECKING:
    from planner.fidelity import Comparison

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
ENOUGH = 60  # measurements that make 5% quantiles mean something
METRICS = ("ttft_mean", "ttft_p99", "tpot_mean", "e2e_mean", "output_tokens_per_s")
KEYS = ("gpu", "weights", "kind", "load")


@dataclass(frozen=True, slots=True)
class Regime:
    """What a plan or a measured run is like. A None stands for any."""

    gpu: str | None
    weights: str | None  # 16-bit | 8-bit | 4-bit
    kind: str | None  # dense | mixture
    load: str | None  # open loop | closed loop

    def wider(self) -> list[Regime]:
        """This regime, then ever wider ones: first any GPU, then any weights, any kind, any load."""
        return [
            self,
            Regime(None, self.weights, self.kind, self.load),
            Regime(None, None, self.kind, self.load),
            Regime(None, None, None, self.load),
            Regime(None, None, None, None),
        ]

    def __str__(self) -> str:
        return ", ".join(value for value in (self.gpu, self.weights, self.kind, self.load) if value) or "all"


@dataclass(frozen=True, slots=True)
class Residuals:
    """Quantiles (`LEVELS`) of measured over predicted, of `runs` runs of a regime."""

    regime: Regime
    runs: int
    ratios: tuple[float, ...]

    def at(self, level: float) -> float:
        """The ratio at a quantile between 0 and 1, linear between the kept ones, the outermost beyond them."""
        return float(np.interp(level, LEVELS, self.ratios))


Table = Mapping[tuple[Regime, str], Residuals]


def weights_of(precision: str) -> str:
    """The kind of weights: 16-bit, 8-bit or 4-bit."""
    name = precision.lower()
    if any(mark in name for mark in ("fp4", "int4", "w4", "awq", "gptq", "bnb")):
        return "4-bit"
    return "8-bit" if "8" in name else "16-bit"


def regime_of(row: Comparison) -> Regime:
    """The regime of a measured run; a replay is an open loop."""
    load = "closed loop" if row.regime == "closed loop" else "open loop"
    return Regime(row.gpu, weights_of(row.precision), "mixture" if row.mixture else "dense", load)


def quantiles(ratios: Sequence[float]) -> tuple[float, ...]:
    """The `LEVELS` of a sample, each outward to the next order statistic, so that few measurements make it wider."""
    ordered = sorted(ratios)
    n = len(ordered)
    found = []
    for level in LEVELS:
        rank = level * (n + 1)
        position = math.floor(rank) if level < 0.5 else math.ceil(rank) if level > 0.5 else round(rank)
        found.append(ordered[min(n, max(1, position)) - 1])
    return tuple(found)


def build_table(rows: Iterable[Comparison]) -> dict[tuple[Regime, str], Residuals]:
    """Residuals of every regime that has `ENOUGH` runs, and of all together."""
    samples: dict[tuple[Regime, str], list[float]] = {}
    for row in rows:
        if row.metric in METRICS and row.predicted > 0 and row.measured > 0:
            for regime in regime_of(row).wider():
                samples.setdefault((regime, row.metric), []).append(row.measured / row.predicted)
    return {
        key: Residuals(key[0], len(ratios), quantiles(ratios))
        for key, ratios in samples.items()
        if len(ratios) >= ENOUGH or key[0] == Regime(None, None, None, None)
    }


def nearest(table: Table, regime: Regime, metric: str) -> Residuals | None:
    """The residuals of the narrowest regime around `regime` that has enough measurements."""
    for candidate in regime.wider():
        found = table.get((candidate, metric))
        if found is not None:
            return found
    return None


def coverage(rows: Sequence[Comparison]) -> dict[str, tuple[int, int]]:
    """{metric: (rows inside their 90% interval, rows)}, each judged by a table made without its source and model."""
    found: dict[str, tuple[int, int]] = {}
    groups = sorted({(row.source, row.model) for row in rows})
    for group in groups:
        table = build_table(row for row in rows if (row.source, row.model) != group)
        for row in rows:
            if (row.source, row.model) != group or row.metric not in METRICS:
                continue
            residuals = nearest(table, regime_of(row), row.metric)
            if residuals is None:
                continue
            ratio = row.measured / row.predicted
            inside, total = found.get(row.metric, (0, 0))
            found[row.metric] = (inside + (residuals.ratios[0] <= ratio <= residuals.ratios[-1]), total + 1)
    return found


def dump_table(rows: Sequence[Comparison], coefficients: str, files: Sequence[str]) -> str:
    """The table of `rows` as YAML, with where it comes from and how well it covers runs that it has not seen."""
    table = build_table(rows)
    document: dict[str, Any] = {
        "provenance": {
            "what": "quantiles of measured / predicted",
            "files": list(files),
            "coefficients": coefficients,
            "runs": len({row.id for row in rows}),
            "coverage_of_90_percent_intervals": {
                metric: round(inside / total, 3) for metric, (inside, total) in sorted(coverage(rows).items())
            },
        },
        "levels": list(LEVELS),
        "gpus": sorted({row.gpu for row in rows}),
        "regimes": [
            {key: getattr(residuals.regime, key) for key in KEYS}
            | {"metric": metric, "runs": residuals.runs, "ratios": [round(ratio, 4) for ratio in residuals.ratios]}
            for (_, metric), residuals in sorted(table.items(), key=lambda item: (str(item[0][0]), item[0][1]))
        ],
    }
    return yaml.safe_dump(document, sort_keys=False, width=120, default_flow_style=None)


@cache
def shipped_table() -> tuple[Table, frozenset[str]]:
    """The shipped table, and the GPUs that it has measurements of."""
    text = resources.files("planner").joinpath("validated_regimes.yaml").read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    table: dict[tuple[Regime, str], Residuals] = {}
    for entry in document["regimes"]:
        regime = Regime(*(entry[key] for key in KEYS))
        table[regime, entry["metric"]] = Residuals(regime, entry["runs"], tuple(entry["ratios"]))
    return table, frozenset(document["gpus"])
