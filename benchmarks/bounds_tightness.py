"""How near the bounds are to what is simulated, by metric: bound / simulated over candidates of the example spaces.

    python benchmarks/bounds_tightness.py [--candidates N] [--requests N]

Printed, for each metric that is bounded: the number of candidates, and the 10%, 50% and 90% quantile of bound /
simulated (throughputs: simulated / bound). 1 is exact, a bound is never beyond; only plans that are not overloaded
count, as what an overload waits is without limit.
"""

from __future__ import annotations

import argparse
import math
import random
from pathlib import Path

import numpy as np

from planner.bounds import Bounds
from planner.evaluate import make_evaluator
from planner.search._base import Choice
from planner.space import Space, load_space

SPACES = Path(__file__).parents[1] / "search_spaces"
NAMES = ("llama2_70b_h100_codegen", "qwen3_14b_chat_routing", "qwen3_30b_moe_gpus", "quickstart")
SHOWN = ("ttft_mean_ms", "ttft_p90_ms", "ttft_p99_ms", "tpot_mean_ms", "e2e_mean_ms", "output_tokens_per_s")


def draws(space: Space, count: int) -> list[Choice]:
    """`count` combinations at random, the same ones each time."""
    stream = random.Random(space.name)
    return [tuple(stream.randrange(len(v.options)) for v in space.variables) for _ in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--candidates", type=int, default=40, help="of each space")
    parser.add_argument("--requests", type=int, default=400)
    arguments = parser.parse_args()
    ratios: dict[str, list[float]] = {name: [] for name in SHOWN}
    for name in NAMES:
        space = load_space(SPACES / f"{name}.yaml", [f"workload.num_requests={arguments.requests}"])
        evaluator = make_evaluator(space)
        bounds = Bounds(evaluator)
        for choice in draws(space, arguments.candidates):
            parameters = space.parameters(choice)
            outcome = evaluator(parameters)
            if outcome.refused or outcome.failed or outcome.saturation == "overloaded":
                continue
            for metric, bound in bounds.of(parameters).items():
                value = outcome.metrics.get(metric, math.nan)
                if metric in ratios and value > 0 and bound > 0:
                    ratios[metric].append(value / bound if metric.endswith("_per_s") else bound / value)
    print(f"{'metric':24} {'plans':>6} {'p10':>6} {'p50':>6} {'p90':>6}")
    for metric, found in ratios.items():
        if found:
            low, middle, high = np.quantile(found, (0.1, 0.5, 0.9))
            print(f"{metric:24} {len(found):6} {low:6.2f} {middle:6.2f} {high:6.2f}")


if __name__ == "__main__":
    main()
