"""Recordings are written, read and replayed by a clock."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from headrace.clock import ManualClock
from headrace.errors import BadInput, FeedUnavailable
from headrace.feeds.fetcher import Request
from headrace.feeds.recorded import RecordedFetcher, ReplayClock, read_recording, record

START = datetime(2024, 5, 1, tzinfo=UTC)
URL = "http://example.org/feed"


def at(minutes):
    return START + timedelta(minutes=minutes)


def fetch(fetcher, *args):
    return asyncio.run(fetcher.fetch(Request(URL, *args)))


def test_a_feed_answers_as_it_did_at_the_time_of_the_clock(tmp_path):
    record(tmp_path, URL, at(20), b"second", name="second.xml")
    record(tmp_path, URL, at(10), b"first", headers={"Content-Type": "text/xml", "Cache-Control": "max-age=60"})
    record(tmp_path, URL, at(30), status=503, headers={"Retry-After": "60"})
    record(tmp_path, URL, at(40), b"", status=404)
    record(tmp_path, URL, at(50), status=410)
    clock = ManualClock(start=START.timestamp())
    fetcher = RecordedFetcher(tmp_path, clock)
    assert (fetcher.urls, fetcher.start, fetcher.end) == ([URL], at(10), at(50))
    with pytest.raises(FeedUnavailable, match="nothing by now"):
        fetch(fetcher)
    clock.advance(600)
    first = fetch(fetcher)
    assert (first.content, first.content_type, first.max_age) == (b"first", "text/xml", 60)
    assert fetch(fetcher, first.etag).status == 304
    clock.advance(600)
    assert fetch(fetcher, first.etag).content == b"second"
    clock.advance(600)
    assert fetch(fetcher, first.etag).retry_after == 60
    clock.advance(600)
    with pytest.raises(FeedUnavailable, match="answered 404"):
        fetch(fetcher)
    clock.advance(600)
    assert fetch(fetcher).status == 410


def test_a_recording_is_plain_text_and_the_bodies_as_they_were_sent(tmp_path):
    record(tmp_path, URL, at(0), b"<rss/>", name="quakes.xml")
    record(tmp_path, URL, at(1), b"<rss/>")
    lines = [json.loads(line) for line in (tmp_path / "pulls.jsonl").read_text().splitlines()]
    assert lines[0] == {"url": URL, "at": "2024-05-01T00:00:00Z", "body": "quakes.xml"}
    assert (tmp_path / "quakes.xml").read_bytes() == (tmp_path / lines[1]["body"]).read_bytes() == b"<rss/>"


@pytest.mark.parametrize(
    "line",
    [
        "no json", "[]", '{"url": "u"}', '{"url": "u", "at": "yesterday"}', '{"url": "u", "at": "2024-05-01T00:00:00"}',
        '{"url": "u", "at": "2024-05-01T00:00:00Z", "boddy": "x"}',
    ],
)  # fmt: skip
def test_a_line_that_is_no_pull_is_refused_by_its_number(tmp_path, line):
    record(tmp_path, URL, at(0), b"x")
    with (tmp_path / "pulls.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(BadInput, match="line 2 is not a recorded pull"):
        read_recording(tmp_path)


def test_bodies_lie_in_the_recording_and_moments_have_zones(tmp_path):
    with pytest.raises(BadInput, match="is not a file of the recording"):
        record(tmp_path, URL, at(0), b"x", name="../x.xml")
    with pytest.raises(BadInput, match="no time zone"):
        record(tmp_path, URL, datetime(2024, 5, 1), b"x")
    (tmp_path / "pulls.jsonl").write_text('{"url": "u", "at": "2024-05-01T00:00:00Z", "body": "../../etc/passwd"}\n')
    with pytest.raises(BadInput, match="is not a file of the recording"):
        RecordedFetcher(tmp_path, ManualClock())
    with pytest.raises(BadInput, match="is not a recording of pulls"):
        RecordedFetcher(tmp_path / "elsewhere", ManualClock())


def test_a_replay_runs_as_fast_as_it_is_told():
    real = ManualClock(start=5)
    clock = ReplayClock(START, 144, real)
    assert clock.now() == START.timestamp()
    clock.sleep(86_400)
    assert (real.now(), clock.now()) == (605, at(24 * 60).timestamp())
    with pytest.raises(BadInput, match="speed=0"):
        ReplayClock(START, 0)
