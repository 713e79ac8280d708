"""Documents of all formats against feedparser, and what each kind of element gives."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.feeds import FeedLimits, NotAFeed, parse_feed
from headrace.feeds.items import ITEM_SCHEMA
from tests.support.feed_oracle import comparable, rows_of

CORPUS = sorted(path for path in (Path(__file__).parent / "corpus").iterdir())
URL = "http://feeds.example/all/feed.xml"
SEEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

#: Where we differ from feedparser on purpose, and why.
DIFFERENT = {
    ("bozo-controls.xml", "title"): "feedparser keeps characters that XML does not allow",
    ("cap-alerts.xml", "author"): "feedparser does not let entries have the author of their feed, as RFC 4287 does",
    ("rss20-wordpress.xml", "pubDate"): "feedparser does not read parts of seconds with the name of a month",
    ("cap-alerts.xml", "geoLat"): "feedparser leaves out polygons of CAP",
    ("cap-alerts.xml", "geoLong"): "feedparser leaves out polygons of CAP",
    ("cap-alerts.xml", "box"): "feedparser leaves out polygons of CAP",
}


def parse(content, **options):
    return parse_feed(content if isinstance(content, bytes) else content.encode(), URL, seen=SEEN, **options)


def items(content, **options):
    return parse(content, **options).items.to_pylist()


def rss(item, head=""):
    return f'<rss version="2.0" {head}><channel><title>t</title>{item}</channel></rss>'


def one(element, head=""):
    """The only item of a feed, with an element in it."""
    (item,) = items(rss(f"<item>{element}</item>", head))
    return item


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_oracle_items_are_those_of_feedparser(path):
    ours = [comparable(item) for item in items(path.read_bytes())]
    theirs = rows_of(path.read_bytes(), URL)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        for column in other:
            if (path.name, column) not in DIFFERENT:
                assert mine[column] == other[column], (path.name, column)


FORMATS = {
    "atom03.xml": "atom 0.3",
    "atom10.xml": "atom 1.0",
    "atom10-prefixed.xml": "atom 1.0",
    "rss090.rdf": "rss 0.90",
    "rss091.xml": "rss 0.91",
    "rss092.xml": "rss 0.92",
    "rss10.rdf": "rss 1.0",
    "rss20-quakes.xml": "rss 2.0",
    "bozo-case.xml": "rss 2.0",
}


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_a_feed_has_its_own_columns(path):
    feed = parse(path.read_bytes())
    assert feed.items.schema.equals(ITEM_SCHEMA)
    feed.items.validate(full=True)
    assert set(feed.items.column("feed").to_pylist()) == {URL}
    assert set(feed.items.column("seen").to_pylist()) == {SEEN}
    assert feed.title and (feed.link or path.name == "atom10-prefixed.xml" or path.name == "cap-alerts.xml")
    assert feed.format == FORMATS.get(path.name, feed.format)
    ill_formed = path.name.startswith("bozo-") and path.name not in ("bozo-case.xml", "bozo-undeclared.xml")
    assert bool(feed.problems) == (ill_formed or path.name == "rss20-quakes.xml")


def test_a_feed_says_what_it_is():
    feed = parse((Path(__file__).parent / "corpus" / "rss20-quakes.xml").read_bytes())
    assert (feed.title, feed.link, feed.description) == (
        "Earthquakes & aftershocks",
        "http://quakes.example/",
        "Real-time list",
    )
    assert feed.ttl == 900
    assert feed.problems == ("1 date is not understood, first 'not a date'",)


def test_the_time_to_live_may_be_that_of_the_syndication_module():
    assert parse((Path(__file__).parent / "corpus" / "rss20-wordpress.xml").read_bytes()).ttl == 1800
    assert parse(rss("<ttl>never</ttl>")).ttl is None
    assert parse(rss("")).ttl is None


GEOMETRY = {
    "<geo:lat>1.5</geo:lat><geo:long>2.5</geo:long>": (1.5, 2.5, (2.5, 1.5, 2.5, 1.5)),
    "<geo:long>2.5</geo:long><geo:lat>1.5</geo:lat>": (1.5, 2.5, (2.5, 1.5, 2.5, 1.5)),
    "<geo:Point><geo:lat>1.5</geo:lat><geo:long>2.5</geo:long></geo:Point>": (1.5, 2.5, (2.5, 1.5, 2.5, 1.5)),
    "<geo:lat_long>1.5,2.5</geo:lat_long>": (1.5, 2.5, (2.5, 1.5, 2.5, 1.5)),
    "<georss:point>1.5 2.5</georss:point>": (1.5, 2.5, (2.5, 1.5, 2.5, 1.5)),
    "<georss:point> 1.5 , 2.5 </georss:point>": (1.5, 2.5, (2.5, 1.5, 2.5, 1.5)),
    "<georss:box>1 2 3 6</georss:box>": (2, 4, (2, 1, 6, 3)),
    "<georss:line>1 2 3 6 -5 4</georss:line>": (-1, 4, (2, -5, 6, 3)),
    "<georss:polygon>1 2 3 6 -5 4 1 2</georss:polygon>": (-1, 4, (2, -5, 6, 3)),
    "<georss:where><gml:Point><gml:pos>1 2</gml:pos></gml:Point></georss:where>": (1, 2, (2, 1, 2, 1)),
    "<georss:where><gml:Envelope><gml:lowerCorner>1 2</gml:lowerCorner><gml:upperCorner>3 6</gml:upperCorner></gml:Envelope>"
    "</georss:where>": (2, 4, (2, 1, 6, 3)),
    "<gml:LineString><gml:posList>1 2 3 6</gml:posList></gml:LineString>": (2, 4, (2, 1, 6, 3)),
    '<gml:LineString srsDimension="3"><gml:posList>1 2 99 3 6 99</gml:posList></gml:LineString>': (2, 4, (2, 1, 6, 3)),
    '<gml:posList srsDimension="3">1 2 99 3 6 99</gml:posList>': (2, 4, (2, 1, 6, 3)),
    '<gml:Point srsName="urn:ogc:def:crs:OGC:1.3:CRS84"><gml:pos>2 1</gml:pos></gml:Point>': (1, 2, (2, 1, 2, 1)),
    '<gml:Point srsName="urn:ogc:def:crs:EPSG::4326"><gml:pos>1 2</gml:pos></gml:Point>': (1, 2, (2, 1, 2, 1)),
    "<georss:point>1 2</georss:point><georss:box>0 0 9 8</georss:box>": (1, 2, (0, 0, 8, 9)),
    "<georss:point>1 200</georss:point>": (1, -160, (-160, 1, -160, 1)),
    "<georss:point>1 -190</georss:point>": (1, 170, (170, 1, 170, 1)),
    "<cap:polygon>1,2 3,6 -5,4 1,2</cap:polygon>": (-1, 4, (2, -5, 6, 3)),
    "<gml:coordinates>1,2 3,6</gml:coordinates>": (2, 4, (2, 1, 6, 3)),
}


@pytest.mark.parametrize("element", GEOMETRY)
def test_geometry_becomes_a_point_and_a_box(element):
    item = one(element)
    assert (item["geoLat"], item["geoLong"], tuple(item["box"].values())) == GEOMETRY[element]


def test_a_circle_is_its_centre_and_the_box_around_it():
    for element in (
        "<georss:circle>60 10 111195</georss:circle>",
        "<cap:circle>60,10 111.195</cap:circle>",
        '<gml:CircleByCenterPoint><gml:pos>60 10</gml:pos><gml:radius uom="km">111.195</gml:radius></gml:CircleByCenterPoint>',
    ):
        item = one(element)
        assert (item["geoLat"], item["geoLong"]) == (60, 10)
        assert tuple(item["box"].values()) == pytest.approx((8, 59, 12, 61))


def test_an_elevation_is_that_of_any_vocabulary():
    assert one("<georss:elev>313</georss:elev>")["elev"] == 313
    assert (
        one("<geo:Point><geo:lat>1</geo:lat><geo:long>2</geo:long><geo:alt>-3.5</geo:alt></geo:Point>")["elev"] == -3.5
    )
    assert one("<gml:Point><gml:pos>1 2 7</gml:pos></gml:Point>")["elev"] == 7


def test_half_a_point_is_told():
    feed = parse(rss("<item><geo:lat>1</geo:lat></item>"))
    assert feed.items.column("box").null_count == 1
    assert feed.problems == ("1 place is not understood, first in item 1",)


@pytest.mark.parametrize("point", ["91 0", "0 361", "x y", "1", "nan nan", "1e400 0"])
def test_a_place_that_cannot_be_is_told(point):
    feed = parse(rss(f"<item><georss:point>{point}</georss:point></item>"))
    assert feed.items.column("box").null_count == 1
    assert feed.problems == ("1 place is not understood, first in item 1",)


coordinate = st.tuples(st.decimals(-90, 90, places=12), st.decimals(-180, 180, places=14))


@given(
    st.lists(coordinate, min_size=2, max_size=5),
    st.sampled_from(["point", "line", "polygon", "pos", "posList", "geo", "box"]),
)
def test_oracle_no_geometry_is_dropped_and_numbers_are_those_of_python(points, shape):
    pairs = [f"{lat} {long}" for lat, long in points]
    element = {
        "point": f"<g:point>{pairs[0]}</g:point>",
        "line": f"<g:line>{' '.join(pairs)}</g:line>",
        "polygon": f"<g:polygon>{' '.join(pairs)}</g:polygon>",
        "pos": f"<g:where><m:Point><m:pos>{pairs[0]}</m:pos></m:Point></g:where>",
        "posList": f"<g:where><m:LineString><m:posList>{' '.join(pairs)}</m:posList></m:LineString></g:where>",
        "geo": f"<w:lat>{points[0][0]}</w:lat><w:long>{points[0][1]}</w:long>",
        "box": f"<g:box>{' '.join(pairs[:2])}</g:box>",
    }[shape]
    uris = (
        'xmlns:g="http://www.georss.org/georss" xmlns:m="http://www.opengis.net/gml"'
        ' xmlns:w="http://www.w3.org/2003/01/geo/wgs84_pos#"'
    )
    item = one(element, uris)
    used = points[:1] if shape in ("point", "pos", "geo") else points[:2] if shape == "box" else points
    lats, longs = [float(lat) for lat, _ in used], [float(long) for _, long in used]
    assert item["box"] == {"xmin": min(longs), "ymin": min(lats), "xmax": max(longs), "ymax": max(lats)}
    assert item["geoLat"] is not None and item["geoLong"] is not None


def test_namespaces_are_known_by_their_uris():
    geo = 'xmlns:p="http://www.w3.org/2003/01/geo/wgs84_pos#"'
    assert one("<p:lat>1</p:lat><p:long>2</p:long>", geo)["geoLat"] == 1
    assert one('<lat xmlns="http://www.georss.org/georss">1</lat>')["geoLat"] is None
    assert one('<point xmlns="http://www.georss.org/georss">1 2</point><title>a</title>') | {
        "title": "a",
        "geoLat": 1,
    } == one("<title>a</title><georss:point>1 2</georss:point>")
    # A prefix that was declared for something else means that, and a usual prefix that was not declared means the usual.
    assert one("<geo:lat>1</geo:lat><geo:long>2</geo:long>", 'xmlns:geo="urn:genealogy"')["geoLat"] is None
    assert one("<geo:lat>1</geo:lat><geo:long>2</geo:long>")["geoLat"] == 1
    # A declaration ends with its element.
    nested = '<x xmlns:q="http://www.georss.org/georss"><q:point>1 2</q:point></x><q:point>3 4</q:point>'
    assert one(nested)["box"] == {"xmin": 2, "ymin": 1, "xmax": 2, "ymax": 1}
    for uri in ("https://www.georss.org/georss/", "http://georss.org/georss"):
        assert one("<g:point>1 2</g:point>", f'xmlns:g="{uri}"')["geoLat"] == 1


def test_inline_markup_is_kept_as_html():
    atom = '<feed xmlns="http://www.w3.org/2005/Atom"><title>t</title><entry>{}</entry></feed>'
    content = (
        '<content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml" class="x">1 &lt; 2 &amp; <h:b xmlns:h="y" title=\'a"b\'>'
        "c</h:b><br/><script>x()</script></div></content>"
    )
    (item,) = items(atom.format(content))
    assert item["description"] == '1 &lt; 2 &amp; <b title="a&quot;b">c</b><br>'
    assert (
        one("<description><p>raw &amp; <i>more</i></p></description>")["description"] == "<p>raw &amp; <i>more</i></p>"
    )
    (item,) = items(atom.format('<content type="image/png">aGVsbG8=</content>'))
    assert item["description"] is None


def test_ranks_decide_between_elements_for_the_same_column():
    both = "<content:encoded>long</content:encoded><description>short</description>"
    assert one(both)["description"] == "short"
    assert (
        one("<dc:creator>Ann</dc:creator><dc:creator>Bob</dc:creator><itunes:author>C</itunes:author>")["author"]
        == "Ann, Bob"
    )
    assert one("<media:title>m</media:title><title>t</title><title>u</title>")["title"] == "t"
    assert one("<media:group><title>inner</title></media:group>")["title"] is None
    assert one("<source><title>inner</title></source>")["title"] is None


def test_an_entry_has_the_author_of_its_feed():
    atom = '<feed xmlns="http://www.w3.org/2005/Atom"><author><name>Ann</name></author>{}<author><email>b@c</email></author></feed>'
    (item, other) = items(
        atom.format("<entry><title>x</title></entry><entry><author><name>Eve</name></author></entry>")
    )
    assert (item["author"], other["author"]) == ("Ann, b@c", "Eve")


def test_links_are_made_absolute():
    assert one("<link>/a?b</link>")["link"] == "http://feeds.example/a?b"
    entry = '<entry xml:base="y/"><link href="z"/></entry>'
    atom = f'<feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://b.example/x/">{entry}</feed>'
    (item,) = items(atom)
    assert item["link"] == "http://b.example/x/y/z"
    (item,) = items(atom.replace("http://b.example/x/", "javascript:alert(1)/"))
    assert item["link"] == "http://feeds.example/all/y/z"


def test_a_document_may_be_a_single_entry():
    (item,) = items('<entry xmlns="http://www.w3.org/2005/Atom"><id>x</id><title>only</title></entry>')
    assert (item["guid"], item["title"]) == ("x", "only")


def test_a_feed_may_be_empty():
    feed = parse(rss(""))
    assert feed.items.num_rows == 0 and feed.items.schema.equals(ITEM_SCHEMA)


@pytest.mark.parametrize(
    ("content", "place", "reason"),
    [
        (b"", (1, 1), "the document is empty"),
        (b"  \n", (1, 1), "the document is empty"),
        (b'{"version": 1}', (1, 1), "there is no element in the document"),
        (b"<!DOCTYPE html>\n  <html><head><title>x</title></head></html>", (2, 3),
         "the root element is <html>, which is that of a web page"),
        ("<!-- é -->é<opml/>".encode(), (1, 12), "the root element is <opml>"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", (1, 1), "there is no element in the document"),
    ],
)  # fmt: skip
def test_what_is_no_feed_is_refused_by_place(content, place, reason):
    with pytest.raises(NotAFeed) as error:
        parse(content)
    assert (error.value.url, (error.value.line, error.value.column), error.value.reason) == (URL, place, reason)
    assert isinstance(error.value, BadInput) and URL in str(error.value)


def test_wrong_arguments_are_named():
    with pytest.raises(BadInput, match="content is bytes, not str 'x'"):
        parse_feed("x", URL, seen=SEEN)
    with pytest.raises(BadInput, match="has no time zone"):
        parse_feed(b"<rss/>", URL, seen=datetime(2026, 1, 1))
    with pytest.raises(BadInput, match=r"FeedLimits\(items=0\) is not a number of 1 or more"):
        FeedLimits(items=0)


def test_a_document_of_many_pieces_gives_what_its_items_give_alone():
    place = "<georss:point>{0} 1</georss:point>"
    single = f"<item><title>n° {{0}}</title><description>&lt;p&gt;{{1}}&lt;/p&gt;</description>{place}</item>"
    texts = [single.format(k % 90, "word & ".replace("&", "&amp;amp;") * (k % 40)) for k in range(3000)]
    whole = items(rss("".join(texts)))
    assert len(whole) == 3000
    for k in (0, 1, 39, 1234, 2999):
        assert whole[k] == items(rss(texts[k]))[0]


def test_the_charset_of_the_header_counts_where_the_document_has_none():
    text = rss("<item><title>жук</title></item>").encode("koi8-r")
    assert items(text, content_type="text/xml; charset=koi8-r")[0]["title"] == "жук"
    feed = parse(rss("<item><title>é</title></item>").encode(), content_type="text/xml; charset=nonsense")
    assert feed.items.column("title")[0].as_py() == "é"
    assert feed.problems == ("the encoding 'nonsense' is not known: it was read as utf-8",)
