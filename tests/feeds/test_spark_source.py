"""The source `rss` on Spark: a batch read is one pull; a stream gives every item once, over restarts and replays."""

import time
from collections import Counter

import pytest

import headrace as hr
from headrace.feeds.items import ITEM_SCHEMA
from headrace.feeds.spark.options import url_options
from tests.support.batch_sink import Sink
from tests.support.feed_queries import document
from tests.support.feed_recordings import item, recording
from tests.support.spark_streams import counted, finished, last_again

pytestmark = pytest.mark.spark

A, B = "http://a.example/quakes,all", "http://b.example/places"
ONE, TWO, THREE = item("1", "one", 61.5, -150.8), item("2", "two"), item("3", "three", 1, 2)
CHANGED = item("1", "one, revised", 61.5, -150.8)
FEEDS = {A: [(0, [ONE, TWO]), (10, [TWO, CHANGED, THREE]), (20, [THREE])], B: [(5, [ONE])]}
PATIENCE = 120  # seconds for what takes one


@pytest.fixture(autouse=True)
def registered(spark):
    hr.register_sources(spark)


def titles(rows: Counter) -> Counter:
    """Of rows of items: feed and title."""
    feed, title = ITEM_SCHEMA.get_field_index("feed"), ITEM_SCHEMA.get_field_index("title")
    return Counter({(row[feed], row[title]): many for row, many in rows.items()})


def streamed(spark, recorded, state, **options):
    reader = spark.readStream.format("rss").options(**url_options((A, B)), recorded=str(recorded), state=str(state))
    return reader.options(**options).load()


def test_oracle_a_batch_read_is_one_pull_of_each_feed(spark, tmp_path):
    directory = recording(tmp_path / "recorded", FEEDS)
    df = spark.read.format("rss").options(**url_options((A, B)), recorded=str(directory)).load()
    assert df.columns == ITEM_SCHEMA.names
    found = df.toArrow()
    assert titles(counted(found)) == Counter({(A, "three"): 1, (B, "one"): 1})
    (quake,) = (row for row in found.to_pylist() if row["feed"] == A)
    assert (quake["geoLat"], quake["geoLong"], quake["box"]["ymax"]) == (1.0, 2.0, 1.0)


def test_a_feed_that_cannot_be_pulled_is_named(spark, tmp_path):
    missing = (tmp_path / "missing.xml").as_uri()
    df = spark.read.format("rss").option("url", missing).option("allow_files", "true").load()
    with pytest.raises(Exception, match=f"{missing} could not be read: No such file"):
        df.collect()
    for option, message in (
        (("urll", "x"), "did you mean 'url'"),
        (("url", missing), "the schemes of feeds are http and https; files are read with allow_files=True"),
    ):
        with pytest.raises(Exception, match=message):
            spark.readStream.format("rss").option(*option).load()


def test_oracle_a_stream_gives_each_item_and_each_change_once_over_a_replay(spark, tmp_path):
    """A bounded run of two micro-batches and more, of which the last is sent again: it reads the same pulls."""
    first = {A: FEEDS[A][:2], B: FEEDS[B]}
    directory = recording(tmp_path / "recorded", first)
    sink, state, checkpoint = Sink(), tmp_path / "state", tmp_path / "checkpoint"
    finished(sink.run(streamed(spark, directory, state, max_pulls="1"), checkpoint))
    wanted = Counter({(A, "one"): 1, (A, "two"): 1, (A, "one, revised"): 1, (A, "three"): 1, (B, "one"): 1})
    assert titles(sink.rows) == wanted
    assert len([attempts for attempts in sink.sent.values() if attempts[-1]]) == 3  # pulls with items

    again = last_again(checkpoint)
    recording(directory, {B: [(40, [ONE, item("4", "four")])]})
    finished(sink.run(streamed(spark, directory, state, max_pulls="1"), checkpoint))
    attempts = sink.sent[again]
    assert len(attempts) == 2 and attempts[0] == attempts[1] and attempts[0]
    assert titles(sink.rows) == wanted + Counter({(B, "four"): 1})

    with pytest.raises(Exception, match="other has other pulls than those that the query has read"):
        finished(sink.run(streamed(spark, directory, tmp_path / "other", max_pulls="1"), checkpoint))


def test_feeds_are_pulled_as_long_as_a_query_runs_and_by_the_next_one(spark, tmp_path):
    """A file as a feed, changed while a query without end runs, and after its end."""
    path = tmp_path / "feed.xml"
    path.write_bytes(document(ONE))
    reader = spark.readStream.format("rss").option("url", path.as_uri()).option("allow_files", "true")
    df = reader.option("state", str(tmp_path / "state")).option("interval", "200ms").load().select("title")
    sink = Sink()

    def until(query, wanted):
        begun = time.monotonic()
        while sink.rows != Counter({(title,): 1 for title in wanted}):
            assert query.exception() is None and time.monotonic() - begun < PATIENCE, (query.exception(), sink.rows)
            time.sleep(0.05)

    query = sink.run(df, tmp_path / "checkpoint", processingTime="0 seconds")
    try:
        until(query, ["one"])
        path.write_bytes(document(ONE, TWO))
        until(query, ["one", "two"])
    finally:
        query.stop()
    path.write_bytes(document(TWO, CHANGED))
    query = sink.run(df, tmp_path / "checkpoint", processingTime="0 seconds")
    try:
        until(query, ["one", "two", "one, revised"])
    finally:
        query.stop()
