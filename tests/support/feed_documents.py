"""Documents of feeds, made of pairs of guid and text; and the oracle of what a scanner must log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.feeds.recorded import record

START = datetime(2024, 5, 1, tzinfo=UTC)
Items = Sequence[tuple[str, str]]


def rss(items: Items, *, title: str = "feed", ttl: int | None = None) -> bytes:
    """An RSS 2.0 document with an item for each pair of guid and text."""
    wait = "" if ttl is None else f"<ttl>{ttl}</ttl>"
    body = "".join(f"<item><guid>{guid}</guid><title>{text}</title></item>" for guid, text in items)
    return f'<rss version="2.0"><channel><title>{title}</title>{wait}{body}</channel></rss>'.encode()


def seen_in(pulls: Iterable) -> list[tuple[str, str, str]]:
    """Feed, guid and text of all items of pulls, in their order."""
    return [
        (pull.url, item["guid"], item["title"])
        for pull in pulls
        for item in pull.items.select(["guid", "title"]).to_pylist()
    ]


def record_feeds(directory: Path, urls: Sequence[str], *, steps: int) -> list[tuple[str, str, str]]:
    """Record feeds whose items come, change and go, a document a minute; returns the items that must be logged, sorted."""
    expected = set()
    for step in range(steps):
        for n, url in enumerate(urls):
            newest = step // (n + 1)  # feeds change at different speeds
            items = [
                (f"g{i}", f"text {i} version {(step - i) // 4 if i % 3 == 0 else 0}")
                for i in range(max(0, newest - 3), newest + 1)
            ]
            expected |= {(url, guid, text) for guid, text in items}
            record(directory, url, START + timedelta(minutes=step), rss(items, title=f"feed {n}"))
    return sorted(expected)
