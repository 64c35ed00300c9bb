"""`report.html`: a run on one self-contained page that works offline, from a disk or a mail attachment."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

from planner.report import content, names, reasons, tornado, verdict
from planner.report.front_document import front_document
from planner.report.kinds import best_of_kinds

if TYPE_CHECKING:
    from planner.store import Run

STYLES = ("common.css", "report.css")
SCRIPTS = (  # each after those it imports
    "dom.js",
    "scales.js",
    "plans.js",
    "glyphs.js",
    "plan_tables.js",
    "front_plot.js",
    "front.js",
    "report.js",
)
_IMPORT = re.compile(r"^import .*\n", re.MULTILINE)


def report_html(run: Run) -> str:
    """The page of `run`. The same run gives the same text: it holds neither times nor names of machines.

    Everything that comes from the user is escaped; a content security policy forbids the page to load anything, and
    to run any script but its own.
    """
    script = "".join(_IMPORT.sub("", _part(name)) for name in SCRIPTS)
    parts = {
        "policy": _policy(script),
        "title": escape(run.name),
        "style": "".join(map(_part, STYLES)),
        "headline": escape(content.headline(run)),
        "lead": _lead(run),
        "question": _definitions(content.question(run)),
        "answer": _answer(run),
        "front": _front_table(run),
        "ruled_out": _ruled_out(run),
        "reproduce": _reproduce(run),
        "versions": _definitions(content.versions(run)),
        "fidelity": escape(content.fidelity_words(run)),
        "data": _data(run),
        "script": script,
    }
    page = _part("report.html")
    pieces = page.split("{{")
    return pieces[0] + "".join(_filled(piece, parts) for piece in pieces[1:])


def _filled(piece: str, parts: Mapping[str, str]) -> str:
    """A piece of the template that begins with a name and `}}`: what is filled in is never read as a template."""
    name, _, rest = piece.partition("}}")
    return parts[name] + rest


def _part(name: str) -> str:
    return (resources.files("planner.report") / "page" / name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Nothing is loaded, and no script runs but this one, known by its digest."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"


def _lead(run: Run) -> str:
    plan = verdict.recommended(run)
    if plan is None:
        binding = verdict.binding(run)
        stands = f" {binding[0][0]} is what most plans break." if binding else ""
        return escape(f"{content.searched(run)}.{stands}")
    margin = verdict.tightest(run, plan)
    near = ""
    if margin is not None:
        near = (
            f" Nearest limit: {names.metric_name(margin.metric)} {names.measure(margin.metric, margin.value)} of "
            f"{names.measure(margin.metric, margin.limit)} ({names.percent(margin.headroom)} to spare)."
        )
    sure = content.confidence_words(content.extras(run).get(plan["id"], {}))
    confidence = f" Confidence that it meets the SLO: {sure}." if sure else ""
    return escape(f"The recommended plan meets every limit.{near}{confidence}" if run.constraints else near.strip())


def _definitions(rows: Iterable[tuple[str, str]]) -> str:
    return "".join(f"<dt>{escape(heading)}</dt><dd>{escape(words)}</dd>" for heading, words in rows)


def _answer(run: Run) -> str:
    plan = verdict.recommended(run)
    kinds = [(f"Best with {kind}", words) for kind, words in best_of_kinds(run)]
    if plan is None:
        nearest = verdict.least_violating(run)
        rows = [
            [names.plan_label(p["parameters"]), str(p["parameters"].get("gpu")), content.limit_words(run, p)]
            for p in nearest
        ]
        said = f'<dl class="facts">{_definitions(kinds)}</dl>' if kinds else ""
        table = _table(["TP x replicas", "GPU", "What it lacks"], rows)
        return f"<p>What comes nearest:</p>{table}{said}" if rows else said
    given = content.extras(run).get(plan["id"], {})
    varying = [name for name in names.varying([p["parameters"] for p in run.evaluations]) if name != "gpu"]
    facts = [("Plan", str(plan["id"])), ("Settings", names.settings(plan["parameters"], varying))]
    facts += [("Why this one", content.why(run)), ("What limits it", content.limit_words(run, plan))]
    facts += [*content.certainty(given), *kinds]
    words, moving = content.moves(run, plan)
    moves = f"<h3>What moves it</h3><p>{escape(words)}</p>{_table(list(tornado.HEADINGS), moving)}" if moving else ""
    return (
        f'<dl class="facts">{_definitions(row for row in facts if row[1])}</dl>'
        f"<h3>Margin to each limit</h3>{_margins(run, plan, given)}"
        f'<h3>What it costs</h3><dl class="facts">{_definitions(content.costs(plan))}</dl>{moves}'
    )


def _margins(run: Run, plan: verdict.Evaluation, given: Mapping[str, Any]) -> str:
    margins = verdict.margins(run, plan)
    if not margins:
        return "<p>No limit was set.</p>"
    with_interval = any(content.interval(given, margin.metric) for margin in margins)
    rows = []
    for margin in margins:
        used = margin.value / margin.limit if margin.limit else 1.0
        if margin.operator in (">=", ">"):
            used = margin.limit / margin.value if margin.value else 1.0
        bar = f'<meter min="0" max="1" value="{min(1.0, max(0.0, used)):.3f}">{names.percent(used)}</meter>'
        cells = [
            escape(names.constraint(margin.metric, margin.operator, margin.limit)),
            escape(names.measure(margin.metric, margin.value)),
            f"{bar} {escape(names.percent(margin.headroom))} to spare",
        ]
        if with_interval:
            ends = content.interval(given, margin.metric)
            words = f"{names.number(ends[0])} to {names.measure(margin.metric, ends[1])}" if ends else "-"
            cells.insert(2, escape(words))
        rows.append(cells)
    headings = ["Limit", "Simulated", *(["90% interval"] if with_interval else []), "Share of the limit used"]
    return _table(headings, rows, escaped=True)


def _front_table(run: Run) -> str:
    groups = verdict.distinct(run, verdict.front(run))
    if not groups:
        return "<p>The front is empty: no plan is feasible.</p>"
    ttft, tpot = verdict.ttft_metric(run), verdict.tpot_metric(run)
    metrics = list(dict.fromkeys(["cost_per_hour", "output_tokens_per_s", ttft, tpot, *run.asked()]))
    varying = [name for name in names.varying([p["parameters"] for p, _ in groups]) if name != "gpu"]
    known = content.extras(run)
    sure = any(content.confidence_words(known.get(plan["id"], {})) for plan, _ in groups)
    headings = ["TP x replicas", "GPU", *(names.axis_label(metric) for metric in metrics)]
    headings += [*(["SLO confidence, place on the front"] if sure else []), "Settings", "What limits it"]
    rows = []
    for index, (plan, same) in enumerate(groups[: content.FRONT_ROWS]):
        label = names.plan_label(plan["parameters"])
        row = [f"★ {label}" if index == 0 else label, str(plan["parameters"].get("gpu"))]
        row += [_figure(metric, plan["metrics"].get(metric)) for metric in metrics]
        row += [content.confidence_cell(known.get(plan["id"], {}))] if sure else []
        also = f" {len(same)} more with the same figures." if same else ""
        row += [names.settings(plan["parameters"], varying) or "-", content.limit_words(run, plan) + also]
        rows.append(row)
    left = len(groups) - len(rows)
    note = f"<p>{left} more plans of the front are in front.csv.</p>" if left > 0 else ""
    return _table(headings, rows, numeric=range(2, 2 + len(metrics))) + note


def _figure(metric: str, value: Any) -> str:
    return names.money(value) if metric.startswith("cost_") else names.number(value)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, escaped: bool = False, numeric: Any = ()) -> str:
    def cell(tag: str, index: int, text: str, raw: bool) -> str:
        kind = ' class="n"' if index in numeric else ""
        return f"<{tag}{kind}>{text if raw else escape(text)}</{tag}>"

    head = "".join(cell("th", i, heading, False) for i, heading in enumerate(headings))
    body = "".join(f"<tr>{''.join(cell('td', i, text, escaped) for i, text in enumerate(row))}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _ruled_out(run: Run) -> str:
    simulated, refused = reasons.ruled_out(run)
    total = sum(bool(plan["simulated"]) for plan in run.evaluations)
    parts = []
    if simulated:
        parts.append(f"<h3>Simulated to the end, and outside the limits</h3>{_reasons(simulated, total)}")
    if refused:
        parts.append(f"<h3>Not simulated to the end</h3>{_reasons(refused, len(run.evaluations))}")
    return "".join(parts) or "<p>Nothing: every candidate is feasible.</p>"


def _reasons(found: Sequence[reasons.Reason], total: int) -> str:
    rows = []
    for reason in found:
        bar = f'<meter min="0" max="{max(1, total)}" value="{reason.count}">{reason.count}</meter>'
        alone = f"; the only obstacle for {names.number(reason.alone)}" if reason.alone else ""
        example = f"<br><small>for example: {escape(reason.example)}</small>" if reason.example else ""
        count = f"{names.number(reason.count)} of {names.number(total)}{alone}"
        rows.append([f"{escape(reason.text)}{example}", f"{bar} {escape(count)}"])
    return _table(["Reason", "Candidates"], rows, escaped=True)


def _reproduce(run: Run) -> str:
    stem = content.file_stem(run)
    commands = f"planner search {stem}.yaml --out {stem}"
    plan = verdict.recommended(run)
    if plan is not None:
        commands += f"\nplanner simulate {stem}/plans/{plan['id']}.yaml\nplanner export {stem} --top-k 3"
    return (
        f"<p>Save this as <code>{escape(stem)}.yaml</code> (paths in it are relative to the file) and run:</p>"
        f"<pre>{escape(commands)}</pre>"
        f"<details><summary>{escape(stem)}.yaml</summary><pre>{escape(content.space_yaml(run))}</pre></details>"
    )


def _data(run: Run) -> str:
    """The plans as JSON inside a script element: no `<`, `>` or `&` in it, so that nothing ends the element."""
    text = json.dumps(front_document(run), separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
