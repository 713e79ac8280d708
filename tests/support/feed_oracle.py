"""What feedparser makes of a document, as rows with the columns of an item."""

import calendar
import html
import re

import feedparser

_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


def words(text):
    """A text without tags, with references read and spaces made equal: what a person sees of HTML."""
    return None if text is None else " ".join(html.unescape(_TAG.sub(" ", text)).split()) or None


def rows_of(content, url):
    """The items of a document as feedparser reads it: dictionaries without the columns `feed`, `seen` and `elev`."""
    parsed = feedparser.parse(content, response_headers={"content-location": url})
    dated = parsed.version in (
        "rss10",
        "rss090",
    )  # there dc:date is the only date, which feedparser takes for an update
    return [_row(entry, dated) for entry in parsed.entries]


def _row(entry, dated):
    published = _seconds(entry, "published_parsed")
    updated = _seconds(entry, "updated_parsed")
    first = next(
        (moment for moment in (published, updated, _seconds(entry, "created_parsed")) if moment is not None), None
    )
    contents = [content.value for content in entry.get("content", [])]
    lat, long, box = _place(entry)
    return {
        "guid": entry.get("id") or None,
        "link": entry.get("link") or None,
        "title": words(entry.get("title")),
        "description": words(entry.get("summary") or (contents or [None])[0]),
        "author": _author(entry),
        "category": [tag.term for tag in entry.get("tags", []) if tag.term] or None,
        "pubDate": first,
        "updated": None if dated else updated,
        "geoLat": lat,
        "geoLong": long,
        "box": box,
    }


def _author(entry):
    names = [author.get("name") or author.get("email") for author in entry.get("authors", [])]
    return ", ".join(name for name in names if name) or entry.get("author") or None


def _seconds(entry, key):
    parsed = dict.get(entry, key)
    return None if parsed is None else calendar.timegm(parsed)


def _place(entry):
    points = []
    if "geo_lat" in entry:
        points = [(float(entry.geo_long), float(entry.geo_lat))]
    where = entry.get("where")
    if where and where.get("coordinates"):
        coordinates = where["coordinates"]
        points = (
            [coordinates] if where["type"] == "Point" else coordinates[0] if where["type"] == "Polygon" else coordinates
        )
    if not points:
        return None, None, None
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    box = {"xmin": min(xs), "ymin": min(ys), "xmax": max(xs), "ymax": max(ys)}
    if len(points) == 1:
        return ys[0], xs[0], box
    return (box["ymin"] + box["ymax"]) / 2, (box["xmin"] + box["xmax"]) / 2, box


def comparable(item):
    """An item of ours, as `rows_of` has it."""
    return {
        **{name: item[name] for name in ("guid", "link", "author", "category", "geoLat", "geoLong", "box")},
        "title": words(item["title"]),
        "description": words(item["description"]),
        **{name: None if item[name] is None else int(item[name].timestamp() // 1) for name in ("pubDate", "updated")},
    }
