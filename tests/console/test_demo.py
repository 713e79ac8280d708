"""The demonstration: a day that is the same each time, feeds that parse with their places, and results within seconds."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime

import httpx
import pyarrow.compute as pc
import pytest

from headrace.clock import ManualClock
from headrace.console.demo.day import make_day
from headrace.console.demo.documents import ALERTS, FEEDS, PLACES_FEED, QUAKES, document
from headrace.console.demo.places import PLACES
from headrace.console.demo.replay import QUERIES, DayFetcher
from headrace.console.opening import open_demo
from headrace.errors import BadInput, FeedUnavailable
from headrace.feeds import parse_feed
from headrace.feeds.fetcher import Request
from headrace.feeds.sql import parse_query
from tests.support.console_server import PATIENCE, wait_for

DAY = make_day()
HOUR = 3600.0


def parsed(url, hours):
    moment = DAY.begin + hours * HOUR
    return parse_feed(document(DAY, url, moment), url, seen=datetime.fromtimestamp(moment, UTC))


def test_the_day_is_the_same_each_time_and_another_with_another_seed():
    assert make_day() == DAY
    assert make_day(seed=1) != DAY


@pytest.mark.parametrize("url", FEEDS)
def test_every_item_of_the_feeds_has_a_place_and_a_title(url):
    for hours in (0, 12, 24):
        feed = parsed(url, hours)
        assert not feed.problems
        assert feed.items.num_rows > 20
        for column in ("title", "guid", "link", "pubDate", "box"):
            assert feed.items.column(column).null_count == 0, column


def test_the_feeds_tell_what_the_day_has():
    quakes = parsed(QUAKES, 24)
    told = [quake for quake in DAY.quakes if quake.told <= DAY.end and quake.at > DAY.end - 24 * HOUR]
    assert quakes.items.num_rows == len(told)
    assert sorted(pc.round(quakes.items.column("geoLat"), 4).to_pylist()) == sorted(quake.latitude for quake in told)
    alerts = parsed(ALERTS, 6)
    active = [alert for alert in DAY.alerts if alert.at <= DAY.begin + 6 * HOUR < alert.expires]
    boxes = {(box["ymin"], box["xmax"]) for box in alerts.items.column("box").to_pylist()}
    assert boxes == {(min(y for y, _ in alert.corners), max(x for _, x in alert.corners)) for alert in active}
    assert parsed(PLACES_FEED, 0).items.num_rows == len(PLACES)


def test_a_revised_earthquake_is_a_changed_item_of_the_same_identity():
    quake = next(quake for quake in DAY.quakes if quake.revised is not None and DAY.begin < quake.revised < DAY.end)
    before, after = (quake.title(quake.revised + delta) for delta in (-1, 1))
    assert before != after
    assert before.split(" - ")[1] == after.split(" - ")[1]


def test_the_fetcher_answers_for_the_recorded_feeds_alone_and_says_when_nothing_changed():
    clock = ManualClock(start=DAY.begin)
    fetcher = DayFetcher(DAY, clock)
    first = asyncio.run(fetcher.fetch(Request(QUAKES)))
    assert asyncio.run(fetcher.fetch(Request(QUAKES, first.etag))).status == 304
    clock.advance(HOUR)
    assert asyncio.run(fetcher.fetch(Request(QUAKES, first.etag))).status == 200
    with pytest.raises(FeedUnavailable, match="recorded feeds"):
        asyncio.run(fetcher.fetch(Request("https://example.org/")))


@pytest.mark.parametrize("name", QUERIES)
def test_the_ready_queries_have_results_in_the_first_pull(name):
    plan = parse_query(QUERIES[name])
    operator = plan.operator()
    found = 0
    for url in {source.url for source in plan.sources}:
        found += sum(batch.num_rows for batch in operator.insert(url, parsed(url, 0).items))
    assert found > 0


def test_a_day_in_no_time_is_refused(tmp_path):
    with pytest.raises(BadInput, match="give more than 0"):
        open_demo(tmp_path, seconds=0)


def test_the_command_prints_its_address_shows_results_and_stops_with_ctrl_c(tmp_path):
    command = [sys.executable, "-c", "from headrace.cli import app; app()", "console", "--demo", "--port", "0"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        try:
            address = re.fullmatch(r"Open (http://127\.0\.0\.1:\d+)/#token=([\w-]{32})\n", server.stdout.readline())
            assert address, server.stderr.read() if server.poll() is not None else "no address"
            with httpx.Client(base_url=address[1], trust_env=False, timeout=PATIENCE) as client:

                def shown():
                    queries = client.get("/api/state").json()["queries"]
                    return len(queries) == 3 and all(query["count"] > 0 for query in queries)

                wait_for(shown, "results of all three queries")
                assert client.get("/api/state").json()["recorded"]["speed"] == 144
                assert "<georss:line>" in client.get("/feeds/Earthquakes near cities.rss").text
        finally:
            server.send_signal(signal.SIGINT)
            _, said = server.communicate(timeout=PATIENCE)
    assert (server.returncode, said) == (0, "")
    assert not list(tmp_path.glob("headrace-demo-*"))
