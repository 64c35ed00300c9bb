"""Search methods at equal budgets against the exhaustive front: hypervolume over evaluations, over several seeds.

    python benchmarks/optimisers.py [--space code] [--seeds 10] [--plot FILE] [--json FILE]

Every candidate of the space is simulated once; the methods then look outcomes up: only what they choose differs.
No bounds and no twins: the methods alone. Screening is shown at the full simulations that its requests amount to.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from screening import SPACES, _Nowhere, front_costs, hypervolume_ratio, run

from planner.evaluate import Evaluator, Outcome, Trial, make_evaluator
from planner.executors.serial import SerialExecutor
from planner.parameters import Parameters, content_id
from planner.search.driver import Search
from planner.search.evaluations import outcome_of
from planner.space import parse_space

METHODS = ("random", "nsga2", "nsga3")
BUDGETS = (100, 200, 400, 800)
COLOURS = {"random": "#888888", "nsga2": "#1f5fa8", "nsga3": "#d1661b", "screening": "#2b8a3e"}


class LookedUp:
    """An evaluator that knows every outcome already; trials it simulates."""

    def __init__(self, evaluator: Evaluator, known: dict[str, Outcome]) -> None:
        self.request_slo, self.workload = evaluator.request_slo, evaluator.workload
        self.static_metrics = evaluator.static_metrics
        self._evaluator, self._known = evaluator, known

    def __call__(self, candidate: Parameters | Trial) -> Outcome:
        return self._evaluator(candidate) if isinstance(candidate, Trial) else self._known[content_id(candidate)]


def measure(name: str, seeds: int, workers: int) -> dict[str, Any]:
    """Hypervolume ratios by method and budget, one a seed."""
    document = {"name": name, **SPACES[name]}
    space = parse_space(document | {"search": {"method": "exhaustive"}}, Path())
    exact, _, _ = run(space, workers, bounded=False)
    known = {content_id(e["parameters"]): outcome_of(e) for e in exact.evaluations}
    evaluator: Any = LookedUp(make_evaluator(space), known)
    target = front_costs(exact, space)
    curves: dict[str, dict[str, list[float]]] = {}
    for method in METHODS:
        for budget in BUDGETS:
            ratios = []
            for seed in range(seeds):
                settings = {"method": method, "budget": budget, "seed": seed}
                searched = parse_space(document | {"search": settings}, Path())
                found = Search(searched, evaluator, SerialExecutor(evaluator), _Nowhere()).run()
                ratios.append(round(hypervolume_ratio(front_costs(found, searched), target), 5))
            curves.setdefault(method, {})[str(budget)] = ratios
            print(method, budget, np.median(ratios), flush=True)
    screened = parse_space(document | {"search": {"method": "screening"}}, Path())
    search = Search(screened, evaluator, SerialExecutor(evaluator), _Nowhere())
    ratio = hypervolume_ratio(front_costs(search.run(), screened), target)
    equivalent = search.simulations.run + search.simulations.trial_requests / len(evaluator.workload)
    curves["screening"] = {str(round(equivalent)): [round(ratio, 5)]}
    return {"space": name, "candidates": len(known), "seeds": seeds, "curves": curves}


def plot(result: dict[str, Any], path: Path) -> None:
    """Median and range over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for method, curve in result["curves"].items():
        budgets = [int(budget) for budget in curve]
        values = np.array(list(curve.values()))
        axes.plot(budgets, np.median(values, axis=1), "o-", color=COLOURS[method], label=method, markersize=4)
        axes.fill_between(budgets, values.min(axis=1), values.max(axis=1), color=COLOURS[method], alpha=0.15, lw=0)
    axes.axhline(1.0, color="#444444", linewidth=0.8, linestyle="--")
    axes.set_xscale("log")
    axes.set_xticks(BUDGETS, [str(b) for b in BUDGETS])
    axes.minorticks_off()
    axes.set_xlabel(f"full simulations, of {result['candidates']:,} candidates")
    axes.set_ylabel("hypervolume / exhaustive")
    axes.set_title(f"{result['space']}: median and range of {result['seeds']} seeds", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--space", choices=list(SPACES), default="code")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    result = measure(arguments.space, arguments.seeds, arguments.workers)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    if arguments.plot:
        plot(result, arguments.plot)
    print(json.dumps(result["curves"]["screening"]))


if __name__ == "__main__":
    main()
