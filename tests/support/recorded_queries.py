"""Recorded feeds of earthquakes, places and alerts, queries over them, and what these give in one process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa

from headrace.feeds.sql import parse_query
from headrace.feeds.store import FeedStore
from tests.support.feed_recordings import item
from tests.support.spark_streams import counted

QUAKES, PLACES, ALERTS = "http://quakes.example/all", "http://places.example/", "http://alerts.example/"

#: Items that change, that are there twice, that have no place, and pairs at the distance itself.
FEEDS = {
    QUAKES: [
        (0, [item("q1", "M 5.1 Alaska", 61.5, -150.5), item("q2", "M 2.0 Reno", 39.5, -119.75), item("q3", "M 1")]),
        (10, [item("q2", "M 2.0 Reno", 39.5, -119.75), item("q1", "M 5.3 Alaska", 61.5, -150.75)]),
        (30, [item("q4", "Quiet", 64.0, -150.0), item("q5", "M 4 Nome", 64.5, -165.25)]),
    ],
    PLACES: [
        (0, [item("p1", "Anchorage", 61.25, -149.75), item("p2", "Nome", 64.5, -165.5)]),
        (
            20,
            [
                item("p2", "Nome", 64.5, -165.5),
                item("p3", "Fairbanks", 64.75, -147.75),
                item("p4", "Reno", 39.5, -121.75),
            ],
        ),
    ],
    ALERTS: [
        (10, [item("a1", "Nome", 64.5, -165.5), item("a2", "Anchorage")]),
        (20, [item("a1", "Nome", 64.5, -165.5), item("a3", "Reno", 39.5, -119.75)]),
        (40, [item("a4", "Fairbanks", 64.75, -147.75), item("a2", "Anchorage")]),
        (60, [item("a5", "Reno again", 39.5, -119.75)]),
    ],
}

NEAR = f"""SELECT q.title AS quake, p.title AS place, dist(q.geoLat, q.geoLong, p.geoLat, p.geoLong) AS apart, q.box,
        upper(p.guid) AS id
    FROM rss('{QUAKES}') q, rss('{PLACES}') p
    WHERE dist(q.geoLat, q.geoLong, p.geoLat, p.geoLong) < 2 AND q.title LIKE 'M%'"""
THREE = f"""SELECT p.title AS place, a.guid AS alert, b.guid AS other, a.seen
    FROM rss('{PLACES}') p, rss('{ALERTS}') a, rss('{ALERTS}') b WHERE p.title = a.title AND b.title = a.title"""
BOXES = f"""SELECT q.title AS quake, a.title AS alert FROM rss('{QUAKES}') q, rss('{ALERTS}') a
    WHERE intersects(q.box, a.box) WITHIN '30 minutes'"""
ONE = f"SELECT * FROM rss('{QUAKES}') q WHERE q.geoLat > 50 OR q.title = 'M 1'"
GROUPS = f"""SELECT window(q.seen, '10 minutes') AS w, q.title LIKE 'M%' AS strong, count(*) AS n, sum(q.geoLat), avg(q.geoLong)
    FROM rss('{QUAKES}') q WHERE q.guid <> 'q5' GROUP BY w, strong"""
GROUPED_PAIRS = f"""SELECT window(a.seen, '10 minutes') AS w, p.title, count(*) AS n, max(a.guid) AS last
    FROM rss('{PLACES}') p, rss('{ALERTS}') a WHERE p.title = a.title GROUP BY w, p.title WITHIN '15 minutes'"""


def embedded(text: str, store: Path) -> Counter:
    """What the query gives in one process for the pulls of a store, one after the other."""
    plan = parse_query(text)
    operator = plan.operator()
    made: list[pa.RecordBatch] = []
    for pull in FeedStore(store).pulls():
        if pull.url in plan.urls:
            made += operator.insert(pull.url, pull.items)
    if plan.grouping is None:  # windows that have not ended are not given
        made += operator.finish()
    return counted(pa.Table.from_batches(made, plan.schema))
