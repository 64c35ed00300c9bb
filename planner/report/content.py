"""What a report of a run says, before it is laid out: question, answer, what was ruled out, how to repeat it."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import yaml

from planner.counts import counts_words, outcome_counts
from planner.report import explain, names, tornado, verdict
from planner.report.workload_words import workload_words
from planner.sensitivity import effects, evaluated_options, metrics_of

if TYPE_CHECKING:
    from planner.store import Run

HOURS_A_MONTH = 730.0
MAX_PLANS = 3000  # that an interactive page draws without a delay
FRONT_ROWS = 40
SHORT = "at higher rates the workload's requests come all at once; give it more of them"
CLIFF = "it breaks the SLO under another seed or with 5% more load"
EXTRAS = (
    "slo_confidence",
    "confidence_draws",
    "confidence_breaks",
    "intervals",
    "validated",
    "seed_confidence",
    "front_confidence",
    "cliff",
)
KEPT_METRICS = (
    "gpus",
    "cost_per_hour",
    "cost_per_million_output_tokens",
    "output_tokens_per_s",
    "requests_per_s",
    "max_rate_rps",
    "min_gpus",
    "goodput_rps",
    "slo_attainment",
    "ttft_mean_ms",
    "ttft_p90_ms",
    "ttft_p99_ms",
    "tpot_mean_ms",
    "tpot_p99_ms",
    "e2e_mean_ms",
    "e2e_p99_ms",
    "queue_p90_ms",
    "seats_mean_utilization",
    "kv_utilization_mean",
    "replica_utilization_mean",
    "prefix_hit_rate",
    "preemptions",
)


def extras(run: Run) -> dict[str, dict[str, Any]]:
    """By plan id: what the run knows of its certainty (`slo_confidence`, `intervals`, `validated`), where it does."""
    found: dict[str, dict[str, Any]] = {}
    sources: list[Iterable[Mapping[str, Any]]] = []
    front = run.path / "front.json" if run.path is not None else None
    if front is not None and front.is_file():
        # A front that cannot be read says nothing of certainty; the rest of the report stands.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            sources.append(json.loads(front.read_text(encoding="utf-8"))["plans"])
    sources.append(run.front_evaluations())
    for source in sources:
        for plan in source:
            given = {name: plan[name] for name in EXTRAS if plan.get(name) is not None}
            found.setdefault(str(plan["id"]), {}).update(given)
    return found


def interval(given: Mapping[str, Any], metric: str) -> tuple[float, float] | None:
    """The interval of a metric among a plan's extras, as [low, high] or {low, high}; None: it has none."""
    intervals = given.get("intervals")
    value = intervals.get(metric) if isinstance(intervals, Mapping) else None
    if isinstance(value, Mapping):
        value = (value.get("low"), value.get("high"))
    if not isinstance(value, list | tuple) or len(value) < 2:
        return None
    low, high = value[0], value[1]
    if not all(isinstance(end, int | float) and math.isfinite(end) for end in (low, high)):
        return None
    return float(low), float(high)


