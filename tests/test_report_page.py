"""What the page of a run says, that it says it alone and safely, and that it can be used; and its Markdown."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from planner.report import reasons
from planner.report.html import report_html
from planner.report.markdown import report_markdown
from planner.store import Run, load_run
from tests.browser import CHROMIUM, dump
from tests.test_report import OBJECTIVES, SPACE, evaluation

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{data}}|`\"'&"
browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


class Page(HTMLParser):
    """Elements, attributes and text of a page, as a browser would read them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data


def a_run(name: str = "codegen", **changes: Any) -> Run:
    """A front of two sizes, one plan that breaks the SLO, eight candidates that no one needed to simulate."""
    plans = [evaluation("aaa", 4, 1, 97.0), evaluation("bbb", 8, 1, 82.0), evaluation("ccc", 2, 2, 900.0)]
    for index in range(8):
        gpus = 12 if index < 4 else 16
        refused = evaluation(f"no{index}", 4, gpus // 4, 1.0)
        refused |= {"simulated": False, "feasible": False, "why_not": f"gpus is {gpus}, must be <= 8"}
        plans.append(refused | {"metrics": {"gpus": float(gpus)}, "saturation": None, "violation": 1.0})
    return Run(
        name=name,
        space=changes.pop("space", SPACE),
        objectives=OBJECTIVES,
        constraints=[("ttft_mean_ms", "<=", 300.0), ("gpus", "<=", 8.0)],
        evaluations=changes.pop("evaluations", plans),
        front=changes.pop("front", ["bbb", "aaa"]),
        exact=True,
        manifest={"versions": {"planner": "0.1.0"}, "seed": 0, "coefficients": "default", **changes},
    )


def data(page: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Page(page).scripts[0])
    return document


def test_the_page_loads_nothing() -> None:
    page = Page(report_html(a_run()))
    assert not [tag for tag, _ in page.tags if tag in ("link", "img", "iframe", "object", "embed", "base")]
    addresses = [
        v for _, attrs in page.tags for name, v in attrs.items() if name in ("src", "href", "action", "srcset")
    ]
    assert addresses
    assert all(address is not None and address.startswith("#") for address in addresses)
    assert "url(" not in report_html(a_run())
    assert "@import" not in report_html(a_run())


def test_its_policy_allows_its_own_script_only() -> None:
    page = Page(report_html(a_run()))
    (policy,) = (a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_the_same_run_gives_the_same_bytes_however_long_it_took_and_on_whatever_it_ran() -> None:
    quick = a_run(wall_time_s=1.0, executor={"name": "serial", "workers": 1})
    slow = a_run(wall_time_s=99.0, executor={"name": "ray", "workers": 8})
    assert report_html(quick) == report_html(slow)
    assert report_markdown(quick) == report_markdown(slow)


def test_what_the_user_wrote_is_text_and_never_markup() -> None:
    space = {**SPACE, "model": HOSTILE, "workload": {"kind": HOSTILE}}
    plans = [evaluation("aaa", 4, 1, 97.0, parameters={"gpu": HOSTILE, "routing": {"name": HOSTILE}})]
    plans.append({**evaluation("bbb", 4, 1, 900.0, parameters={"gpu": "L4"}), "why_not": HOSTILE})
    refused = {**evaluation("ccc", 4, 1, 900.0), "simulated": False, "why_not": HOSTILE, "metrics": {}}
    harmless = Page(report_html(a_run()))
    run = a_run(HOSTILE, space=space, evaluations=[*plans, refused], front=["aaa"], coefficients=HOSTILE)
    page = Page(report_html(run))
    assert len(page.scripts) == len(harmless.scripts) == 2
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in harmless.tags} | {"meter", "br", "small"}
    assert page.text.count(HOSTILE) >= 5
    assert data(report_html(run))["plans"][1]["why_not"] == HOSTILE


def test_the_page_answers_with_the_recommended_plan_its_price_and_its_margin() -> None:
    text = " ".join(Page(report_html(a_run())).text.split())
    assert "4 x H100-SXM-80GB: one replica of TP=4, $12.80/h" in text
    assert "mean TTFT 97 ms of 300 ms (68% to spare)" in text
    assert "$9,344" in text
    assert "lowest mean TTFT of the front, 82 ms instead of 97 ms, is that of 8x1" in text


def test_candidates_ruled_out_for_the_same_reason_are_counted_together() -> None:
    text = Page(report_html(a_run())).text
    assert "ruled out: GPUs above 8" in text
    assert "8 of 11" in text
    assert "1 of 3; the only obstacle for 1" in text


def test_a_bound_s_reason_counts_together_whatever_its_number() -> None:
    run = a_run()
    for index, plan in enumerate(run.evaluations[3:]):
        plan["why_not"] = f"ttft_p90_ms is at least {index + 3}.14e+05 by its bound, must be <= 500"
        plan["bound"] = "constraint"
    (reason,) = reasons.ruled_out(run)[1]
    assert (reason.text, reason.count) == ("ruled out: p90 TTFT above 500 ms at best", 8)


def test_the_reproduction_is_the_space_that_was_searched() -> None:
    import yaml

    blocks = re.findall(r"<pre>(.*?)</pre>", report_html(a_run()), re.DOTALL)
    assert yaml.safe_load(blocks[1]) == SPACE
    assert blocks[0].splitlines()[0] == "planner search codegen.yaml --out codegen"


def test_confidence_and_intervals_are_shown_where_the_run_has_them_and_left_out_where_not() -> None:
    plain = a_run()
    assert "Confidence" not in Page(report_html(plain)).text
    assert "confidence" not in json.dumps(data(report_html(plain)))
    plans = plain.evaluations
    plans[0] |= {
        "slo_confidence": 0.97,
        "intervals": {"ttft_mean_ms": [90.0, 110.0]},
        "validated": [],
        "seed_confidence": 0.8,
    }
    page = report_html(a_run(evaluations=plans))
    text = " ".join(Page(page).text.split())
    assert "Confidence that it meets the SLO: 97%" in text
    assert "90 to 110 ms" in text
    assert "97% of re-simulations" in text
    assert "feasible under 80% of them" in text
    (starred,) = (plan for plan in data(page)["plans"] if plan["id"] == "aaa")
    assert (starred["confidence"], starred["validated"]) == ("97%", "yes")
    index = [metric["name"] for metric in data(page)["metrics"]].index("ttft_mean_ms")
    assert starred["intervals"][str(index)] == [90.0, 110.0]


def test_a_run_without_a_feasible_plan_says_so_and_what_comes_nearest() -> None:
    plans = [evaluation("aaa", 4, 1, 400.0), evaluation("bbb", 8, 1, 350.0)]
    for text in (report_html(a_run(evaluations=plans, front=[])), report_markdown(a_run(evaluations=plans, front=[]))):
        assert "No plan of this space meets the SLO" in text
        assert "350" in text


def test_a_run_of_nothing_still_has_a_page() -> None:
    for text in (report_html(a_run(evaluations=[], front=[])), report_markdown(a_run(evaluations=[], front=[]))):
        assert "No plan of this space meets the SLO" in text


def test_every_row_of_a_markdown_table_has_the_cells_of_its_heading() -> None:
    plans = [evaluation("aaa", 4, 1, 97.0, parameters={"gpu": "a|b"}), evaluation("bbb", 8, 1, 82.0)]
    rows = [line for line in report_markdown(a_run(evaluations=plans)).splitlines() if line.startswith("|")]
    cells = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert len(rows) == 4
    assert len(cells) == 1


def test_markdown_escapes_what_the_user_wrote() -> None:
    text = report_markdown(a_run(HOSTILE, space={**SPACE, "model": "@team [x](http://e.vil) <b>"}))
    outside = text.split("```")[0]
    assert "\\@team \\[x\\](http://e.vil) \\<b\\>" in outside
    assert not re.search(r"(?<!\\)<(?!/?(details|summary)\b)", outside)


SMALL = """
name: small
model: meta-llama/Llama-3.1-8B-Instruct
workload: {kind: lengths, input: 64, output: 8, arrival: {process: poisson, rate_rps: 5}, num_requests: 30}
slo: [ttft_mean_ms <= 500]
objectives: [{minimize: cost_per_hour}]
space: {gpu: [L4, H100-SXM-80GB]}
"""


def test_a_search_leaves_its_page_and_report_writes_the_same_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    run = tmp_path / "run"
    assert main(["search", str(tmp_path / "small.yaml"), "--out", str(run), "--executor", "serial", "--quiet"]) == 0
    left = (run / "report.html").read_bytes()
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").read_bytes() == left
    capsys.readouterr()
    assert main(["report", str(run), "--format", "md"]) == 0
    assert capsys.readouterr().out == report_markdown(load_run(run))
    assert str(tmp_path) not in left.decode()


# -- in a browser -------------------------------------------------------------------------------------------------


@browser
def test_every_simulated_plan_is_a_point_and_the_front_is_compared() -> None:
    page = dump(report_html(a_run()))
    assert len(re.findall(r'role="option"', page)) == 3
    assert "3 plans shown" in page
    compared = page.split('id="compare"')[1].split('id="list"')[0]
    assert "4x1 aaa" in compared
    assert "8x1 bbb" in compared
    assert "+100%" in compared  # twice the price


@browser
def test_filters_take_plans_out_and_the_keyboard_chooses_one() -> None:
    keys = """
    const plot = document.getElementById("plot");
    const press = (key) => plot.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    document.querySelector("#broken").click();
    press("ArrowRight"); press("ArrowRight"); press("Enter");
    document.body.dataset.active = plot.getAttribute("aria-activedescendant");
    document.body.dataset.tip = document.getElementById("tip").textContent;
    """
    page = dump(report_html(a_run()), keys)
    assert len(re.findall(r'role="option"', page)) == 2
    assert "2 plans shown, 1 filtered out" in page
    active = re.search(r'data-active="([^"]+)"', page)
    assert active is not None
    assert re.search(rf'id="{active[1]}"[^>]*aria-selected="false"|aria-selected="false"[^>]*id="{active[1]}"', page)
    tip = re.search(r'data-tip="([^"]*)"', page)
    assert tip is not None
    assert "TTFT" in tip[1]


@browser
def test_hostile_names_do_nothing_in_a_browser() -> None:
    plans = [evaluation("aaa", 4, 1, 97.0, parameters={"gpu": HOSTILE}), evaluation("bbb", 8, 1, 82.0)]
    page = dump(report_html(a_run(HOSTILE, evaluations=plans)), "window.alert = () => { throw new Error('ran'); };")
    assert "<img" not in page
    assert "2 plans shown" in page


@browser
def test_a_thousand_plans_are_drawn() -> None:
    plans = [evaluation(f"p{index}", 1, 1 + index % 8, 50.0 + index) for index in range(1000)]
    page = dump(report_html(a_run(evaluations=plans, front=["p0"])))
    assert "1000 plans shown" in page
