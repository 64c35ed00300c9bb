"""The service's page in a real browser against a real server: searching, watching, cancelling, comparing, keeping."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.browser import CHROMIUM

pytest.importorskip("playwright.sync_api", reason="needs playwright")
from playwright.sync_api import Browser, Page, expect

from tests.page_server import LONG, SMALL, Server, chromium, serving, visit

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium (chromium, chromium-browser, google-chrome)")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("service")) as started:
        yield started


@pytest.fixture(scope="module")
def job(server: Server) -> str:
    """A search that has come to its end."""
    return server.finished("kept")


def write(page: Page, text: str) -> None:
    """Put `text` into the editor of a new search, and wait until it has been looked at."""
    page.wait_for_selector(".search-form input")
    with page.expect_response("**/api/v1/validate"):
        page.fill("#yaml", text)


def submit(page: Page, name: str, text: str = SMALL) -> str:
    """Start a search from the page as a reader with a keyboard does; returns the job's id."""
    page.goto(re.sub("#.*", "#/new", page.url))
    write(page, text.replace("NAME", name))
    page.press("#yaml", "Control+Enter")
    page.wait_for_url("**/#/runs/*")
    expect(page.locator("h1")).to_have_text(name)
    return page.url.rpartition("/")[2]


def points(page: Page) -> int:
    return page.locator("#plot [role=option]").count()


def test_a_search_is_submitted_watched_and_everything_of_it_downloaded(
    browser: Browser, server: Server, tmp_path: Path
) -> None:
    with visit(browser, server) as page:
        job = submit(page, "watched")
        expect(page.locator(".chip")).to_have_text("done")
        expect(page.locator("#count")).to_contain_text("8 plans shown")
        assert points(page) == 8
        assert page.locator("#plot .starred").count() == 1
        best = server.get(f"/jobs/{job}")["recommended"]
        expect(page.locator("#list tbody tr").first).to_contain_text(f"★ 1x1 {best}")

        with page.expect_download() as download:
            page.click(".downloads >> text='front.json'")
        front = json.loads(download.value.path().read_text())
        assert best in [plan["id"] for plan in front["plans"]]
        with page.expect_download() as download:
            page.click(".downloads >> text='vllm'")
        download.value.save_as(tmp_path / "vllm.zip")
        assert any(best in name for name in zipfile.ZipFile(tmp_path / "vllm.zip").namelist())
        with page.context.expect_page() as opened:
            page.click("text='Open the report'")
        assert opened.value.locator("#plot [role=option]").count() == 8


def test_what_is_wrong_with_a_space_is_said_at_its_line_and_at_its_field(browser: Browser, server: Server) -> None:
    with visit(browser, server, "#/new") as page:
        write(page, SMALL)
        expect(page.locator(".search-status")).to_contain_text("8 combinations")
        broken = SMALL.replace("rate_rps: 40", "rate_rps: -3").replace("H100-SXM-80GB", "H100-SXM-80")
        write(page, broken)
        lines = broken.splitlines()
        wrong = [1 + next(i for i, line in enumerate(lines) if part in line) for part in ("rps: -3", "H100-SXM-80]")]
        expect(page.locator(".numbers .bad")).to_have_text([str(line) for line in wrong])
        expect(page.locator(".yaml-problems li")).to_have_count(2)
        expect(page.locator(".field-problem:visible")).to_have_count(2)
        expect(page.locator(".field:has(#problem-workload)")).to_contain_text("must be greater than 0")
        expect(page.get_by_role("button", name="Start the search")).to_be_disabled()

        page.click(".yaml-problems button >> nth=1")
        selected = page.evaluate("() => getSelection().toString()")
        assert selected == lines[wrong[1] - 1]
        write(page, "name: [unclosed")
        expect(page.locator(".yaml-problems li")).to_have_count(1)


def test_the_form_writes_the_yaml_and_leaves_its_comments(browser: Browser, server: Server) -> None:
    with visit(browser, server, "#/new") as page:
        write(page, SMALL)
        expect(page.get_by_label("L40S")).to_be_checked()
        page.get_by_label("A100-SXM-80GB").check()
        page.get_by_label("L40S").uncheck()
        page.get_by_label("requests/s").fill("25")
        page.get_by_role("group", name="Replicas").get_by_label("to").fill("6")
        page.get_by_label("Limit", exact=True).first.fill("900")
        page.get_by_label("Limit", exact=True).first.press("Tab")
        text = page.input_value("#yaml")
        document = yaml.safe_load(text)
        assert document["space"]["gpu"] == ["H100-SXM-80GB", "A100-SXM-80GB"]
        assert document["workload"]["arrival"] == {"process": "poisson", "rate_rps": 25}
        assert document["space"]["replicas"] == {"min": 1, "max": 6}
        assert document["slo"] == ["ttft_p90_ms <= 900", "gpus <= 4"]
        assert "# of the catalog" in text
        assert "# a range" in text
        unchanged = yaml.safe_load(SMALL)
        for path in (["gpu"], ["replicas"]):
            document["space"][path[0]] = unchanged["space"][path[0]]
        document["workload"]["arrival"] = unchanged["workload"]["arrival"]
        assert document | {"slo": unchanged["slo"]} == unchanged
        expect(page.locator(".search-status")).to_contain_text("12 combinations")