def confidence_words(given: Mapping[str, Any]) -> str:
    """How sure the run is that the plan meets the SLO; empty where it does not say."""
    value = given.get("slo_confidence")
    if isinstance(value, Mapping):
        value = value.get("all", min((v for v in value.values() if isinstance(v, int | float)), default=None))
    return names.percent(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def confidence_cell(given: Mapping[str, Any]) -> str:
    """The same in a cell of a table, with how often the plan keeps its place on the front, whether it is on a
    cliff, and what fails."""
    front = given.get("front_confidence")
    parts = [confidence_words(given) or "-"]
    parts += [names.percent(front)] if isinstance(front, int | float) else []
    parts += ["on a cliff"] if given.get("cliff") else []
    parts += [breaks_words(given)] if breaks_words(given) else []
    return ", ".join(parts)


def breaks_words(given: Mapping[str, Any]) -> str:
    """What fails in draws, the most frequent first: "1 of 10 draws breaks p90 TPOT ≤ 30 ms"; empty where nothing does,
    or the run does not say."""
    breaks, draws = given.get("confidence_breaks"), given.get("confidence_draws")
    if not isinstance(breaks, Mapping) or not isinstance(draws, int):
        return ""
    counts = sorted(breaks.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(
        f"{count} of {draws} draws {'breaks' if count == 1 else 'break'} {_limit_words(text)}" for text, count in counts
    )


def _limit_words(text: str) -> str:
    """A constraint as `front.json` names it, in words; what is none, as it is there."""
    parts = text.split()
    if len(parts) != 3 or parts[1] not in names.OPERATORS:
        return f'"{text}"'
    return names.constraint(parts[0], parts[1], float(parts[2]))


def certainty_sentence(run: Run, given: Mapping[str, Any]) -> str:
    """How sure the plan's figures are, for a table's notes; empty where the run does not say."""
    metric = verdict.ttft_metric(run)
    ends = interval(given, metric)
    parts = []
    if ends is not None:
        between = f"{names.number(ends[0])} to {names.measure(metric, ends[1])}"
        parts.append(f"90% interval of the {names.metric_name(metric)} {between}")
    sure = confidence_words(given)
    if sure and run.constraints:
        parts.append(f"SLO confidence {sure}")
    front = given.get("front_confidence")
    if isinstance(front, int | float):
        parts.append(f"on the front in {names.percent(front)} of draws")
    seeds = given.get("seed_confidence")
    if isinstance(seeds, int | float):
        parts.append(f"feasible under {names.percent(seeds)} of the seeds")
    sentence = f"{', '.join(parts)}." if parts else ""
    if breaks_words(given):
        sentence += f" {breaks_words(given)}."
    if given.get("cliff"):
        sentence += f" On a cliff: {CLIFF}."
    doubts = given.get("validated")
    if isinstance(doubts, list) and doubts:
        sentence += f" Not vouched for by measurements: {'; '.join(map(str, doubts))}."
    return sentence.strip()


def certainty(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the run knows of a plan's certainty, as (heading, words); empty where it knows nothing."""
    rows = []
    sure = confidence_words(given)
    if sure:
        rows.append(("Confidence", f"{sure} of re-simulations, with the errors measured so far, meet the SLO"))
    if breaks_words(given):
        rows.append(("What fails", breaks_words(given)))
    seeds, front = given.get("seed_confidence"), given.get("front_confidence")
    if isinstance(front, int | float):
        rows.append(("Place on the front", f"kept in {names.percent(front)} of these re-simulations"))
    if isinstance(seeds, int | float):
        rows.append(("Other seeds", f"feasible under {names.percent(seeds)} of them"))
    if given.get("cliff"):
        rows.append(("On a cliff", CLIFF))
    if validated_words(given):
        rows.append(("Validated", validated_words(given)))
    return rows


def validated_words(given: Mapping[str, Any]) -> str:
    """Whether measurements vouch for a plan's figures, and why not; empty where the run does not say."""
    value = given.get("validated")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {names.setting(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):  # what measurements do not vouch for
        return f"no: {'; '.join(map(str, value))}" if value else "yes"
    return "" if value is None else str(value)


def headline(run: Run) -> str:
    """The answer in one sentence."""
    plan = verdict.recommended(run)
    if plan is None:
        return "No plan of this space meets the SLO."
    parameters, metrics = plan["parameters"], plan["metrics"]
    gpus, replicas = int(metrics["gpus"]), int(parameters.get("replicas", 1))
    count = "one replica" if replicas == 1 else f"{replicas} replicas"
    size = f"{count} of TP={parameters.get('tensor_parallel_size', 1)}"
    if parameters.get("prefill_replicas"):
        size = names.pools(parameters)
    price = names.measure("cost_per_hour", metrics.get("cost_per_hour"))
    return f"{gpus} x {parameters.get('gpu', 'GPU')}: {size}, {price}"


def question(run: Run) -> list[tuple[str, str]]:
    """What was asked, as (heading, words)."""
    space = run.space
    objectives = ", ".join(
        f"{'most' if sense == 'max' else 'least'} {names.metric_name(metric)}" for metric, sense in run.objectives
    )
    limits = ", ".join(names.constraint(*item) for item in run.constraints)
    rows = [
        ("Model", str(space.get("model", ""))),
        ("Workload", workload_words(space.get("workload") or {})),
        ("Caution", str(run.manifest.get("rising_load") or "")),
        ("SLO and budget", limits or "none"),
        ("Better means", objectives),
        ("Candidates", searched(run)),
    ]
    return [(heading, words) for heading, words in rows if words]


def searched(run: Run) -> str:
    """How many candidates there were, what became of them, and whether any could have been missed."""
    counts = outcome_counts(run.evaluations)
    exact = "every candidate was simulated or ruled out" if run.exact else "candidates were sampled, not all tried"
    return (
        f"{counts_words(counts)}; {names.number(counts['feasible'])} feasible, {names.number(len(run.front))} on the "
        f"front; {exact}"
    )


def costs(plan: verdict.Evaluation) -> list[tuple[str, str]]:
    """What a plan costs, as (heading, words)."""
    metrics = plan["metrics"]
    hour, tokens = metrics.get("cost_per_hour"), metrics.get("cost_per_million_output_tokens")
    rows = []
    if hour is not None and not math.isnan(hour):
        rows += [("An hour", f"${names.money(hour)}"), ("A month of 730 h", f"${hour * HOURS_A_MONTH:,.0f}")]
    if tokens is not None and not math.isnan(tokens):
        rows.append(("A million output tokens, at this load", f"${names.money(tokens)}"))
    return rows


def why(run: Run) -> str:
    """Why the recommended plan is recommended, and what the next step up buys."""
    plans = [group[0] for group in verdict.distinct(run, verdict.front(run))]
    text = f"It is {verdict.rule(run)}. {verdict.passed_over(run)}".strip()
    if len(plans) > 1:
        metric = verdict.ttft_metric(run)
        first, best = plans[0], min(plans, key=lambda plan: _or_inf(plan["metrics"].get(metric)))
        if best is not first:
            fastest, ours = (names.measure(metric, plan["metrics"].get(metric)) for plan in (best, first))
            price = names.measure("cost_per_hour", best["metrics"].get("cost_per_hour"))
            what = f"{names.plan_label(best['parameters'])} on {best['parameters'].get('gpu')} at {price}"
            text += (
                f" The lowest {names.metric_name(metric)} of the front, {fastest} instead of {ours}, is that of {what}."
            )
    return text


def _or_inf(value: Any) -> float:
    return math.inf if value is None or math.isnan(value) else float(value)


def moves(run: Run, plan: verdict.Evaluation) -> tuple[str, list[tuple[str, str, str]]]:
    """(one line, table rows) on which parameter moves what about a plan, from what the run evaluated; empty where it
    evaluated too little of it."""
    found = effects(plan, evaluated_options(run, plan), metrics_of(run))
    return (tornado.sentence(found, run.objectives), tornado.rows(found, metrics_of(run))) if found else ("", [])


def limit_words(run: Run, plan: verdict.Evaluation) -> str:
    """What limits a plan, as `planner show` says it."""
    return explain.limit_sentence(run, plan)


def space_yaml(run: Run) -> str:
    """The space as YAML that `planner search` reads."""
    return yaml.safe_dump(run.space, sort_keys=False, allow_unicode=True, width=100)


def file_stem(run: Run) -> str:
    """The run's name as a file is called that every shell takes as it is."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", run.name).strip("-.") or "space"


def versions(run: Run) -> list[tuple[str, str]]:
    """What the figures depend on: versions, seed, coefficient set."""
    manifest = run.manifest
    rows = [(str(name), str(value)) for name, value in (manifest.get("versions") or {}).items()]
    for name in ("coefficients", "seed", "method", "context"):
        if manifest.get(name) is not None:
            rows.append((name, str(manifest[name])))
    return rows


def fidelity_words(run: Run) -> str:
    """What kind of figures these are."""
    known = extras(run)
    spread = (
        "Intervals and confidence come from how far earlier predictions lay from measured runs like these."
        if any(given.get("slo_confidence") or given.get("intervals") for given in known.values())
        else "Each plan was simulated once, so no interval is given."
    )
    return (
        f"Every figure is simulated, request by request, with the coefficient set "
        f"{run.manifest.get('coefficients', 'default')}; none is measured on this deployment. {spread} Measure the "
        "plan before you rely on it: planner export writes the commands, planner validate compares."
    )


def chosen_plans(run: Run) -> tuple[list[verdict.Evaluation], int]:
    """The simulated plans that the page shows, the front first, and how many are left out."""
    front = set(run.front)
    simulated: list[verdict.Evaluation] = [plan for plan in run.evaluations if plan["simulated"]]
    simulated.sort(key=lambda plan: (plan["id"] not in front, not plan["feasible"], _or_inf(plan["violation"])))
    return simulated[:MAX_PLANS], max(0, len(simulated) - MAX_PLANS)
