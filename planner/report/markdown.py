"""A run as Markdown, for a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from planner.report import content, names, reasons, verdict
from planner.report.kinds import best_of_kinds

if TYPE_CHECKING:
    from planner.store import Run

ROWS = 10
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!@])")


def report_markdown(run: Run) -> str:
    """The report of `run` as GitHub renders it. What comes from the user is escaped: no markup, links or mentions."""
    plan = verdict.recommended(run)
    lines = [f"## Capacity plan: {_text(run.name)}", "", f"**{_text(content.headline(run))}**", ""]
    lines += [f"- **{heading}**: {_text(words)}" for heading, words in content.question(run)]
    if plan is not None:
        given = content.extras(run).get(plan["id"], {})
        facts = [("Why", content.why(run)), ("What limits it", content.limit_words(run, plan))]
        facts += [("What moves it", content.moves(run, plan)[0])]
        facts += content.certainty(given)
        facts += [(f"Best with {_text(kind)}", words) for kind, words in best_of_kinds(run)]
        facts += [("Cost", ", ".join(f"{words} {heading.lower()}" for heading, words in content.costs(plan)))]
        lines += [f"- **{heading}**: {_text(words)}" for heading, words in facts if words]
        lines += ["", "### Front", "", *_front(run)]
    else:
        rows = [
            (names.plan_label(p["parameters"]), str(p["parameters"].get("gpu")), content.limit_words(run, p))
            for p in verdict.least_violating(run)
        ]
        lines += [f"- **Best with {_text(kind)}**: {_text(words)}" for kind, words in best_of_kinds(run)]
        lines += ["", "### What comes nearest", "", *_table(("TP x replicas", "GPU", "What it lacks"), rows)]
    lines += ["", "### Ruled out", "", *_ruled_out(run)]
    lines += ["", f"{_text(content.fidelity_words(run))}", "", *_reproduce(run)]
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    """`text` on one line, without a meaning in Markdown."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(_text(heading) for heading in headings)} |",
        f"|{'|'.join('---' for _ in headings)}|",
        *(f"| {' | '.join(_text(cell) for cell in row)} |" for row in rows),
    ]


def _front(run: Run) -> list[str]:
    ttft, tpot = verdict.ttft_metric(run), verdict.tpot_metric(run)
    groups = verdict.distinct(run, verdict.front(run))
    varying = [name for name in names.varying([p["parameters"] for p, _ in groups]) if name != "gpu"]
    headings = ["", "TP x replicas", "GPU", "$/h", "output tokens/s", names.axis_label(ttft), names.axis_label(tpot)]
    shown = ("gpus", "cost_per_hour", "output_tokens_per_s", ttft, tpot)
    others = [metric for metric in run.asked() if metric not in shown]
    headings += [names.axis_label(metric) for metric in others]
    rows = []
    for index, (plan, _) in enumerate(groups[:ROWS]):
        metrics, parameters = plan["metrics"], plan["parameters"]
        row = ["★" if index == 0 else "", names.plan_label(parameters), str(parameters.get("gpu"))]
        row += [names.money(metrics.get("cost_per_hour")), names.number(metrics.get("output_tokens_per_s"))]
        row += [names.number(metrics.get(ttft)), names.number(metrics.get(tpot))]
        row += [names.number(metrics.get(metric)) for metric in others]
        rows.append([*row, *([names.settings(parameters, varying)] if varying else [])])
    table = _table([*headings, *(["settings"] if varying else [])], rows)
    left = len(groups) - len(rows)
    return [*table, *(["", f"{left} more plans of the front are in front.csv."] if left > 0 else [])]


def _ruled_out(run: Run) -> list[str]:
    simulated, refused = reasons.ruled_out(run)
    total = sum(bool(plan["simulated"]) for plan in run.evaluations)
    lines = []
    for reason in simulated:
        alone = f"; the only obstacle for {reason.alone}" if reason.alone else ""
        lines.append(f"- {_text(reason.text)}: broken by {reason.count} of {total} simulated to the end{alone}")
    for reason in refused:
        example = f" (for example: {_text(reason.example)})" if reason.example else ""
        lines.append(f"- {_text(reason.text)}: {reason.count}{example}")
    return lines or ["Nothing: every candidate is feasible."]


def _reproduce(run: Run) -> list[str]:
    stem, text = content.file_stem(run), content.space_yaml(run)
    fence = "`" * max(3, 1 + max((len(ticks) for ticks in re.findall("`+", text)), default=0))
    made = ", ".join(f"{_text(name)} {_text(value)}" for name, value in content.versions(run))
    return [
        f"Made with: {made}.",
        "",
        f"<details><summary>Reproduce: planner search {stem}.yaml</summary>",
        "",
        f"{fence}yaml",
        text.rstrip("\n"),
        fence,
        "",
        "</details>",
    ]
