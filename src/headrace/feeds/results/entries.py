"""Results as the entries that all feed formats have: a title, lines of values, an id, a moment, a link and places."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

import pyarrow as pa

from headrace.feeds.results.page import ResultPage

_TITLE = 300  # characters of a title: readers show it in one line
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_OWN = ("_number", "_produced", "_id", "_places")


@dataclass(frozen=True)
class Entry:
    """One result, in plain text: whoever writes it escapes it."""

    number: int
    title: str
    lines: tuple[str, ...]
    id: str
    produced: datetime
    link: str | None
    places: tuple[dict[str, Any], ...]
    """those that have a position: alias, title, lat, long, box"""

    def html(self) -> str:
        """The lines as HTML."""
        return "<br/>\n".join(escape(line) for line in self.lines)


def entries(page: ResultPage) -> Iterator[Entry]:
    """Yield the results of a page, newest first."""
    fields = [field for field in page.rows.schema if field.name not in _OWN]
    labels = [label(field) for field in fields]
    for row in reversed(page.rows.to_pylist()):
        values = [said(row[field.name]) for field in fields]
        title = f"{row['_number']}) {', '.join(value for value in values if value)}"
        links = [row[f.name] for f in fields if f.name.rpartition(".")[2] == "link" and isinstance(row[f.name], str)]
        places = [place for place in row["_places"] or () if place["lat"] is not None and place["long"] is not None]
        yield Entry(
            number=row["_number"],
            title=title if len(title) <= _TITLE else f"{title[: _TITLE - 1]}…",
            lines=tuple(f"{name} : {value}" for name, value in zip(labels, values, strict=True)),
            id=f"urn:uuid:{uuid.UUID(bytes=row['_id'])}",
            produced=row["_produced"].astimezone(UTC),
            link=next((link for link in links if link.startswith(("http://", "https://"))), None),
            places=tuple(places),
        )


def label(field: pa.Field) -> str:
    """What a column is called in a feed: ``a.title`` is "a title"."""
    given = (field.metadata or {}).get(b"label")
    name: str = given.decode() if given else field.name.replace(".", " ")
    return name


def said(value: Any) -> str:
    """A value in one line of text; nothing for null."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, list):
        return ", ".join(said(one) for one in value)
    if isinstance(value, dict):
        return " ".join(said(one) for one in value.values())
    return " ".join(str(value).split())


def xml_text(text: str) -> str:
    """A text as XML may hold it, in an element or an attribute; characters that XML has no way to write become U+FFFD."""
    return escape(_ILLEGAL.sub("�", text))


def feed_id(page: ResultPage) -> str:
    """The identity of a query's feed, the same for all its pages."""
    return f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, f'{page.query} {page.sql}')}"


def geometry(entry: Entry) -> list[str]:
    """Elements of W3C geo and GeoRSS: the first place, and a line between all if there are several."""
    if not entry.places:
        return []
    first = entry.places[0]
    out = [f"<geo:lat>{first['lat']!r}</geo:lat>", f"<geo:long>{first['long']!r}</geo:long>"]
    if len(entry.places) > 1:
        out.append(f"<georss:line>{' '.join(_position(p['lat'], p['long']) for p in entry.places)}</georss:line>")
        return out
    box = first["box"]
    if box and (box["xmin"], box["ymin"]) != (box["xmax"], box["ymax"]):
        corners = f"{_position(box['ymin'], box['xmin'])} {_position(box['ymax'], box['xmax'])}"
        return [*out, f"<georss:box>{corners}</georss:box>"]
    return [*out, f"<georss:point>{_position(first['lat'], first['long'])}</georss:point>"]


def _position(lat: float, long: float) -> str:
    """GeoRSS has the latitude first."""
    return f"{lat!r} {long!r}"