def test_a_value_is_set_in_any_layout_of_a_yaml_text(browser: Browser, server: Server) -> None:
    texts = [
        "a:\n  b:\n    c: 1  # why\n    d: 2\n\n# end\ne: 3\n",
        "a: {b: {c: 1, d: 2}}\ne: 3\n",
        "a:\n  b: {c: 1, d: 2}   # flow\ne: 3\n",
        "e: 3\na:\n    b:\n        d: 2\n        c:\n        - 1\n        - 2\n",
        "e: 3\n",
        "a:\ne: 3",
        "'a':\n  b:\n    d: 2\ne: 3",
        "# nothing but words\n",
    ]
    values = [7, "yes", "x <= 3", ["p", 1.5], {"k": [1, {"m": "a: b"}]}, "", True, None]
    with visit(browser, server) as page:
        for text in texts:
            for value in values:
                document = yaml.safe_load(text) or {}
                written = page.evaluate(
                    "([text, value, whole]) => import('/static/yaml_text.js')"
                    ".then((module) => module.withValue(text, ['a', 'b', 'c'], value, whole))",
                    [text, value, document],
                )
                inner = (document.get("a") or {}).get("b") or {}
                expected = document | {"a": {"b": inner | {"c": value}}}
                assert yaml.safe_load(written) == expected, written
                comments = re.findall("#.*", text)
                assert all(comment in written for comment in comments if comment != "# flow"), written


def test_a_running_search_is_cancelled_kept_and_resumed(browser: Browser, server: Server) -> None:
    with visit(browser, server) as page:
        submit(page, "cancelled", LONG)
        page.wait_for_selector("#plot [role=option]")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator(".chip")).to_have_text("cancelled")
        kept = points(page)
        assert kept > 0
        expect(page.locator("section h2").first).to_have_text("Answer so far")
        page.get_by_role("button", name="Resume").click()
        expect(page.locator(".chip")).to_have_text("running")
        expect(page.locator(f"#plot [role=option] >> nth={kept}")).to_be_attached()
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator(".chip")).to_have_text("cancelled")

        page.goto(f"{server.url}/#/runs")
        row = page.locator("tr", has_text="cancelled").first
        row.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
        expect(page.get_by_role("link", name="cancelled")).to_have_count(1)
        row.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_role("link", name="cancelled")).to_have_count(0)


def test_two_readers_at_once_see_each_others_searches(browser: Browser, server: Server) -> None:
    with visit(browser, server) as first, visit(browser, server) as second:
        expect(second.locator("h1")).to_have_text("Runs")
        one, two = submit(first, "of-the-first"), submit(second, "of-the-second")
        assert one != two
        for page in (first, second):
            page.goto(f"{server.url}/#/runs")
            for job in (one, two):
                row = page.locator("tr", has=page.locator(f"a[href='#/runs/{job}']"))
                expect(row.locator(".chip")).to_have_text("done")
                expect(row).to_contain_text("★ 1x1 ")


