"""Documents that are not well-formed and that readers accept all the same; what was wrong is told."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.feeds import FeedLimits, NotAFeed, parse_feed

SEEN = datetime(2026, 1, 2, tzinfo=UTC)
FEED = '<?xml version="1.0"?><rss version="2.0"><channel><title>t</title>{}</channel></rss>'


def parse(content, **limits):
    return parse_feed(
        content if isinstance(content, bytes) else content.encode(),
        "http://f.example/",
        seen=SEEN,
        limits=FeedLimits(**limits),
    )


def titles(feed):
    return feed.items.column("title").to_pylist()


MENDED = {
    "<item><title>a &nbsp; b</title></item>": ["a \xa0 b"],
    "<item><title>a & b &unknown; &#x26; &#0;</title></item>": ["a & b &unknown; &"],
    "<item><title>a &&amp; b</title></item>": ["a && b"],
    "<item><title>2 < 3</title></item>": ["2 < 3"],
    "<item><title>a ]]> b</title></item>": ["a ]]> b"],
    "<item><title a=1 b='2' b=\"3\" c>x</title></item>": ["x"],
    "<item><title>x</tilte></item><item><title>y</title></item>": ["x", "y"],
    "<item><title>x<item><title>y</title></item>": ["x", "y"],
    "<item><title>x</title></item></item><item><title>y</title></item>": ["x", "y"],
    "<item><title>x</TITLE></item>": ["x"],
    "<!-- a -- b --><item><title>x</title></item>": ["x"],
    "<item><title><![CDATA[a & <b>]]></title><bad": ["a & <b>"],
    "<item><title>\x00a\x1f</title></item>": ["a"],
    "<item><title>&#150; &#x92;</title></item>": ["– ’"],
    "<item>&bad;<title>&#128169;</title></item>": ["💩"],
}


@pytest.mark.parametrize("body", MENDED)
def test_a_document_is_mended(body):
    feed = parse(FEED.format(body))
    assert titles(feed) == MENDED[body]
    assert feed.title == "t"
    well_formed = body == "<item><title>&#150; &#x92;</title></item>"
    assert bool(feed.problems) != well_formed


def test_a_problem_has_its_place():
    feed = parse("<rss><channel>\n<item><title>a & b</title></item></channel></rss>")
    (problem,) = feed.problems
    assert problem.startswith("line 2, column 16: '&' does not begin a reference") and problem.endswith(
        "; the document was repaired"
    )


def test_what_follows_the_root_is_left_out():
    feed = parse(FEED.format("<item><title>x</title></item>") + "<item><title>y</title></item> & more")
    assert titles(feed) == ["x"]
    assert feed.problems == ("what follows the root element is not read: a second root element",)


def test_what_comes_before_the_document_is_left_out():
    feed = parse("\n\nWarning: mysql_connect() in /x.php on line 1\n" + FEED.format("<item><title>x</title></item>"))
    assert titles(feed) == ["x"] and len(feed.problems) == 1


def test_a_cut_document_gives_the_items_that_are_whole():
    whole = FEED.format(
        "<item><guid>1</guid><title>x</title></item><item><title>y</title><guid>2</guid><description>z</description></item>"
    )
    texts = {}
    for cut in range(whole.index("<item>"), len(whole)):
        feed = parse(whole[:cut])
        for row in feed.items.select(["guid", "title", "description"]).to_pylist():
            texts.setdefault(tuple(row.values()), cut)
        assert any("cut off" in problem for problem in feed.problems) or cut == len(whole)
    # No value of an item is ever a part of one: only elements that have ended count.
    assert {value for row in texts for value in row} <= {"1", "2", "x", "y", "z", None}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_document_that_is_cut_inside_a_character_keeps_its_encoding(encoding):
    head = FEED.replace("</channel></rss>", "").format("<item><title>é €</title></item><item><title>")
    whole = head.replace('"1.0"', f'"1.0" encoding="{encoding}"', 1) + "日本💩"
    content = whole.encode(encoding)
    for cut in range(len(content) - 12, len(content)):
        feed = parse(content[:cut])
        assert titles(feed) == ["é €"]
        assert feed.problems == ("the document is cut off", "the last item is cut off and left out")


def test_declared_entities_that_are_text_are_expanded():
    declared = '<!DOCTYPE rss [<!ENTITY c "Ltd"><!ENTITY d "a&c;">]>'
    feed = parse(declared + "<rss><channel><item><title>x &c; &d; &lt;</title></item></channel></rss>")
    assert titles(feed) == ["x Ltd &d; <"]
    assert any("not expanded" in problem for problem in feed.problems)


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "windows-1252", "shift_jis", "utf-8-sig"]
)
def test_encodings(encoding):
    text = "é €" if encoding == "windows-1252" else "日本" if encoding == "shift_jis" else "日本 é €"
    name = "utf-16" if encoding.startswith("utf-16") else encoding
    document = (
        f'<?xml version="1.0" encoding="{name}"?><rss><channel><item><title>{text}</title></item></channel></rss>'
    )
    if name == "utf-8-sig":
        document = document.replace("utf-8-sig", "utf-8")
    feed = parse(document.encode(encoding))
    assert titles(feed) == [text] and feed.problems == ()


def test_wrong_encodings_are_told():
    document = '<?xml version="1.0" encoding="{}"?><rss><channel><item><title>é €</title></item></channel></rss>'
    feed = parse(document.format("utf-8").encode("windows-1252"))
    assert titles(feed) == ["é €"]
    assert feed.problems == ("the bytes are not utf-8, which the document is said to be in: it was read as cp1252",)
    assert titles(parse(document.format("iso-8859-1").encode("windows-1252"))) == ["é €"]
    assert titles(parse(document.format("utf-16").encode())) == ["é €"]
    feed = parse(document.format("rot13").encode())
    assert titles(feed) == ["é €"] and feed.problems == ("the encoding 'rot13' is not known: it was read as utf-8",)
    assert titles(parse(b"<rss><channel><item><title>\x81\xe9</title></item></channel></rss>")) == ["\ufffdé"]


PIECES = [
    "<rss>", "<channel>", "<item>", "</item>", "</channel>", "</rss>", "<title>", "</title>", "<description>", "x",
    " ", "&", "&amp;", "&lt;", "<![CDATA[", "]]>", "<!--", "-->", "<?xml ", "?>", "<!DOCTYPE", "[", "]", ">", "<",
    "/>", "'", '"', "=", "<a b='c'", "&#", ";", "é", "\x01", "<feed xmlns='http://www.w3.org/2005/Atom'>",
    "<entry>", "<content type='xhtml'><div>", "<georss:point>", "1 2", "</georss:point>", "<link href='a'/>",
    "<category term='b'/>", "<author><name>", "</author>", "<script>", "xmlns:a='b' ", "<x xmlns='y'>",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join), st.booleans())
def test_no_document_breaks_the_parser(text, framed):
    try:
        feed = parse("<rss><channel>" + text if framed else text)
    except NotAFeed:
        assert not framed
    else:
        feed.items.validate(full=True)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_parser(content):
    try:
        parse(b"<rss><channel><item><title>" + content).items.validate(full=True)
        parse(content)
    except NotAFeed:
        pass


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unfinished", ["<{0}", "<item {0}>", "<item {0} ", "</{0}", "<item a{1}>", "<item {2}>"])
def test_a_name_of_a_megabyte_takes_no_longer_than_its_length(unfinished):
    # One second and less; with a name that is tried at each of its lengths it was an hour.
    body = unfinished.format("a" * 1_000_000, " " * 1_000_000, "a " * 500_000).encode()
    feed = b"<rss version='2.0'><channel><title>t</title><item><title>one</title></item>" + body
    parsed = parse_feed(feed, "https://example.org/", seen=SEEN)
    assert parsed.items.column("title")[0].as_py() == "one"
