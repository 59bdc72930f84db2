"""How fast the page opens and moves a large graph in Debian's chromium."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.browser.conftest import CHROMIUM, FLAGS
from tests.webapp.server import Browser, Server

TITLE = "ResNet-50 (1,755 instructions) in the page, chromium without a GPU"
LONG = False

OPENINGS = 5
PAN_SECONDS = 4.0
# Frame times while the mouse drags the graph; collected by the page itself.
RECORD = """() => {
    const times = [];
    let last = performance.now();
    window.frames_seen = times;
    const tick = (now) => { times.push(now - last); last = now; requestAnimationFrame(tick); };
    requestAnimationFrame(tick);
}"""


def rows(done: list[dict]) -> Iterator[dict]:
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        server = Server(Path(home))
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        try:
            server.start()
            graph = Browser(server.address).example("resnet50")
            page = chromium.new_page(viewport={"width": 1440, "height": 900})
            yield {"measure": "click to drawn graph", **spread([opening(page, server) for _ in range(OPENINGS)], "s")}
            for view in ("groups closed", "all groups open"):
                page.goto(f"{server.address}/graphs/{graph['id']}")
                page.wait_for_selector('[data-testid=graph-canvas]:not([data-nodes="0"])')
                if view == "all groups open":
                    page.get_by_role("button", name="Open all").click()
                    page.wait_for_timeout(3000)
                nodes = page.get_attribute("[data-testid=graph-canvas]", "data-nodes")
                yield {"measure": f"frame while panning, {view}", "nodes": int(nodes or 0), **spread(pan(page), "ms")}
        finally:
            chromium.close()
            server.close()


def opening(page: Page, server: Server) -> float:
    page.goto(server.address)
    link = page.get_by_test_id("graph-row").filter(has_text="ResNet-50").get_by_role("link").first
    link.wait_for()
    started = time.perf_counter()
    link.click()
    page.wait_for_selector('[data-testid=graph-canvas]:not([data-nodes="0"])')
    return time.perf_counter() - started


def pan(page: Page) -> list[float]:
    box = page.get_by_test_id("graph-canvas").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + 20
    page.evaluate(RECORD)
    page.mouse.move(x, y)
    page.mouse.down()
    until = time.monotonic() + PAN_SECONDS
    place = 0
    while time.monotonic() < until:
        place += 1
        page.mouse.move(x + 150 * ((place // 30) % 2 * 2 - 1) * (place % 30) / 30, y + place % 60)
    page.mouse.up()
    frames: list[float] = page.evaluate("() => window.frames_seen")
    return frames


def spread(values: list[float], unit: str) -> dict[str, float]:
    ordered = sorted(values)
    return {
        f"median_{unit}": round(statistics.median(ordered), 2),
        f"p95_{unit}": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 2),
    }
