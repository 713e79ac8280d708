"""Replaying the day: a fetcher that answers as its feeds did, and the queries that are ready."""

from __future__ import annotations

import hashlib

from headrace.clock import Clock
from headrace.console.demo.day import Day
from headrace.console.demo.documents import ALERTS, FEEDS, PLACES_FEED, QUAKES, document
from headrace.errors import FeedUnavailable
from headrace.feeds.fetcher import Answer, Request

QUERIES = {
    "Earthquakes near cities": f"""\
SELECT q.title, p.title, dist(q.geoLat, q.geoLong, p.geoLat, p.geoLong) AS degrees, q.link
FROM rss('{QUAKES}') q,
     rss('{PLACES_FEED}') p
WHERE dist(q.geoLat, q.geoLong, p.geoLat, p.geoLong) < 2""",
    "Cities under a warning": f"""\
SELECT a.title, p.title, a.description, a.link
FROM rss('{ALERTS}') a,
     rss('{PLACES_FEED}') p
WHERE intersects(a.box, p.box)
  AND a.title LIKE '%Warning%'""",
    "Earthquakes close together": f"""\
SELECT a.title, b.title, geo_km(a.geoLat, a.geoLong, b.geoLat, b.geoLong) AS km
FROM rss('{QUAKES}') a,
     rss('{QUAKES}') b
WHERE within_km(a.geoLat, a.geoLong, b.geoLat, b.geoLong, 150)
  AND a.pubDate < b.pubDate""",
}


class DayFetcher:
    """Answers as the feeds of the day did at the moment that a clock shows; no request leaves this machine.

    Args:
        day: what happened.
        clock: shows a moment of the day.
    """

    def __init__(self, day: Day, clock: Clock) -> None:
        self.day = day
        self.clock = clock

    async def fetch(self, request: Request) -> Answer:
        """Give the document of now, or say that it has not changed."""
        if request.url not in FEEDS:
            raise FeedUnavailable(f"{request.url} is not one of the recorded feeds; there are {', '.join(FEEDS)}")
        content = document(self.day, request.url, min(self.clock.now(), self.day.end))
        etag = f'"{hashlib.blake2b(content, digest_size=16).hexdigest()}"'
        if request.etag == etag:
            return Answer(304, etag=etag)
        return Answer(200, content, "application/xml", etag)

    async def close(self) -> None:
        """There is nothing to close."""
