"""Readers of the source `rss` without Spark: offsets, limits, restarts, and a log that is not what it was."""

from dataclasses import replace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from headrace.errors import BadInput, RunLogError
from headrace.feeds.spark.options import FeedOptions, url_options
from headrace.feeds.spark.stream_reader import LogReader
from headrace.feeds.store import FeedStore
from tests.support.feed_recordings import item, recording

A, B = "http://a.example/", "http://b.example/"
ONE, TWO, THREE, FOUR = (item(str(n), title) for n, title in enumerate(("one", "two", "three", "four")))
FEEDS = {A: [(0, [ONE]), (10, [ONE, TWO])], B: [(0, [THREE]), (20, [FOUR, THREE])]}


@pytest.fixture
def options(tmp_path):
    directory = recording(tmp_path / "recorded", FEEDS)
    given = {**url_options((A, B)), "recorded": str(directory), "state": str(tmp_path / "state"), "max_pulls": "3"}
    return FeedOptions.of(given)


@pytest.fixture
def reader(options):
    made = LogReader(options)
    yield made
    made.stop()


def titles(reader, start, end):
    parts = reader.partitions({"pull": start}, {"pull": end})
    return sorted(row["title"] for part in parts for batch in reader.read(part) for row in batch.to_pylist())


def test_a_recording_goes_on_by_a_pull_with_items_whenever_the_log_is_read(reader, options):
    found, offset = [], reader.initialOffset()
    assert offset["pull"] == 0
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        found.append(titles(reader, offset["pull"], end["pull"]))
        offset = end
    assert found == [["one", "three"], ["two"], ["four"]]
    assert offset["pull"] == 4 and offset == reader.reportLatestOffset()
    reader.stop()
    again = LogReader(options)  # the next run of the query: the same numbers, and nothing new
    assert titles(again, 0, 4) == ["four", "one", "three", "two"]
    assert again.latestOffset(offset, ReadAllAvailable()) == offset
    again.stop()


def test_a_bounded_run_has_all_of_a_recording_in_micro_batches_within_the_limit(reader):
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    first = reader.latestOffset(start, reader.getDefaultReadLimit())
    last = reader.latestOffset(first, reader.getDefaultReadLimit())
    assert (first["pull"], last["pull"]) == (3, 4)
    assert reader.latestOffset(start, ReadMaxFiles(1))["pull"] == 1
    assert reader.latestOffset(last, ReadAllAvailable()) == last
    assert reader.partitions(last, last) == []


@pytest.mark.parametrize(
    ("horizon", "found"), [("7d", ["one", "one", "three", "two"]), ("30d", ["one", "three", "two"])]
)
def test_an_item_that_comes_back_is_known_for_the_horizon_and_pulls_go_after_a_week(tmp_path, horizon, found):
    day = 24 * 60
    feeds = {A: [(0, [ONE]), (day, [TWO]), (10 * day, [TWO, THREE]), (12 * day, [ONE, THREE]), (32 * day, [THREE])]}
    given = {"url": A, "recorded": str(recording(tmp_path / "recorded", feeds)), "state": str(tmp_path / "state")}
    reader = LogReader(FeedOptions.of({**given, "interval": "12h", "horizon": horizon, "pulls": "true"}))
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["pull"]
    assert end == len(found) and titles(reader, 0, end) == found
    [part] = reader.partitions({"pull": 0}, {"pull": end})
    assert sorted(n for batch in reader.read(part) for n in batch.column("pull").to_pylist()) == list(range(1, end + 1))
    reader.latestOffset({**reader.initialOffset(), "pull": end}, ReadAllAvailable())  # what is read is needed no more
    reader.stop()
    left = [pull.number for pull in FeedStore(tmp_path / "state").pulls()]
    assert left == []


def test_pulls_are_read_by_several_tasks_where_there_are_many(reader):
    parts = reader.partitions({"pull": 10}, {"pull": 10 + 130})
    assert [(part.after, part.until) for part in parts] == [(10, 53), (53, 96), (96, 140)]


def test_a_new_query_on_an_old_log_begins_with_the_oldest_pull_that_is_left(reader, options):
    reader.prepareForTriggerAvailableNow()
    reader.stop()
    log = FeedStore(options.state).log
    assert log.groups()[0].first == 1
    log.groups()[0].path.unlink()
    left = log.groups()[0].first
    assert left > 1
    again = LogReader(options)
    assert again.initialOffset()["pull"] == left - 1
    assert titles(again, left - 1, 4)
    with pytest.raises(RunLogError, match=r"pull 1 is not in .*state; .* another checkpoint"):
        titles(again, 0, 4)


def test_the_state_of_another_query_and_one_that_lost_pulls_are_refused(reader, options, tmp_path):
    reader.prepareForTriggerAvailableNow()
    offset = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with pytest.raises(RunLogError, match=r"state has other pulls than those that the query has read up to pull 9"):
        reader.latestOffset({**offset, "pull": 9}, ReadAllAvailable())
    other = LogReader(replace(options, state=str(tmp_path / "other")))  # with as many pulls
    other.prepareForTriggerAvailableNow()
    with pytest.raises(RunLogError, match=r"other has other pulls than those that the query has read up to pull 4"):
        other.latestOffset(offset, ReadAllAvailable())
    other.stop()


def test_a_stream_without_a_state_and_a_feed_that_was_not_recorded_are_refused(options, tmp_path):
    with pytest.raises(BadInput, match=r"give option\(\"state\", DIRECTORY\)"):
        LogReader(FeedOptions.of({"url": A}))
    unknown = {"url": "http://c.example/", "recorded": options.recorded, "state": str(tmp_path / "other")}
    with pytest.raises(BadInput, match=r"url='http://c.example/' is not supported; choose one of http://a.example/"):
        LogReader(FeedOptions.of(unknown)).prepareForTriggerAvailableNow()
