"""Results as feeds: they validate, and say the same to feedparser and to our own parser."""

from datetime import UTC, datetime, timedelta

import feedparser
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.feeds import parse_feed
from headrace.feeds.items import MOMENT, RESULT_COLUMNS
from headrace.feeds.results import ResultPage, atom, json_feed, rss
from tests.support.feed_validators import ATOM, check_atom, check_json_feed, check_rss

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [("_number", pa.int64()), ("_produced", MOMENT), ("a.title", pa.string()), ("b.link", pa.string()),
     pa.field("dist", pa.float64(), metadata={"label": "dist()"}), ("a.category", pa.list_(pa.string())), *RESULT_COLUMNS]
)  # fmt: skip
WRITERS = {"rss": (rss, check_rss), "atom": (atom, check_atom), "json": (json_feed, check_json_feed)}


def place(alias, lat, long, box=None):
    x, y = box or (long, lat)
    return {
        "alias": alias,
        "title": alias,
        "lat": lat,
        "long": long,
        "box": {"xmin": long, "ymin": lat, "xmax": x, "ymax": y},
    }


def row(number, **values):
    return {
        "_number": number,
        "_produced": START + timedelta(seconds=number),
        "a.title": f"M {number}",
        "b.link": f"http://b.example/{number}",
        "dist": 5.38917690561369,
        "a.category": ["x", "y"],
        "_id": number.to_bytes(16, "big"),
        "_places": [],
    } | {name.replace("__", "."): value for name, value in values.items()}


def page(*rows, query="alerts", sql="SELECT a.title FROM rss('http://a.example/?x=1&y=2') a WHERE 1 < 2", older=None):
    return ResultPage(
        query, sql, "http://desk.example/alerts", START, pa.RecordBatch.from_pylist(list(rows), SCHEMA), older
    )


def test_rss_is_as_the_specification_has_it():
    pair = [place("a", 61.5684, -150.8446), place("b", 65.0, -155.0)]
    written = rss(
        page(
            row(1),
            row(2, _places=pair),
            row(3, _places=[place("a", 1.0, 2.0, (5.0, 4.0))]),
            older="http://desk.example/alerts?before=1",
        )
    )
    channel = check_rss(written)
    assert channel.findtext("title") == "alerts"
    assert channel.findtext("description") == "SELECT a.title FROM rss('http://a.example/?x=1&y=2') a WHERE 1 < 2"
    assert channel.findtext("lastBuildDate") == "Sun, 01 Mar 2026 12:00:00 GMT"
    assert [link.get("href") for link in channel.findall(f"{ATOM}link[@rel='next']")] == [
        "http://desk.example/alerts?before=1"
    ]
    third, second, first = channel.findall("item")
    assert first.findtext("title") == "1) M 1, http://b.example/1, 5.38917690561369, x, y"
    assert first.findtext("description").split("<br/>\n") == [
        "a title : M 1", "b link : http://b.example/1", "dist() : 5.38917690561369", "a category : x, y"
    ]  # fmt: skip
    assert first.findtext("guid") == "urn:uuid:00000000-0000-0000-0000-000000000001"
    assert first.findtext("pubDate") == "Sun, 01 Mar 2026 12:00:01 GMT"
    assert first.findtext("link") == "http://b.example/1"
    assert len(first) == 5
    assert [e.text for e in second][-3:] == ["61.5684", "-150.8446", "61.5684 -150.8446 65.0 -155.0"]
    assert [e.text for e in third][-3:] == ["1.0", "2.0", "1.0 2.0 4.0 5.0"]


def test_a_result_without_a_position_has_none():
    null = place("a", None, None)
    written = rss(page(row(1, _places=[null, place("b", 1.0, 2.0)]), row(2, _places=[null]), row(3, _places=None)))
    items = parse_feed(written, "u", seen=START).items
    assert items.column("geoLat").to_pylist() == [None, None, 1.0]


@pytest.mark.parametrize("kind", WRITERS)
def test_nulls_and_empty_pages(kind):
    write, check = WRITERS[kind]
    check(write(page()))
    check(write(page(row(1, a__title=None, b__link=None, dist=None, a__category=None))))


@pytest.mark.parametrize("kind", WRITERS)
def test_the_same_page_gives_the_same_bytes(kind):
    write, _ = WRITERS[kind]
    assert write(page(row(1), row(2))) == write(page(row(1), row(2)))


def test_older_pages_are_linked():
    older = "http://desk.example/alerts?before=1&x=<>"
    assert check_atom(atom(page(row(1), older=older))).findall(f"{ATOM}link[@rel='next']")[0].get("href") == older
    assert check_json_feed(json_feed(page(row(1), older=older)))["next_url"] == older
    assert b"next" not in rss(page(row(1)))


@pytest.mark.parametrize("write", [rss, atom])
def test_differential_readers_read_what_was_written(write):
    rows = [
        row(k, a__title=f"Größe {k} > {k - 1} & so on 💩", _places=[place("a", k / 7, -k / 3)]) for k in range(1, 30)
    ]
    written = write(page(*rows))
    theirs = feedparser.parse(written)
    assert not theirs.bozo and theirs.feed.title == "alerts"
    ours = parse_feed(written, "http://desk.example/alerts", seen=START)
    assert ours.problems == () and ours.title == "alerts"
    items = ours.items.to_pylist()
    assert (
        [item["guid"] for item in items]
        == [e.id for e in theirs.entries]
        == [f"urn:uuid:{_uuid(k)}" for k in range(29, 0, -1)]
    )
    assert [item["title"] for item in items] == [e.title for e in theirs.entries]
    assert items[0]["title"].startswith("29) Größe 29 > 28 & so on 💩")
    assert [item["link"] for item in items] == [e.link for e in theirs.entries]
    assert (
        [item["geoLat"] for item in items]
        == [float(e.geo_lat) for e in theirs.entries]
        == [k / 7 for k in range(29, 0, -1)]
    )
    assert [item["geoLong"] for item in items] == [-k / 3 for k in range(29, 0, -1)]
    assert items[0]["pubDate"] == START + timedelta(seconds=29)
    assert items[0]["description"].startswith("a title : Größe 29 &gt; 28 &amp; so on 💩<br>")


def _uuid(number):
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


HOSTILE = [
    "<script>alert(1)</script>",
    "]]>",
    "&amp;&lt;",
    "\x00\x01\x0b\x1f",
    "\ufffe\uffff",
    "\"'><img onerror=x>",
    "a\nb\r\n\tc",
    "é\u202e\ud7ff",
    "x" * 100_000,
]


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_escaped(kind, text):
    write, check = WRITERS[kind]
    written = write(page(row(1, a__title=text, a__category=[text]), query=text or "q", sql=text))
    check(written)
    assert b"<script>" not in written and b"<img" not in written
    if kind != "json":
        (entry,) = feedparser.parse(written).entries
        assert "<script" not in entry.summary and "<img" not in entry.summary
        (item,) = parse_feed(written, "u", seen=START).items.to_pylist()
        assert "<script" not in item["title"] and len(item["title"]) <= 300


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_text_can_be_written(title, name):
    title, name = (text.encode("utf-8", "ignore").decode() for text in (title, name))
    for write, check in WRITERS.values():
        check(write(page(row(1, a__title=title), query=name)))