def test_a_page_comes_back_to_a_search_whose_server_was_killed(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as server, visit(browser, server, clean=False) as page:
        submit(page, "survivor", LONG)
        page.wait_for_selector("#plot [role=option]")
        server.kill()
        expect(page.locator("#link-state")).to_contain_text("does not answer")
        before = points(page)
        server.start()
        expect(page.locator("#link-state")).to_be_empty()
        expect(page.locator(".chip")).to_have_text(re.compile("running|queued|interrupted"))
        if page.get_by_role("button", name="Resume").count():
            page.get_by_role("button", name="Resume").click()
        expect(page.locator(f"#plot [role=option] >> nth={before}")).to_be_attached()
        expect(page.locator("h1")).to_have_text("survivor")


def test_two_plans_and_two_runs_are_compared(browser: Browser, server: Server, job: str) -> None:
    other = server.finished("other", SMALL.replace("rate_rps: 40", "rate_rps: 60"))
    with visit(browser, server, f"#/runs/{job}") as page:
        page.wait_for_selector("#list tbody tr")
        for _ in range(page.locator("#compare thead button").count()):
            page.locator("#compare thead button").first.click()
        expect(page.locator("#compare")).to_contain_text("Nothing is selected")
        for row in (0, 1):
            page.locator("#list tbody input").nth(row).check()
        expect(page.locator("#plot .chosen")).to_have_count(2)
        expect(page.locator("#compare thead th")).to_have_count(3)
        page.get_by_role("link", name="Latencies of").click()
        expect(page.locator(".charts figure .series")).to_have_count(8)
        expect(page.locator("main")).to_contain_text("Both serve the same requests")

        page.goto(f"{server.url}/#/runs")
        for each in (job, other):
            page.locator("tr", has=page.locator(f"a[href='#/runs/{each}']")).get_by_role("checkbox").check()
        page.get_by_role("button", name="Compare the two").click()
        expect(page.locator("main")).to_contain_text("workload.arrival.rate_rps: 40 -> 60")


def test_a_plan_shows_its_latencies_its_replicas_and_what_limits_it(browser: Browser, server: Server, job: str) -> None:
    plan = next(p for p in server.get(f"/jobs/{job}/front")["plans"] if p["parameters"]["replicas"] > 1)
    with visit(browser, server, f"#/runs/{job}/plans/{plan['id']}") as page:
        expect(page.locator("h1")).to_contain_text(f"1x{plan['parameters']['replicas']} on")
        expect(page.locator(".charts svg")).to_have_count(8)
        lines = page.locator(".charts >> nth=1").locator("figure >> nth=0").locator(".series")
        expect(lines).to_have_count(plan["parameters"]["replicas"] + 1)  # each replica, and their mean
        page.locator(".charts svg").first.hover()
        expect(page.locator(".readout").first).to_contain_text("within")
        expect(page.locator("section", has_text="What limits it").last.locator("li").first).to_contain_text("limited")
        written = server.get(f"/jobs/{job}/plans/{plan['id']}/simulation")["summary"]
        shown = page.locator("section", has_text="Other metrics").last
        expect(shown.locator("div", has_text="Completed")).to_contain_text(f"{written['completed']:,}")


def test_everything_can_be_done_from_the_keyboard(browser: Browser, server: Server, job: str) -> None:
    with visit(browser, server) as page:
        page.wait_for_selector("table.runs")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        while page.evaluate("() => document.activeElement.textContent") != "New search":
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector(".search-form input")
        while page.evaluate("() => document.activeElement.id") != "yaml":
            page.keyboard.press("Tab")
        page.keyboard.press("Control+A")
        page.keyboard.press("Delete")
        page.keyboard.insert_text(SMALL.replace("NAME", "typed").rstrip())
        page.keyboard.press("Enter")
        page.keyboard.type("seed:")
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Control+Z")
        assert page.input_value("#yaml").rstrip().endswith("seed:")
        expect(page.locator(".yaml-problems li")).not_to_have_count(0)
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(SMALL.replace("NAME", "typed"))
        expect(page.locator(".yaml-problems li")).to_have_count(0)
        expect(page.get_by_role("button", name="Start the search")).to_be_enabled()
        page.keyboard.press("Escape")
        page.keyboard.press("Tab")  # leaves the editor, which Tab alone does not
        assert page.evaluate("() => document.activeElement.textContent") == "Start the search"
        page.keyboard.press("Enter")
        page.wait_for_url("**/#/runs/*")
        expect(page.locator(".chip")).to_have_text("done")
        expect(page.locator("#count")).to_contain_text("8 plans shown")
        while page.evaluate("() => document.activeElement.id") != "plot":
            page.keyboard.press("Tab")
        page.keyboard.press("Home")
        active = page.locator("#plot").get_attribute("aria-activedescendant")
        chosen = page.locator(f"#{active}").get_attribute("aria-selected")
        expect(page.locator("#tip")).to_be_visible()
        page.keyboard.press("Enter")
        assert page.locator(f"#{active}").get_attribute("aria-selected") != chosen
        while page.evaluate("() => document.activeElement.closest('#list') && document.activeElement.tagName") != "A":
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url("**/plans/*")
        expect(page.get_by_role("link", name="Replay")).to_be_visible()


def test_a_service_with_a_token_asks_for_it(browser: Browser, tmp_path: Path) -> None:
    token = "0123456789abcdef" * 4
    with serving(tmp_path, token) as server, visit(browser, server, clean=False) as page:
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_be_visible()
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("Runs")
        page.reload()
        expect(page.locator("h1")).to_have_text("Runs")
        expect(page.locator(".empty-state")).to_contain_text("No run yet")


def test_no_view_is_wider_than_the_screen(browser: Browser, server: Server, job: str) -> None:
    plan = server.get(f"/jobs/{job}")["recommended"]
    with visit(browser, server) as page:
        views = {
            "#/runs": "table.runs", "#/new": ".search-form input", f"#/runs/{job}": ".downloads a",
            f"#/runs/{job}/plans/{plan}": ".share-bar", f"#/runs/{job}/plans/{plan}/replay": "canvas",
        }  # fmt: skip
        for address, part in views.items():
            page.goto(f"{server.url}/{address}")
            page.wait_for_selector(part)
            for width in (390, 1280):
                page.set_viewport_size({"width": width, "height": 800})
                assert page.evaluate("() => document.documentElement.scrollWidth") <= width, (address, width)
