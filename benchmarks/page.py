"""How soon a browser shows 1,000 nodes, and how soon it shows what is decided then.

The server is told its frames in this process: what the daemon adds is measured by benchmarks/view.py.
"""

from __future__ import annotations

import shutil
import time
from typing import Final

from playwright.sync_api import Page, sync_playwright

from benchmarks.figures import Figure, middle
from tests.io.serve.page.served_page import (
    PageServer,
    decision_made,
    gang_put,
    page_server,
    populate,
)

NODES: Final = 1_000
GANGS: Final = 2_000
TIMES: Final = 5
MAX_S: Final = 1.0


def measure() -> list[Figure]:
    """Seconds to the first words, to all of the cluster, and to a decision on an open page."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("no chromium to read the page with: apt-get install chromium")
    with (
        page_server(*populate(NODES, GANGS, now=time.time())) as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        opened = [_open(page, server) for _ in range(TIMES)]
        updates = [_update(page, server, number) for number in range(TIMES)]
        browser.close()
    paints, wholes = zip(*opened, strict=True)
    what = f"page of {NODES:,} nodes and {GANGS:,} gangs"
    return [
        _figure(f"{what}: first paint", paints),
        _figure(f"{what}: all of it read and drawn", wholes),
        _figure(f"{what}: from a decision told to the server to its line on the page", updates),
    ]


def _open(page: Page, server: PageServer) -> tuple[float, float]:
    page.goto("about:blank")
    began = time.perf_counter()
    page.goto(server.url)
    page.wait_for_selector("body[data-phase=live]")
    whole = time.perf_counter() - began
    entry = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    return page.evaluate(entry) / 1000, whole


def _update(page: Page, server: PageServer, number: int) -> float:
    page.goto(f"{server.url}#/changes")
    page.wait_for_selector("#decisions .rows")
    sentence = f"decision number {number} of the benchmark"
    decision = decision_made(f"new-{number}", event="waits", message=sentence, now=time.time())
    began = time.perf_counter()
    server.take(gang_put(f"new-{number}"), decision)
    page.get_by_text(sentence).wait_for()
    return time.perf_counter() - began


def _figure(name: str, seconds: tuple[float, ...] | list[float]) -> Figure:
    measured, spread = middle(list(seconds))
    return Figure(
        name=name,
        measured=measured,
        unit="s",
        spread=spread,
        target=f"< {MAX_S:g} s",
        met=max(seconds) < MAX_S,
    )
