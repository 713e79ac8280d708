"""Feeds that mean harm: bombs, giants, and HTML that runs code."""

import re
from datetime import UTC, datetime

import lxml.html
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.feeds import FeedLimits, parse_feed

SEEN = datetime(2026, 1, 2, tzinfo=UTC)


def parse(content, **limits):
    content = content if isinstance(content, bytes) else content.encode()
    return parse_feed(content, "http://f.example/", seen=SEEN, limits=FeedLimits(**limits))


def feed_of(*elements):
    return (
        "<rss version='2.0'><channel>" + "".join(f"<item>{element}</item>" for element in elements) + "</channel></rss>"
    )


def described(html):
    (item,) = parse(feed_of(f"<description>{escaped(html)}</description>")).items.to_pylist()
    return item["description"] or ""


def titled(text):
    (item,) = parse(feed_of(f"<title>{escaped(text)}</title>")).items.to_pylist()
    return item["title"] or ""


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("\r", "&#13;")


def test_entity_bombs_are_not_expanded():
    levels = "".join(f'<!ENTITY l{k} "{f"&l{k - 1};" * 10}">' for k in range(1, 10))
    bomb = f'<!DOCTYPE rss [<!ENTITY l0 "lol">{levels}]>' + feed_of("<title>&l9;</title>")
    feed = parse(bomb)
    assert feed.items.column("title").to_pylist() == ["&l9;"]
    assert any("not expanded" in problem for problem in feed.problems)
    # The same without nesting: a long entity, many times.
    long = f'<!DOCTYPE rss [<!ENTITY a "{"x" * 1000}">]>' + feed_of(f"<description>{'&a;' * 20_000}</description>")
    assert parse(long).items.nbytes < 2_000_000
    outside = '<!DOCTYPE rss [<!ENTITY f SYSTEM "file:///etc/passwd">]>' + feed_of("<title>&f;</title>")
    assert parse(outside).items.column("title").to_pylist() == ["&f;"]


def test_giant_titles_are_cut():
    giant = feed_of(f"<title>{'é' * 10_000_000}</title>", "<title>x</title>").encode()
    feed = parse(giant, document=100 << 20)
    assert [len(title.encode()) for title in feed.items.column("title").to_pylist()] == [8192, 1]
    assert feed.problems == ("1 text is longer than the limit and cut, first in item 1",)
    feed = parse(giant)
    assert feed.items.num_rows == 0
    assert feed.problems[0] == f"the document has {len(giant)} bytes, of which the first 16777216 are read"


def test_a_cut_is_between_characters():
    for length in range(1, 12):
        feed = parse(
            feed_of("<title>aé€💩bé€💩</title>", "<category>aé€💩b</category><category term='aé€💩b'/>"), short=length
        )
        for text in (feed.items.column("title")[0].as_py(), *(feed.items.column("category")[1].as_py() or ())):
            assert text is None or ("aé€💩bé€💩".startswith(text) and len(text.encode()) > length - 4)


def test_what_is_too_long_is_cut_or_left_out_and_told():
    long = "x" * 100
    feed = parse(
        feed_of(
            f"<guid>{long}</guid><link>http://x/{long}</link><author>{long}</author><category>{long}</category>"
            f"<description>{long * 10}</description>" + "<category>c</category>" * 10,
            "<title>second</title>",
            "<title>third</title>",
        ),
        short=50, long=500, categories=3, items=2,
    )  # fmt: skip
    first, second = feed.items.to_pylist()
    assert (first["guid"], first["link"]) == (None, None)
    assert (first["author"], first["category"], first["description"]) == ("x" * 50, ["x" * 50, "c", "c"], "x" * 500)
    assert second["title"] == "second"
    assert feed.problems == (
        "1 items after the first 2 are left out",
        "3 texts are longer than the limit and cut, first in item 1",
        "2 links or guids are longer than 50 bytes and left out",
        "8 categories or authors beyond 3 of an item are left out",
    )


GIANTS = {
    "depth": "<a>" * 50_000,
    "namespaces": "<a xmlns:b='c'>" * 50_000,
    "names": "".join(f"<n{k}/>" for k in range(50_000)),
    "attributes": "<a " + "".join(f"b{k}='' " for k in range(50_000)) + ">",
    "quote": "<a b='",
    "quotes": "<a b='" * 10_000,
    "less": "<" * 100_000,
    "ampersands": "&" * 100_000,
    "cdata": "<![CDATA[" * 10_000,
    "comments": "<!--" * 10_000,
    "ends": "</item>" * 10_000,
    "events": "<a/>" * 1_200_000,
}


@pytest.mark.parametrize("part", GIANTS.values(), ids=GIANTS)
def test_giant_structures_end(part):
    feed = parse(feed_of("<title>first</title>", part))
    assert feed.items.column("title")[0].as_py() == "first"
    assert feed.problems


@pytest.mark.parametrize("html", ["<", "<a ", "<a b='", "<script>", "<!--", "</", "&lt;", "<b>", "<x><"])
def test_giant_html_ends(html):
    assert len(described(html * 50_000)) <= 7 * len(html) * 50_000


