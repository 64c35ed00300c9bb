"""The pictures of `planner plot`: what is drawn is what was found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.text import Text

from planner.commands.plot import KINDS
from planner.report.parallel import parallel_figure
from planner.report.pareto import png
from planner.report.replica_timelines import averaged_over, replica_figure
from planner.search.session import SearchOptions, search
from planner.space import load_space
from sim.engine.timeline import Timeline
from sim.simulate import simulate
from tests.serving_cases import deployment, poisson, workload
from tests.test_cli import planner
from tests.test_report import evaluation, nothing_feasible, run, usual


def lines(what: object) -> list[np.ndarray]:
    (axes,) = parallel_figure(what).axes  # type: ignore[arg-type]
    found = [c for c in axes.collections if isinstance(c, LineCollection)]
    return [np.asarray(path.vertices) for collection in found for path in collection.get_paths()]


def test_parallel_coordinates_have_a_line_for_each_simulated_plan() -> None:
    assert len(lines(usual())) == 4
    assert len(lines(nothing_feasible())) == 2
    assert len(lines(run([{**evaluation("a", 1, 1, 50.0), "simulated": False}], []))) == 0


def test_a_plan_crosses_a_metric_axis_in_the_order_of_the_values() -> None:
    ttft = [50.0, 120.0, 80.0, 299.0]
    plans = [evaluation(name, 1, 1, value) for name, value in zip("abcd", ttft, strict=True)]
    what = run(plans, [], objectives=[("gpus", "min"), ("ttft_mean_ms", "min")], constraints=[])
    heights = [line[-1, 1] for line in lines(what)]
    assert heights[0] < heights[2] < heights[1] < heights[3]
    assert (heights[0], heights[3]) == (0.0, 1.0)


def test_axes_are_the_varying_parameters_and_the_metrics_asked_about() -> None:
    (axes,) = parallel_figure(usual()).axes
    words = " ".join(text.get_text().replace("\n", "") for text in axes.findobj(Text))
    for name in ("tensor_parallel_size", "max_num_seqs", "Mean TTFT(ms)", "Output throughput(tokens/s)"):
        assert name in words
    assert "replicas" not in words  # all plans have one


def test_parallel_coordinates_are_the_same_bytes_again() -> None:
    assert png(parallel_figure(usual())) == png(parallel_figure(usual()))


def test_a_mean_over_time_keeps_the_area_where_samples_are_even() -> None:
    at = np.arange(100) * 0.1
    values = np.random.default_rng(1).random(100)
    timeline = Timeline(at, values, values, values, np.full(100, np.nan))
    means = averaged_over(timeline, "waiting", np.linspace(0.0, 10.0, 11))
    assert means.mean() == pytest.approx(values.mean())
    assert np.isnan(averaged_over(timeline, "prefix_hit_rate", np.linspace(0.0, 10.0, 11))).all()


@pytest.mark.parametrize("replicas", [1, 3, 12])
def test_every_replica_is_drawn_or_summed_up(replicas: int) -> None:
    result = simulate(deployment(replicas=replicas), workload(poisson(60, 20.0, 1), 300, 20), sampled=True)
    figure = replica_figure("1x1 plan", result)
    assert len(figure.axes) == 4
    assert len(figure.axes[1].lines) == (replicas if replicas <= 8 else 1)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("plots") / "run"
    small = ["workload.num_requests=60", "space.max_num_seqs=[8, 64]"]
    search(load_space(Path(__file__).parents[1] / "search_spaces/quickstart.yaml", small), SearchOptions(out))
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_drawn_from_a_run(kind: str, done: Path, tmp_path: Path) -> None:
    drawn = planner("plot", done, "--kind", kind, "--out", "drawn.svg", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert b"<svg" in (tmp_path / "drawn.svg").read_bytes()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--plan", "x"], "--plan: has no meaning with --kind front"),
        (["--kind", "latency", "--plan", "nosuchplan"], "has no plan 'nosuchplan'"),
        (["--kind", "replicas", "--plan", "a", "--plan", "b"], "--plan: at most 1"),
        (["--out", "x.pdf"], "--out: must end in .png or .svg"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(options: list[str], said: str, done: Path, tmp_path: Path) -> None:
    refused = planner("plot", done, *options, cwd=tmp_path)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1
