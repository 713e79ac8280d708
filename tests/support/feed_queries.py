"""Items, recordings and oracles for queries over feeds."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.sax.saxutils import escape

import pyarrow as pa

from headrace.clock import ManualClock
from headrace.feeds.desk import Desk
from headrace.feeds.items import ITEM_SCHEMA
from headrace.feeds.recorded import RecordedFetcher, record
from headrace.feeds.scanner import Scanner
from headrace.feeds.schedule import Schedule
from headrace.feeds.sql import parse_query
from headrace.feeds.store import FeedStore

START = datetime(2026, 7, 1, tzinfo=UTC)


def items(url: str, *rows: dict, minute: float = 0) -> pa.RecordBatch:
    """Items of a feed that were seen some minutes after START; a point has its box."""
    made = []
    for number, row in enumerate(rows):
        row = {"feed": url, "seen": START + timedelta(minutes=minute), "guid": f"{minute}/{number}", **row}
        if row.get("geoLat") is not None and "box" not in row:
            x, y = row.get("geoLong"), row["geoLat"]
            row["box"] = {"xmin": x, "ymin": y, "xmax": x, "ymax": y}
        made.append(row)
    return pa.RecordBatch.from_pylist(made, schema=ITEM_SCHEMA)


def run(text: str, *pulls: tuple[str, pa.RecordBatch], once: bool = False, memory: str = "8MiB") -> list[dict]:
    """The results of a query over items that come in this order, as rows without ids and places."""
    plan = parse_query(text, once=once)
    operator = plan.operator(memory)
    batches = [batch for url, batch in pulls for batch in operator.insert(url, batch)]
    batches += list(operator.finish()) if once else []
    return [row for batch in batches for row in batch.select(plan.output.names).to_pylist()]


def values(text: str, *pulls: tuple[str, pa.RecordBatch], **options) -> list[tuple]:
    """The same as tuples."""
    return [tuple(row.values()) for row in run(text, *pulls, **options)]


def document(*rows: dict) -> bytes:
    """An RSS document of items with guid, title and perhaps lat and long."""
    out = []
    for row in rows:
        place = f"<geo:lat>{row['lat']}</geo:lat><geo:long>{row['long']}</geo:long>" if "lat" in row else ""
        out.append(
            f"<item><guid>{escape(row['guid'])}</guid><title>{escape(row['title'])}</title>"
            f"<description>{escape(row.get('description', ''))}</description>{place}</item>"
        )
    space = 'xmlns:geo="http://www.w3.org/2003/01/geo/wgs84_pos#"'
    return f'<rss version="2.0" {space}><channel><title>t</title>{"".join(out)}</channel></rss>'.encode()


class RecordedDesk:
    """A desk over recorded pulls with a manual clock, which can be closed and made again."""

    def __init__(self, recording: Path, state: Path, **options) -> None:
        self.recording, self.state, self.options = recording, state, options
        self.clock = ManualClock(START.timestamp())

    def desk(self) -> Desk:
        """A desk on the state as it is."""
        fetcher = RecordedFetcher(self.recording, self.clock)
        store = FeedStore(self.state, clock=self.clock)
        scanner = Scanner(fetcher, store, schedule=Schedule(interval=60.0), listed=False, host_gap=0, commit_gap=0)
        return Desk(self.state, scanner, **self.options)

    def run(self, desk: Desk, minutes: float) -> None:
        """Let a desk work until so many minutes after START."""
        asyncio.run(desk.run(START + timedelta(minutes=minutes)))


def record_feed(recording: Path, url: str, minute: float, *rows: dict) -> None:
    """Record what a feed says some minutes after START."""
    record(recording, url, START + timedelta(minutes=minute), document(*rows))
