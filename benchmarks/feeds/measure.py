"""Measures one system on feeds: ``python -m benchmarks.feeds.measure SYSTEM KIND FEEDS``. Prints JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from benchmarks.feeds import FEEDPARSER, ITEMS, OURS
from benchmarks.feeds.desk import browser_delay, delay, memory
from benchmarks.feeds.documents import document
from benchmarks.isolation import pin
from benchmarks.process import peak_rss, reset_peak, rss

_SEEN = datetime(2026, 6, 1, tzinfo=UTC)
_TOGETHER = 100  # documents that are made before they are parsed: making them is not measured
_SLOWER = 100  # one feed in so many is given to feedparser, which has the same rate on all


def parse(number: int, content: bytes) -> int:
    """Our parser: items with a place, which no parser may lose."""
    from headrace.feeds import parse_feed

    items = parse_feed(content, f"http://feed{number}.example/", seen=_SEEN).items
    return items.num_rows - items.column("box").null_count


def parse_and_hash(number: int, content: bytes) -> int:
    """The same with what the scanner asks for: who an item is, and what it says."""
    from headrace.feeds import parse_feed
    from headrace.feeds.items import contents, identities

    items = parse_feed(content, f"http://feed{number}.example/", seen=_SEEN).items
    return min(len(identities(items)), len(contents(items)))


def parse_feedparser(number: int, content: bytes) -> int:
    import feedparser

    return sum("geo_lat" in entry or "where" in entry for entry in feedparser.parse(content).entries)


def _parsing(parser: Callable[[int, bytes], int], share: int = 1) -> Callable[[int], dict[str, Any]]:
    def run(feeds: int) -> dict[str, Any]:
        count = max(1, feeds // share)
        parser(0, document(0))
        reset_peak()
        before, seconds, items, size = rss(), 0.0, 0, 0
        for first in range(0, count, _TOGETHER):
            numbers = range(first, min(first + _TOGETHER, count))
            documents = [document(number) for number in numbers]
            size += sum(map(len, documents))
            begun = time.process_time()
            items += sum(parser(number, content) for number, content in zip(numbers, documents, strict=True))
            seconds += time.process_time() - begun
        wrong = None if items == count * ITEMS else f"{items:,} items with a place, not {count * ITEMS:,}"
        found = {"feeds": count, "items": items, "seconds": seconds, "bytes": size, "growth": peak_rss() - before}
        return {**found, "error": wrong} if wrong else found

    return run


#: What is measured, by system and kind; each takes the number of feeds.
MEASURED: dict[tuple[str, str], Callable[[int], dict[str, Any]]] = {
    (OURS, "parse"): _parsing(parse),
    ("headrace, with hashes", "parse"): _parsing(parse_and_hash),
    (FEEDPARSER, "parse"): _parsing(parse_feedparser, _SLOWER),
    (OURS, "delay"): delay,
    ("headrace, in Chromium", "delay"): browser_delay,
    (OURS, "memory"): memory,
}


def main(system: str, kind: str, feeds: str) -> None:
    if kind == "parse":
        pin(0)
    sys.stdout.write(json.dumps(MEASURED[system, kind](int(feeds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
