"""The replay of routing decisions: it tells what the simulation did, and can be played, scrubbed and read."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.browser import CHROMIUM

pytest.importorskip("playwright.sync_api", reason="needs playwright")
from playwright.sync_api import Browser, Locator, Page, expect

from tests.page_server import SMALL, Server, chromium, serving, visit

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium (chromium, chromium-browser, google-chrome)")

GUTTER = 76  # pixels left of the lanes
# Three replicas with few seats, and prefixes that a router may or may not keep together.
CROWDED = (
    SMALL.replace("NAME", "crowded")
    .replace("{min: 1, max: 4}   # a range", "[3]\n  max_num_seqs: 4")
    .replace("[L40S, H100-SXM-80GB]", "[H100-SXM-80GB]")
    .replace("ttft_p90_ms <= 2000", "ttft_p90_ms <= 200000")
    .replace("num_requests: 120", "num_requests: 240")
)


# Prompts that a pool of their own computes, unless most of it is cached.
POOLED = (
    CROWDED.replace("crowded", "pooled")
    .replace("[3]\n  max_num_seqs: 4", "2\n  prefill_replicas: 1\n  gateway: llm-d")
    .replace("routing: round-robin", "disaggregation: {name: prefix-based, non_cached_tokens: 400}")
)


# More prefixes than fit into a small GPU's memory, and a host that keeps what is evicted.
TIERED = (
    SMALL.replace("NAME", "tiered")
    .replace("num_groups: 6", "num_groups: 12")
    .replace("system_prompt_len: 800", "system_prompt_len: 6000")
    .replace("rate_rps: 40", "rate_rps: 1")
    .replace("[L40S, H100-SXM-80GB]", "L4")
    .replace("{min: 1, max: 4}", "1\n  kv_offload: {name: tiered, host_gib: 60}")
    .replace("ttft_p90_ms <= 2000", "ttft_p90_ms <= 200000")
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("service")) as started:
        yield started


@pytest.fixture(scope="module")
def address(server: Server) -> str:
    job = server.finished("crowded", CROWDED)
    return f"/jobs/{job}/plans/{server.get(f'/jobs/{job}')['recommended']}"


@pytest.fixture(scope="module")
def replay(server: Server, address: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get(f"{address}/replay")
    return found


@pytest.fixture
def page(browser: Browser, server: Server, address: str) -> Iterator[Page]:
    with visit(browser, server, f"#{address.replace('/jobs', '/runs')}/replay") as page:
        expect(page.locator("canvas")).to_have_count(1)
        yield page


def moments(replay: dict[str, Any]) -> dict[str, np.ndarray]:
    """The columns of times in ms since the start, nan where they did not come."""
    tick, columns = replay["tick_ms"], replay["requests"]
    arrival = np.array(columns["arrival"]) * tick
    found = {"arrival": arrival}
    for name in ("queued", "scheduled", "first_token", "finish"):
        ticks = np.array(columns[name], dtype=float)
        found[name] = np.where(ticks < 0, np.nan, arrival + ticks * tick)
    return found


def counter(page: Page, name: str, pane: int = 0) -> Locator:
    counters = page.locator(".pane").nth(pane).locator(".counters div")
    return counters.filter(has=page.locator(f"dt >> text='{name}'")).locator("dd")


def reading(page: Page, name: str, pane: int = 0) -> float:
    return float(re.sub("[^0-9.]", "", counter(page, name, pane).inner_text()))


def scrub(page: Page, ms: float) -> None:
    move = """(ms) => {
        const bar = document.querySelector('.scrub input');
        bar.value = ms;
        bar.dispatchEvent(new Event('input'));
    }"""
    page.evaluate(move, ms)
    expect(page.locator(".time")).to_contain_text(f"{ms / 1000:.1f} s of")


def picture(page: Page) -> str:
    """What the canvas shows once it does not change any more."""
    settled = """async () => {
        const canvas = document.querySelector('canvas');
        for (let before = ''; ;) {
            await new Promise(requestAnimationFrame);
            await new Promise(requestAnimationFrame);
            const now = canvas.toDataURL();
            if (now === before) return now;
            before = now;
        }
    }"""
    shown: str = page.evaluate(settled)
    return shown


def test_counters_say_what_the_requests_say_at_every_moment(page: Page, replay: dict[str, Any]) -> None:
    at, columns = moments(replay), replay["requests"]
    ttft = at["first_token"] - at["arrival"]
    for share in (0.1, 0.5, 0.9):
        now = round(replay["duration_ms"] * share, -2) + 0.05  # between two ticks
        scrub(page, now)
        started = at["first_token"] <= now
        assert reading(page, "mean TTFT so far") == pytest.approx(ttft[started].mean(), rel=0.006)
        looked = at["scheduled"] <= now
        hit_rate = np.sum(np.array(columns["cached_tokens"])[looked]) / np.sum(
            np.array(columns["prompt_tokens"])[looked]
        )
        assert reading(page, "hit rate so far") == pytest.approx(100 * hit_rate, rel=0.006)
        queued, finished = np.sum(at["queued"] <= now), np.sum(at["finish"] <= now)
        expect(counter(page, "waiting")).to_have_text(f"{queued - np.sum(looked)}")
        expect(counter(page, "running")).to_have_text(f"{np.sum(looked) - finished}")
        expect(counter(page, "completed")).to_have_text(f"{finished}")


def test_no_two_bars_of_a_replica_lie_on_each_other(page: Page, replay: dict[str, Any]) -> None:
    read = """(data) => import("/static/replay_run.js").then((run) => new run.ReplayRun(data).lanes.map((lane) => ({
        rows: lane.rows, peak: lane.peakWaiting, indexes: [...lane.indexes], row: [...lane.row],
        from: [...lane.shownFrom], to: [...lane.ends],
    })))"""
    lanes = page.evaluate(read, replay)
    at, drawn = moments(replay), 0
    assert max(lane["peak"] for lane in lanes) > 3  # so crowded that some wait without a row
    for lane in lanes:
        order = sorted(range(len(lane["row"])), key=lambda k: (lane["row"][k], lane["from"][k]))
        for one, two in itertools.pairwise(order):
            assert lane["row"][one] != lane["row"][two] or lane["to"][one] <= lane["from"][two]
        for k, index in enumerate(lane["indexes"]):
            assert 0 <= lane["row"][k] < lane["rows"]
            assert at["queued"][index] <= lane["from"][k] <= at["scheduled"][index]
            assert lane["to"][k] == pytest.approx(at["finish"][index])
            drawn += 1
    assert drawn == replay["count"]


def test_it_plays_pauses_and_moves_by_the_keyboard(page: Page, replay: dict[str, Any]) -> None:
    canvas, time = page.locator("canvas"), page.locator(".time")
    canvas.focus()
    page.select_option(".replay-bar select >> nth=0", "10")
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(time).not_to_have_text(time.inner_text())
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    paused = time.inner_text()
    page.keyboard.press("Shift+ArrowRight")
    expect(time).not_to_have_text(paused)
    page.keyboard.press("Home")
    expect(time).to_contain_text("0.0 s of")
    page.keyboard.press("End")
    expect(time).to_contain_text(f"{max(moments(replay)['finish']) / 1000:.1f} s of")
    expect(counter(page, "completed")).to_have_text(str(replay["count"]))
    for _ in range(10):
        page.keyboard.press("ArrowUp")
    assert page.input_value(".replay-bar select >> nth=0") == "1000"
    page.keyboard.press("Space")  # from the end it begins anew, and is soon through
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    expect(time).to_contain_text(f"{max(moments(replay)['finish']) / 1000:.1f} s of")


def test_a_request_is_described_under_the_pointer_and_from_the_keyboard(page: Page, replay: dict[str, Any]) -> None:
    page.locator("canvas").focus()
    for _ in range(3):
        page.keyboard.press(".")
    tip = page.locator(".canvas-box .tip")
    expect(tip).to_contain_text("request 2")
    columns = replay["requests"]
    expect(tip).to_contain_text(f"r{columns['replica'][2]}")
    expect(tip).to_contain_text(f"{columns['prompt_tokens'][2]:,} in")
    expect(page.locator("[aria-live=polite].visually-hidden")).to_contain_text("Request 2: replica")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()

    page.keyboard.press("End")
    box = page.locator("canvas").bounding_box()
    assert box is not None
    at = moments(replay)
    middle = (at["scheduled"][40] + at["finish"][40]) / 2
    x = box["x"] + GUTTER + (box["width"] - GUTTER) * middle / max(at["finish"])
    shown = set()
    for y in range(int(box["y"]) + 2, int(box["y"] + box["height"]) - 26, 4):
        page.mouse.move(x, y)
        if tip.is_visible():
            shown.add(tip.locator("b").inner_text())
    assert "request 40" in shown


def test_two_policies_run_side_by_side_on_one_clock(page: Page, replay: dict[str, Any]) -> None:
    page.select_option("#against", "weighted")
    expect(page.locator(".pane")).to_have_count(2)
    expect(page.locator("figcaption b")).to_have_text(["round-robin", "weighted"])
    page.locator("canvas").first.focus()
    page.keyboard.press("End")
    for pane in (0, 1):
        expect(counter(page, "completed", pane)).to_have_text(str(replay["count"]))
    # What weighs prefixes finds more of them.
    assert reading(page, "hit rate so far", 1) > reading(page, "hit rate so far", 0)
    page.keyboard.press(".")
    expect(page.locator(".canvas-box .tip:visible")).to_have_count(1)
    assert "with=weighted" in page.url
    page.reload()
    expect(page.locator("figcaption b")).to_have_text(["round-robin", "weighted"])
    page.select_option("#against", "")
    expect(page.locator(".pane")).to_have_count(1)


def test_what_is_drawn_has_the_colours_of_the_sources(page: Page, replay: dict[str, Any]) -> None:
    page.locator("canvas").focus()
    page.keyboard.press("End")
    picture(page)
    counted = """(sources) => import('/static/replay_colours.js').then(({ palette }) => {
        const canvas = document.querySelector('canvas'), seen = new Map();
        const { data } = canvas.getContext('2d').getImageData(80, 0, canvas.width - 80, canvas.height - 30);
        for (let i = 0; i < data.length; i += 4) {
            const key = `rgb(${data[i]} ${data[i + 1]} ${data[i + 2]})`;
            seen.set(key, (seen.get(key) ?? 0) + 1);
        }
        return palette(sources).phases.map(({ prefill, decode }) => [seen.get(prefill) ?? 0, seen.get(decode) ?? 0]);
    })"""
    colours = page.evaluate(counted, replay["sources"])
    present = np.bincount(replay["requests"]["source"], minlength=len(replay["sources"]))
    assert present[replay["sources"].index("cache")] > 0
    for count, (prefill, decode) in zip(present, colours, strict=True):
        assert (decode > 0) == (count > 0), json.dumps(colours)
        assert (prefill > 0) <= (count > 0)
    assert sum(prefill for prefill, _ in colours) > 0


def test_zooming_and_panning_show_another_part_of_the_same_run(page: Page) -> None:
    canvas = page.locator("canvas")
    canvas.focus()
    page.keyboard.press("End")
    whole = picture(page)
    for _ in range(6):
        page.keyboard.press("+")
    zoomed = picture(page)
    assert zoomed != whole
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 200, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 100)
    page.mouse.up()
    page.mouse.move(0, 0)
    assert picture(page) not in (zoomed, whole)
    page.get_by_role("button", name="Whole run").click()
    assert picture(page) == whole


def test_a_prompt_that_a_prefill_pool_computed_is_in_a_lane_of_each_pool(browser: Browser, server: Server) -> None:
    job = server.finished("pooled", POOLED)
    plan = server.get(f"/jobs/{job}")["recommended"]
    replay = server.get(f"/jobs/{job}/plans/{plan}/replay")
    columns, remote = replay["requests"], replay["sources"].index("remote")
    sent = [replica >= 0 for replica in columns["prefill_replica"]]
    assert 0 < sum(sent) < len(sent)
    assert [source == remote for source in columns["source"]] == sent
    for index in itertools.compress(range(len(sent)), sent):
        moments = [columns[f"prefill_{name}"][index] for name in ("queued", "scheduled", "finish")]
        moments += [columns[name][index] for name in ("queued", "scheduled", "finish")]
        assert moments == sorted(moments)
        assert columns["prefill_source"][index] in range(len(replay["sources"]))
    with visit(browser, server, f"#/runs/{job}/plans/{plan}/replay") as page:
        expect(page.locator(".legend")).to_contain_text("computed by the prefill pool")
        page.locator("canvas").focus()
        for _ in range(sent.index(True) + 1):
            page.keyboard.press(".")
        tip = page.locator(".canvas-box .tip")
        expect(tip).to_contain_text(f"d{columns['replica'][sent.index(True)]}")
        expect(tip).to_contain_text("p0, ")
        page.keyboard.press("End")
        expect(counter(page, "completed")).to_have_text(str(replay["count"]))
        expect(counter(page, "running")).to_have_text("0")


def test_prefixes_that_were_loaded_from_the_host_are_told_from_those_in_the_gpu(
    browser: Browser, server: Server
) -> None:
    job = server.finished("tiered", TIERED)
    plan = server.get(f"/jobs/{job}")["recommended"]
    replay = server.get(f"/jobs/{job}/plans/{plan}/replay")
    columns, host = replay["requests"], replay["sources"].index("host")
    loaded = [index for index, source in enumerate(columns["source"]) if source == host]
    assert loaded
    assert all(columns["loaded_tokens"][index] > columns["cached_tokens"][index] for index in loaded)
    with visit(browser, server, f"#/runs/{job}/plans/{plan}/replay") as page:
        expect(page.locator(".legend")).to_contain_text("loaded from the host's memory")
        page.locator("canvas").focus()
        for _ in range(loaded[0] + 1):
            page.keyboard.press(".")
        expect(page.locator(".canvas-box .tip")).to_contain_text(f"{columns['loaded_tokens'][loaded[0]]:,} loaded")