HARMLESS = {
    "<p>fine <b>text</b></p>": "<p>fine <b>text</b></p>",
    "<script>alert(1)</script>x": "x",
    "<SCRIPT SRC=//evil></SCRIPT>x": "x",
    "<style>p {}</style>x": "x",
    "<img src=x onerror=alert(1)>": '<img src="x">',
    "<img/src=x/onerror=alert(1)>": '<img src="x/onerror=alert(1)">',
    "<a href='javascript:alert(1)'>x</a>": "<a>x</a>",
    "<a href=' java\tscript:alert(1)'>x</a>": "<a>x</a>",
    "<a href='&#106;avascript:alert(1)'>x</a>": "<a>x</a>",
    "<a href='javascript&colon;alert(1)'>x</a>": "<a>x</a>",
    "<a href='data:text/html,x'>x</a>": "<a>x</a>",
    "<a href='http://x/?a=1&amp;b=2' target=_blank>x</a>": '<a href="http://x/?a=1&amp;b=2">x</a>',
    "<a href='/relative:not-a-scheme'>x</a>": '<a href="/relative:not-a-scheme">x</a>',
    '<a title=\'"><script>\'>x</a>': '<a title="&quot;&gt;&lt;script&gt;">x</a>',
    "<<x>script>alert(1)</script>": "< script>alert(1)",
    "<<!-- -->script>alert(1)</script>": "< script>alert(1)",
    "<scr<script>x</script>ipt>alert(1)</script>": "xipt>alert(1)",
    "<iframe src=http://x>y</iframe>z": "z",
    "<svg><a xlink:href='javascript:x'>y</a></svg>z": "z",
    "<math><mi//xlink:href='data:x,y'></math>z": "z",
    "<div style='background:url(javascript:x)'>y</div>": "<div>y</div>",
    "<p id=location name=x class=y>z</p>": "<p>z</p>",
    "<form action=/x><input name=p></form>y": "y",
    "<base href=http://evil/><p>x</p>": "<p>x</p>",
    "<!--[if IE]><script>x</script><![endif]-->y": "y",
    "<?php x ?>y": "y",
    "<b>never closed": "<b>never closed",
    "x <a href='unfinished": "x",
    "1 < 2 & 3 > 2": "1 < 2 & 3 > 2",
    "a<br/>b</br>c": "a<br>bc",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>": '<img src="x">\'>',
    "<unknown onclick=x>y</unknown>": "y",
}  # fmt: skip


@pytest.mark.parametrize("html", HARMLESS)
def test_html_is_made_harmless(html):
    assert described(html) == HARMLESS[html]


def test_titles_keep_what_is_no_html():
    assert titled("Vector<T> & List<String> <3") == "Vector<T> & List<String> <3"
    assert titled("I </3 you <x") == "I </3 you <x"
    assert titled("<T onclick=x>y") == "y"
    assert titled("<script>x</script>y") == "y"
    assert titled("<<T a=b>script>x</script>") == "< script>x"


def test_links_that_run_code_are_left_out():
    feed = parse(feed_of("<link>javascript:alert(1)</link>", "<link> JaVa\nScRiPt:x</link>", "<link>data:text/html,x</link>",
                         "<link>https://fine.example/</link>", '<guid isPermaLink="true">javascript:alert(1)</guid>',
                         '<atom:link href="vbscript:x"/>'))  # fmt: skip
    assert feed.items.column("link").to_pylist() == [None, None, None, "https://fine.example/", None, None]
    assert feed.problems == ("4 texts or links are rid of what can do harm, first in item 1",)


PIECES = [
    "<", ">", "</", "/>", "script", "<script>", "</script>", "<img ", "src=", "x", " ", "onerror=", "alert(1)", "'",
    '"', "<a href=", "javascript:", "java\tscript:", "&#106;", "<!--", "-->", "<style>", "</style>", "<svg>", "<b>",
    "</b>", "<T>", "=", "/", "\n", "<p ", "onclick", "<iframe ", "&lt;", "<noscript>", "</noscript>", "<textarea>",
    "</textarea>", "<title>", "é", "`", "<math>", "<x:y ", "data:", "https://a.example/", "<?", "<!",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=25).map("".join))
def test_no_html_keeps_what_runs_code(html):
    for text in (described(html), titled(html)):
        tree = lxml.html.fromstring(f"<div>{text}</div>") if text.strip() else lxml.html.fromstring("<div/>")
        for element in tree.iter():
            if not isinstance(element.tag, str):
                continue
            assert element.tag.lower() not in ("script", "style", "iframe", "svg", "math", "object", "embed", "form"), (
                html,
                text,
            )
            for name, value in element.attrib.items():
                assert not name.lower().startswith("on"), (html, text)
                assert not re.match(r"[\s\x00-\x20]*(java|vb)script:|data:", value, re.IGNORECASE), (html, text)


plain = st.text(st.characters(codec="utf-8", exclude_characters="<", exclude_categories=["Cc", "Cs"]), min_size=1)


@given(plain)
def test_texts_without_tags_stay_as_they_are(text):
    spaces = "".join(chr(c) for c in range(33))
    illegal = "\ufffe\uffff"
    if not any(c in illegal for c in text) and text.strip(spaces):
        assert titled(text) == text.strip(spaces) == described(text)
