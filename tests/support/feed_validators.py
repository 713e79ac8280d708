"""Validators of feeds that are written: the rules of RSS 2.0, RFC 4287 (Atom), GeoRSS and JSON Feed 1.1 that they can break."""

import json
import re
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import lxml.etree

ATOM = "{http://www.w3.org/2005/Atom}"
GEO = "{http://www.w3.org/2003/01/geo/wgs84_pos#}"
GEORSS = "{http://www.georss.org/georss}"
_RFC822 = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def _root(content):
    return lxml.etree.fromstring(content, lxml.etree.XMLParser(resolve_entities=False, no_network=True))


def _once(parent, *names):
    for name in names:
        assert len(parent.findall(name)) == 1, f"{parent.tag} has {len(parent.findall(name))} of {name}"


def _is_url(text):
    assert urlsplit(text).scheme in ("http", "https") and urlsplit(text).netloc, text


def _check_geometry(item):
    for point in item.findall(f"{GEORSS}point"):
        assert len(_positions(point)) == 1
    for line in item.findall(f"{GEORSS}line"):
        assert len(_positions(line)) >= 2
    for box in item.findall(f"{GEORSS}box"):
        (south, west), (north, east) = _positions(box)
        assert south <= north and west <= east
    assert len([e for e in item if e.tag.startswith(GEORSS)]) <= 1
    lats, longs = item.findall(f"{GEO}lat"), item.findall(f"{GEO}long")
    assert len(lats) == len(longs) <= 1
    assert all(-90 <= float(e.text) <= 90 for e in lats) and all(-180 <= float(e.text) <= 180 for e in longs)


def _positions(element):
    numbers = [float(word) for word in element.text.split()]
    assert len(numbers) % 2 == 0
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    assert all(-90 <= lat <= 90 and -180 <= long <= 180 for lat, long in pairs)
    return pairs


def check_rss(content):
    """Check RSS 2.0, and the profile of the RSS Advisory Board; returns the channel."""
    root = _root(content)
    assert root.tag == "rss" and root.get("version") == "2.0" and [child.tag for child in root] == ["channel"]
    channel = root[0]
    _once(channel, "title", "link", "description", "lastBuildDate")
    _is_url(channel.findtext("link"))
    assert _RFC822.fullmatch(channel.findtext("lastBuildDate"))
    assert [link.get("href") for link in channel.findall(f"{ATOM}link") if link.get("rel") == "self"] == [
        channel.findtext("link")
    ]
    for link in channel.findall(f"{ATOM}link"):
        _is_url(link.get("href"))
    guids = [item.findtext("guid") for item in channel.findall("item")]
    assert None not in guids and len(set(guids)) == len(guids)
    for item in channel.findall("item"):
        assert set(item.keys()) == set()
        assert item.findtext("title") or item.findtext("description")
        _once(item, "guid", "pubDate", "title", "description")
        assert item.find("guid").get("isPermaLink") == "false"
        assert _RFC822.fullmatch(item.findtext("pubDate")) and parsedate_to_datetime(item.findtext("pubDate"))
        if item.find("link") is not None:
            _is_url(item.findtext("link"))
        known = {"title", "link", "description", "pubDate", "guid"}
        assert {e.tag for e in item if not e.tag.startswith("{")} <= known
        _check_geometry(item)
    return channel


def check_atom(content):
    """Check Atom 1.0 by RFC 4287; returns the feed."""
    feed = _root(content)
    assert feed.tag == f"{ATOM}feed"
    _once(feed, f"{ATOM}id", f"{ATOM}title", f"{ATOM}updated")
    links = [(link.get("rel"), link.get("type")) for link in feed.findall(f"{ATOM}link")]
    assert len(set(links)) == len(links) and ("self", "application/atom+xml") in links
    entries = feed.findall(f"{ATOM}entry")
    if feed.find(f"{ATOM}author") is None:
        assert all(entry.find(f"{ATOM}author") is not None for entry in entries)
    ids = [entry.findtext(f"{ATOM}id") for entry in entries]
    assert len(set(ids)) == len(ids)
    for part in (feed, *entries):
        assert urlsplit(part.findtext(f"{ATOM}id")).scheme
        assert _RFC3339.fullmatch(part.findtext(f"{ATOM}updated"))
        assert datetime.fromisoformat(part.findtext(f"{ATOM}updated"))
    for person in feed.iter(f"{ATOM}author"):
        _once(person, f"{ATOM}name")
    for entry in entries:
        _once(entry, f"{ATOM}id", f"{ATOM}title", f"{ATOM}updated", f"{ATOM}content")
        assert len(entry.findall(f"{ATOM}published")) <= 1
        assert entry.find(f"{ATOM}content").get("type") == "html" and len(entry.find(f"{ATOM}content")) == 0
        for link in entry.findall(f"{ATOM}link"):
            _is_url(link.get("href"))
        _check_geometry(entry)
    return feed


def check_json_feed(content):
    """Check JSON Feed 1.1; returns the feed."""
    feed = json.loads(content.decode("utf-8"))
    assert feed["version"] == "https://jsonfeed.org/version/1.1"
    assert isinstance(feed["title"], str) and isinstance(feed["items"], list)
    assert set(feed) <= {"version", "title", "description", "feed_url", "home_page_url", "next_url", "items"}
    for key in ("feed_url", "next_url"):
        if key in feed:
            _is_url(feed[key])
    assert feed.get("next_url") != feed["feed_url"]
    ids = [item["id"] for item in feed["items"]]
    assert all(isinstance(one, str) for one in ids) and len(set(ids)) == len(ids)
    for item in feed["items"]:
        assert {key for key in item if not key.startswith("_")} <= {
            "id",
            "url",
            "title",
            "content_text",
            "date_published",
        }
        assert isinstance(item["content_text"], str)
        assert _RFC3339.fullmatch(item["date_published"])
        if "url" in item:
            _is_url(item["url"])
    return feed
