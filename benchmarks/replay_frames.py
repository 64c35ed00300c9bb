"""How smooth the page's replay is: time between frames in headless Chromium, two policies on the same requests.

    python benchmarks/replay_frames.py [REQUESTS [REPLICAS]]

Plays a simulated plan (20,000 requests on 16 replicas unless told otherwise) at 1280x800, zooming in as it goes, then
scrubs and pans; prints the time between frames (`requestAnimationFrame`, 16.7 ms at best) of each.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import Page

from tests.page_server import SMALL, chromium, serving, visit

FRAMES = 400
SEARCH_S = 600
START = """() => {
    window.gaps = [];
    let last = 0;
    const next = (now) => {
        if (last) window.gaps.push(now - last);
        last = now;
        requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
}"""


def space(requests: int, replicas: int) -> str:
    """One candidate that is kept busy, with prefixes to route by."""
    text = SMALL.replace("NAME", "frames").replace("num_requests: 120", f"num_requests: {requests}")
    text = text.replace("num_groups: 6", "num_groups: 60").replace("output_len: 60", "output_len: 200")
    text = text.replace("rate_rps: 40", f"rate_rps: {12 * replicas}").replace("gpus <= 4", f"gpus <= {replicas}")
    text = text.replace("gpu: [L40S, H100-SXM-80GB]", "gpu: H100-SXM-80GB")
    return text.replace("{min: 1, max: 4}", str(replicas)).replace("ttft_p90_ms <= 2000", "ttft_p90_ms <= 1000000")


def report(page: Page, what: str) -> None:
    """Print the time between the frames since the last report, in ms."""
    gaps = np.array(page.evaluate("() => window.gaps.splice(0)"))
    p50, p95, p99 = np.percentile(gaps, [50, 95, 99])
    print(f"{what:<28} {len(gaps):>5} frames  p50 {p50:5.1f}  p95 {p95:5.1f}  p99 {p99:5.1f}  max {gaps.max():6.1f} ms")


def frames(page: Page, count: int) -> None:
    """Wait until that many frames were measured."""
    while page.evaluate("() => window.gaps.length") < count:
        page.wait_for_timeout(50)


def main(requests: int = 20_000, replicas: int = 16) -> None:
    """Simulate, open the replay, and measure."""
    with tempfile.TemporaryDirectory() as data, serving(Path(data)) as server, chromium() as browser:
        job = server.finished("frames", space(requests, replicas), within_s=SEARCH_S)
        plan = server.get(f"/jobs/{job}")["recommended"]
        with visit(browser, server, f"#/runs/{job}/plans/{plan}/replay?with=weighted") as page:
            page.set_default_timeout(1000 * SEARCH_S)
            page.wait_for_selector(".pair canvas")
            canvas = page.locator("canvas").first
            box = canvas.bounding_box()
            assert box is not None
            canvas.focus()
            page.evaluate(START)
            page.keyboard.press("Space")
            frames(page, FRAMES // 2)
            report(page, "whole run, playing at 100x")
            page.select_option(".replay-bar select >> nth=0", "10")
            canvas.focus()
            for _ in range(5):
                page.keyboard.press("+")
                frames(page, page.evaluate("() => window.gaps.length") + FRAMES // 8)
            report(page, "zooming in, playing at 10x")
            frames(page, FRAMES)
            report(page, "zoomed in, playing at 10x")
            page.keyboard.press("Space")
            page.mouse.move(box["x"] + 500, box["y"] + 300)
            page.mouse.down()
            for step in range(FRAMES // 4):
                page.mouse.move(box["x"] + 500 - 4 * step, box["y"] + 300)
            page.mouse.up()
            report(page, "panning")
            scrub = page.locator(".scrub input").bounding_box()
            assert scrub is not None
            page.mouse.move(scrub["x"] + 5, scrub["y"] + scrub["height"] / 2)
            page.mouse.down()
            for step in range(FRAMES // 4):
                share = step / (FRAMES // 4)
                page.mouse.move(scrub["x"] + 5 + share * (scrub["width"] - 10), scrub["y"] + scrub["height"] / 2)
            page.mouse.up()
            report(page, "scrubbing")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
