"""The feed desk as its users meet it: from a pull to the page, and a join of feeds in a budget that they do not fit.

feed server (loopback) ── pulled by ── console: scanner, query, events ──> a client that reads events
     notes when it served an item                                    └──> Chromium, which notes when the map has its mark
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.process import peak_rss, reset_peak, rss

SERVED = 80  # items that come one after the other
GAP = 0.25  # seconds between two
_INTERVAL = "200ms"  # between two pulls, so that the next item is not there before the last was pulled
_PATIENCE = 120.0  # seconds
BUDGET = (
    32 << 20
)  # bytes of the join, of which keys of items take 16 each, twice that while they grow: they stay in memory
JOINED = 200_000  # items of both feeds together, some 60 MB
_WARM = 8_000  # items that are joined before, so that all is imported and loaded
_BATCH = 2_000  # items of a document
_MARKS = """() => { const map = document.getElementById("map"); window.noted = [];
  new MutationObserver(() => window.noted.push([Date.now(), Number(map.dataset.marks)])).observe(map, {attributes: true}); }"""


class _FeedServer:
    """Two feeds on loopback: one with a place, and one that has an item more whenever it is told."""

    def __init__(self) -> None:
        self.count = 0
        self.served: dict[int, float] = {}
        feed = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                count = feed.count
                content = _document(count if self.path == "/items" else SERVED)
                if self.path == "/items" and count:
                    feed.served.setdefault(count, time.clock_gettime(time.CLOCK_REALTIME))
                self.send_response(200)
                self.send_header("Content-Type", "application/rss+xml")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


def _document(count: int) -> bytes:
    items = "".join(
        f"<item><guid>{i}</guid><title>item {i}</title><georss:point>{i % 60} {i % 150}</georss:point></item>"
        for i in range(1, count + 1)
    )
    space = 'xmlns:georss="http://www.georss.org/georss"'
    return f'<rss version="2.0" {space}><channel><title>Items</title>{items}</channel></rss>'.encode()


@contextmanager
def _console(state: Path, feeds: str) -> Iterator[tuple[int, str]]:
    from headrace.console.app import Console
    from headrace.console.opening import open_desk
    from headrace.console.server import ConsoleServer, Listening

    opened = open_desk(state, interval=_INTERVAL, allow_private=True)
    opened.room.save(
        "pairs",
        f"SELECT a.title FROM rss('{feeds}/items') a, rss('{feeds}/places') b WHERE a.title = b.title",
        run=True,
    )
    listening = Listening()
    server = ConsoleServer(Console(opened.room, token="bench", clock=opened.clock), listening)
    with listening.bind() as listener:
        thread = threading.Thread(target=server.serve_on, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1], listening.address(listener, "bench")
        server.stop()
        thread.join(_PATIENCE)


async def _follow(port: int, seen: dict[int, float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    writer.write(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async for line in reader:
        now = time.clock_gettime(time.CLOCK_REALTIME)
        if line.startswith(b"data: ") and b'"rows"' in line:
            for row in json.loads(line[6:])["rows"]:
                seen.setdefault(row["n"], now)
            if len(seen) >= SERVED:
                break
    writer.close()


async def _let_items_come(feed: _FeedServer, port: int) -> dict[int, float]:
    seen: dict[int, float] = {}
    following = asyncio.create_task(_follow(port, seen))
    for _ in range(SERVED):
        feed.count += 1
        await asyncio.sleep(GAP)
        while feed.count not in feed.served:
            await asyncio.sleep(0.01)
    await asyncio.wait_for(following, _PATIENCE)
    return seen


def delay(_feeds: int) -> dict[str, Any]:
    """Seconds from the moment that an item was served to that at which a client has its event."""
    feed = _FeedServer()
    with tempfile.TemporaryDirectory() as state, _console(Path(state), feed.base) as (port, _):
        seen = asyncio.run(_let_items_come(feed, port))
    return {"delays": [seen[n] - feed.served[n] for n in range(1, SERVED + 1)]}


def browser_delay(_feeds: int) -> dict[str, Any]:
    """Seconds from the moment that an item was served to that at which the map of a page has both of its marks."""
    from tests.support.browser import find_chromium, open_browser, open_page

    if find_chromium() is None:
        return {"error": "no Chromium on this machine"}
    feed = _FeedServer()
    with (
        tempfile.TemporaryDirectory() as state,
        _console(Path(state), feed.base) as (port, address),
        open_browser() as browser,
        open_page(browser, address) as watched,
    ):
        watched.page.wait_for_selector("#link[data-state=live]")
        watched.page.evaluate(_MARKS)
        come = threading.Thread(target=lambda: asyncio.run(_let_items_come(feed, port)))
        come.start()
        watched.page.wait_for_selector(f'#map[data-marks="{2 * SERVED}"]', timeout=_PATIENCE * 1000)
        come.join()
        noted = watched.page.evaluate("window.noted")
    when = {n: next(at / 1000 for at, marks in noted if marks >= 2 * n) for n in range(1, SERVED + 1)}
    return {"delays": [when[n] - feed.served[n] for n in range(1, SERVED + 1)]}


def _items(first: int, count: int, url: str) -> pa.RecordBatch:
    from headrace.feeds.items import ITEM_SCHEMA

    numbers = [str(i) for i in range(first, first + count)]
    moment = datetime(2026, 6, 1, tzinfo=UTC)
    columns = {
        "guid": numbers,
        "title": [f"item {number} of a feed" for number in numbers],
        "description": [f"what item {number} says at some length, as descriptions do. " * 4 for number in numbers],
        "feed": [url] * count,
        "seen": [moment] * count,
    }
    return pa.record_batch(
        [pa.array(columns.get(f.name, [None] * count), f.type) for f in ITEM_SCHEMA], schema=ITEM_SCHEMA
    )


def memory(_feeds: int) -> dict[str, Any]:
    """Memory of a join of two feeds whose items do not fit the budget, in a process that has joined before."""
    joined(_WARM, 4 << 20)
    reset_peak()
    before = rss()
    found = joined(JOINED, BUDGET)
    found |= {"budget": BUDGET, "items": JOINED, "growth": peak_rss() - before}
    wrong = None if found["results"] == JOINED // 2 else f"{found['results']:,} results, not {JOINED // 2:,}"
    return {**found, "error": wrong} if wrong else found


def joined(count: int, budget: int) -> dict[str, Any]:
    """Join so many items of two feeds."""
    from headrace.feeds.sql import parse_query

    urls = ("https://left.example/", "https://right.example/")
    text = "SELECT a.title, b.description FROM rss('{}') a, rss('{}') b WHERE a.title = b.title".format(*urls)
    results, seconds, peak = 0, 0.0, 0
    with tempfile.TemporaryDirectory() as spill:
        operator = parse_query(text).operator(budget, spill=Path(spill))
        for first in range(0, count // 2, _BATCH):
            for url in urls:
                items = _items(first, _BATCH, url)
                begun = time.perf_counter()
                results += sum(batch.num_rows for batch in operator.insert(url, items))
                seconds += time.perf_counter() - begun
                peak = max(peak, operator.memory)
        return {"peak": peak, "spilled": operator.spilled, "results": results, "seconds": seconds}


def percentile(delays: list[float], part: float) -> float:
    return float(np.quantile(delays, part))
