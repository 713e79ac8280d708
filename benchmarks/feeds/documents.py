"""Documents in the shape of public feeds: RSS 2.0, Atom and RSS 1.0, with places, HTML and several kinds of dates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

from benchmarks.feeds import ITEMS

_WORDS = np.array(
    ["earthquake", "flood", "storm", "river", "north", "village", "region", "warning", "issued", "until", "coast", "depth",
     "near", "magnitude", "water", "level", "rising", "gusts", "expected", "road", "closed", "bridge", "station", "crews"]
)  # fmt: skip
_START = datetime(2026, 1, 1, tzinfo=UTC)


def document(number: int) -> bytes:
    """Make the feed of a number, always the same; every third is of another format."""
    rng = np.random.default_rng([7, number])
    items = [_Item(rng, number, k) for k in range(ITEMS)]
    return (_rss, _atom, _rdf)[number % 3](number, items).encode()


class _Item:
    def __init__(self, rng: np.random.Generator, number: int, k: int) -> None:
        words = rng.choice(_WORDS, 70).tolist()
        self.title = f"M {rng.uniform(2, 7):.1f}, {' '.join(words[:5])} &amp; {words[5]}"
        self.text = (
            f'&lt;p&gt;{" ".join(words[6:40])} &lt;a href="http://feed{number}.example/{k}"&gt;more&lt;/a&gt;.&lt;/p&gt;'
            f'&lt;img src="http://feed{number}.example/{k}.png" alt="map"/&gt;&lt;p&gt;{" ".join(words[40:])}&lt;/p&gt;'
        )
        self.link = f"http://feed{number}.example/item?n={k}&amp;x=1"
        self.guid = f"urn:feed:{number}:{k}"
        self.moment = _START + timedelta(seconds=int(rng.integers(0, 10**7)))
        self.lat, self.long = rng.uniform(-90, 90), rng.uniform(-180, 180)
        self.words = words


def _rss(number: int, items: list[_Item]) -> str:
    body = "".join(
        f"<item><title>{i.title}</title><link>{i.link}</link><description>{i.text}</description>"
        f'<guid isPermaLink="false">{i.guid}</guid><pubDate>{i.moment:%a, %d %b %Y %H:%M:%S} GMT</pubDate>'
        f"<category>{i.words[0]}</category><category>{i.words[1]}</category><author>{i.words[2]}@example.org</author>"
        f"<geo:lat>{i.lat:.4f}</geo:lat><geo:long>{i.long:.4f}</geo:long></item>\n"
        for i in items
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<rss version="2.0" xmlns:geo="http://www.w3.org/2003/01/geo/wgs84_pos#"><channel>'
        f"<title>Feed {number}</title><link>http://feed{number}.example/</link><description>News</description><ttl>5</ttl>\n"
        f"{body}</channel></rss>"
    )


def _atom(number: int, items: list[_Item]) -> str:
    body = "".join(
        f'<entry><id>{i.guid}</id><title>{i.title}</title><link rel="alternate" type="text/html" href="{i.link}"/>'
        f"<updated>{i.moment:%Y-%m-%dT%H:%M:%S}Z</updated><published>{i.moment:%Y-%m-%dT%H:%M:%S}Z</published>"
        f'<author><name>{i.words[2]}</name></author><category term="{i.words[0]}" label="{i.words[0]}"/>'
        f'<summary type="html">{i.text}</summary><georss:point>{i.lat:.4f} {i.long:.4f}</georss:point>'
        "<georss:elev>-10</georss:elev></entry>\n"
        for i in items
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom"'
        f' xmlns:georss="http://www.georss.org/georss"><id>urn:feed:{number}</id><title>Feed {number}</title>'
        f"<updated>2026-01-01T00:00:00Z</updated>\n{body}</feed>"
    )


def _rdf(number: int, items: list[_Item]) -> str:
    body = "".join(
        f'<item rdf:about="{i.link}"><title>{i.title}</title><link>{i.link}</link><description>{i.text}</description>'
        f"<dc:date>{i.moment:%Y-%m-%dT%H:%M:%S}+00:00</dc:date><dc:creator>{i.words[2]}</dc:creator><dc:subject>{i.words[0]}</dc:subject>"
        f"<georss:where><gml:Point><gml:pos>{i.lat:.4f} {i.long:.4f}</gml:pos></gml:Point></georss:where></item>\n"
        for i in items
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
        ' xmlns="http://purl.org/rss/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:georss="http://www.georss.org/georss"'
        f' xmlns:gml="http://www.opengis.net/gml"><channel rdf:about="http://feed{number}.example/"><title>Feed {number}</title>'
        f"<link>http://feed{number}.example/</link><description>News</description></channel>\n{body}</rdf:RDF>"
    )
