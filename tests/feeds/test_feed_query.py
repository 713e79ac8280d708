"""hr.sql in this process, and ``headrace sql``."""

import json
from datetime import timedelta

import feedparser
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.clock import ManualClock
from headrace.feeds.recorded import RecordedFetcher
from tests.support.feed_queries import START, document, record_feed

A, B = "http://feeds.example/a", "http://feeds.example/b"


@pytest.fixture
def feeds(tmp_path):
    """Two feeds as files: alerts, and places that are near some of them."""
    alerts = [{"guid": f"a{i}", "title": f"alert <{i}>", "lat": i, "long": 10} for i in range(4)]
    places = [{"guid": f"p{i}", "title": f"place {i}", "lat": i + 0.1, "long": 10} for i in range(1, 3)]
    (tmp_path / "alerts.xml").write_bytes(document(*alerts))
    (tmp_path / "places.xml").write_bytes(document(*places))
    return (tmp_path / "alerts.xml").as_uri(), (tmp_path / "places.xml").as_uri()


def near(feeds, rest=""):
    alerts, places = feeds
    return f"SELECT a.title AS alert, b.title AS place FROM rss('{alerts}') a, rss('{places}') b WHERE within_km(a, b, 20){rest}"


def test_a_query_is_run_once_and_its_results_are_a_feed(feeds):
    query = hr.sql(near(feeds, " ORDER BY alert DESC LIMIT 5"), allow_files=True)
    rows = [row for batch in query.run(once=True) for row in batch.to_pylist()]
    assert [(row["_number"], row["alert"], row["place"]) for row in rows] == [
        (1, "alert <2>", "place 2"),
        (2, "alert <1>", "place 1"),
    ]
    assert query.results().num_rows == 2
    parsed = feedparser.parse(query.feed("atom"))
    assert not parsed.bozo and len(parsed.entries) == 2
    with pytest.raises(hr.BadQuery, match="runs for ever"):
        next(query.run())


def test_a_query_goes_on_with_the_next_run_on_the_same_state(tmp_path):
    recording, clock = tmp_path / "recording", ManualClock(START.timestamp())
    for minute in range(8):
        record_feed(recording, A, minute, {"guid": str(minute), "title": str(minute)})
        record_feed(recording, B, minute, {"guid": str(minute), "title": str(minute // 2)})
    text = f"SELECT a.title FROM rss('{A}') a, rss('{B}') b WHERE a.title = b.title"
    found = []
    for until in (3, 10):
        query = hr.sql(text, state=tmp_path / "state", fetcher=RecordedFetcher(recording, clock), clock=clock)
        for _ in range(2):  # the second time there is nothing new
            found += [
                row["a.title"]
                for batch in query.run(until=START + timedelta(minutes=until))
                for row in batch.to_pylist()
            ]
    assert sorted(found) == ["0", "0", "1", "1", "2", "2", "3", "3"]
    assert sorted(query.results().column("a.title").to_pylist()) == sorted(found)
    entries = feedparser.parse(query.feed()).entries
    assert len({entry.id for entry in entries}) == 8 and entries[0].title.startswith("8) ")


def test_a_run_that_is_left_ends_quietly_and_can_be_taken_up(tmp_path):
    recording, clock = tmp_path / "recording", ManualClock(START.timestamp())
    record_feed(recording, A, 0, *({"guid": str(i), "title": str(i)} for i in range(3)))
    query = hr.sql(f"SELECT a.title FROM rss('{A}') a", fetcher=RecordedFetcher(recording, clock), clock=clock)
    for batch in query.run():
        assert batch.num_rows == 3
        break
    assert query.results().num_rows == 3


def test_no_feed_that_can_be_read_is_an_error(tmp_path):
    query = hr.sql(f"SELECT a.title FROM rss('{(tmp_path / 'none.xml').as_uri()}') a", allow_files=True)
    with pytest.raises(hr.BadInput, match=r"no feed could be read: .*none\.xml"):
        list(query.run(once=True))


def test_files_and_the_own_network_are_not_read_unless_allowed(feeds):
    for text in (near(feeds), "SELECT a.title FROM rss('http://127.0.0.1:9/feed') a"):
        with pytest.raises(hr.BadInput, match="no feed could be read"):
            list(hr.sql(text).run(once=True))


def test_one_query_at_a_time(feeds):
    with pytest.raises(hr.BadInput, match="takes one query"):
        hr.sql("SELECT 1", "SELECT 2")


# -- the command -------------------------------------------------------------------------------------------------------------


def command(*args, code=0):
    result = CliRunner().invoke(app, ["sql", *map(str, args)])
    assert result.exit_code == code, result.output
    return result


def test_the_command_shows_a_snapshot(feeds):
    shown = command(near(feeds, " ORDER BY alert"), "--once", "--allow-files").output
    assert "alert <1>" in shown and shown.index("place 1") < shown.index("place 2")
    lines = command(near(feeds), "--once", "--allow-files", "--json").output.splitlines()
    first = json.loads(lines[0])
    assert len(lines) == 2 and {"alert", "place", "_number", "_produced", "_id", "_places"} == set(first)


def test_the_command_explains(feeds):
    assert command("explain " + near(feeds)).output.startswith("result: alert, place\n└─ join: WITHIN_KM(a, b, 20)")


def test_the_command_shows_where_a_query_is_wrong():
    said = command("SELECT a.tilte\nFROM rss('https://x.example/') a", code=2).stderr
    wrong = "line 1, column 10: a feed has no column 'tilte'; did you mean 'title'?"
    assert said == f"headrace: {wrong}\n  SELECT a.tilte\n           ^^^^^\n"


@pytest.mark.parametrize("name", ["results.xml", "results.atom", "results.json"])
def test_the_command_writes_a_feed(feeds, tmp_path, name):
    command(near(feeds), "--once", "--allow-files", "--out", tmp_path / name)
    content = (tmp_path / name).read_bytes()
    if name.endswith("json"):
        assert len(json.loads(content)["items"]) == 2
    else:
        assert len(feedparser.parse(content).entries) == 2 and b"alert <" not in content


def test_the_command_writes_tables(feeds, tmp_path):
    for _ in range(2):
        command(near(feeds), "--once", "--allow-files", "--out", tmp_path / "results.parquet")
    assert pq.read_table(tmp_path / "results.parquet").num_rows == 2
    command(near(feeds), "--once", "--allow-files", "--out", tmp_path / "delta")
    assert sorted(DeltaTable(tmp_path / "delta").to_pyarrow_table().column("place").to_pylist()) == [
        "place 1",
        "place 2",
    ]
    command(near(feeds), "--once", "--allow-files", "--out", tmp_path / "results.docx", code=2)


def test_names_of_control_characters_cannot_control_the_terminal(feeds, tmp_path):
    (tmp_path / "evil.xml").write_bytes(document({"guid": "1", "title": "a&#x9b;31m[red]b"}).replace(b"&amp;", b"&"))
    url = (tmp_path / "evil.xml").as_uri()
    shown = command(f"SELECT a.title FROM rss('{url}') a", "--once", "--allow-files").output
    assert "\x9b" not in shown and "[red]b" in shown
