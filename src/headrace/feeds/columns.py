"""The columns of a feed's items, from the events of its document."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import urljoin, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import AnyArray, Int64s
from headrace.errors import shown
from headrace.feeds.items import BOX, ITEM_SCHEMA, MOMENT
from headrace.feeds.limits import FeedLimits
from headrace.feeds.names import Names
from headrace.feeds.vocabulary import (
    ACTIONS,
    ATTRIBUTE_KINDS,
    ATTRIBUTE_NAMES,
    ATTRIBUTE_NUMBERS,
    LOCALS,
    SAYINGS,
    SCHEMES,
    TAG_KINDS,
    TAGS,
    URI_HASHES,
)
from headrace.kernels import feed_geometry as g
from headrace.kernels import feed_items as f
from headrace.kernels.feed_text import gather

_ROWS = 128  # items that there is room for at first
_TEXTS = 1 << 18  # bytes of texts that there is room for at first
_LEVELS = 1 << 12  # words for open elements and for namespaces that they declare
_KEPT_TEXTS = 1 << 24  # bytes of texts that a reader keeps room for: after a document that needed more it is given back
_BASES = ("http", "https", "ftp", "file")  # schemes that a relative link can be relative to


class Collector:
    """Runs the kernel over events of documents, one after the other, in memory that grows as a document needs it."""

    def __init__(self, limits: FeedLimits) -> None:
        self._limits = np.array([limits.items, limits.short, limits.long, limits.categories], np.int64)
        self._found = np.zeros(f.FOUND, np.int64)
        self._shrink()

    def _shrink(self) -> None:
        self._texts: AnyArray = np.empty(_TEXTS, np.uint8)
        self._slots: Int64s = np.empty(_ROWS * f.SLOTS * f.SLOT, np.int64)
        self._places: AnyArray = np.empty(_ROWS * g.WORDS)
        self._entries: Int64s = np.empty(8 * _ROWS * f.ENTRY, np.int64)
        self._levels: AnyArray = np.empty(_LEVELS, np.int32)

    def collect(self, words: Int64s, data: AnyArray, names: Names) -> Collected:
        """Return what the events say; it is valid until the next call."""
        if self._texts.size > _KEPT_TEXTS:
            self._shrink()
        while f.collect(
            words, data, names.prefixes, names.locals, names.declares, names.bindings.copy(), URI_HASHES, ACTIONS,
            len(LOCALS) + 1, ATTRIBUTE_NUMBERS, self._limits, TAGS, TAG_KINDS, ATTRIBUTE_NAMES, ATTRIBUTE_KINDS, SCHEMES, SAYINGS,
            self._levels, self._texts, self._slots, self._places, self._entries, self._found,
        ) == f.FULL:  # fmt: skip
            # Which of them was full is not asked: they are small beside the document that needed more.
            self._texts = np.empty(2 * self._texts.size, np.uint8)
            self._slots = np.empty(2 * self._slots.size, np.int64)
            self._places = np.empty(2 * self._places.size)
            self._entries = np.empty(2 * self._entries.size, np.int64)
            self._levels = np.empty(2 * self._levels.size, np.int32)
        return Collected(self._found, self._texts, self._slots, self._places, self._entries)


class Collected:
    """What the kernel found in a document: the feed's own texts, and the columns of its items."""

    def __init__(self, found: Int64s, texts: AnyArray, slots: Int64s, places: AnyArray, entries: Int64s) -> None:
        self.found: list[int] = found.tolist()
        self.rows = self.found[f.ROWS] - 1
        self._texts = texts
        self._slots = slots[: (self.rows + 1) * f.SLOTS * f.SLOT].reshape(-1, f.SLOTS, f.SLOT)
        self._places = places[: (self.rows + 1) * g.WORDS].reshape(-1, g.WORDS)[1:]
        self._entries = entries[: self.found[f.ENTRIES] * f.ENTRY].reshape(-1, f.ENTRY)

    def text(self, slot: int, row: int = 0) -> str | None:
        """A text of the feed itself, or of an item."""
        start, length, rank = self._slots[row, slot].tolist()
        return self.span(start, length) if rank >= 0 else None

    def span(self, start: int, length: int) -> str:
        """A text by its place."""
        return bytes(self._texts[start : start + length]).decode()

    def link(self, url: str) -> str | None:
        """The feed's own link."""
        return self._absolute(0, url)

    def ttl(self) -> float | None:
        """Seconds that the feed asks to be left alone, as it says itself or by the syndication module."""
        minutes = _number(self.text(f.TTL))
        if minutes is not None:
            return 60.0 * minutes
        period, frequency = self.text(f.PERIOD), _number(self.text(f.FREQUENCY))
        if period is None and frequency is None:
            return None
        days = {"hourly": 1 / 24, "weekly": 7.0, "monthly": 30.0, "yearly": 365.0}.get((period or "").lower(), 1.0)
        return 86400.0 * days / (frequency or 1.0)

    def items(self, url: str, seen: datetime, inherit_author: bool) -> pa.RecordBatch:
        """The items as rows of ITEM_SCHEMA."""
        n = self.rows
        published = self._slots[1:, f.PUBLISHED]
        updated = self._slots[1:, f.UPDATED]
        either = np.where(published[:, 2:] >= 0, published, updated)
        lat, long = np.ascontiguousarray(self._places[:, g.LAT]), np.ascontiguousarray(self._places[:, g.LONG])
        # A place is meant once round the Earth at most: 200 degrees east is 160 west.
        turns = 360.0 * np.round(long / 360.0)
        sides = self._places[:, [g.XMIN, g.YMIN, g.XMAX, g.YMAX]].copy()
        sides[:, 0::2] -= 360.0 * np.round((sides[:, :1] + sides[:, 2:3]) / 720.0)
        columns = [
            self._strings(f.GUID),
            self._links(url),
            self._strings(f.TITLE),
            self._strings(f.DESCRIPTION),
            self._authors(inherit_author),
            self._categories(),
            _moments(either),
            _moments(updated),
            _floats(lat),
            _floats(long - turns),
            _boxes(sides),
            _floats(np.ascontiguousarray(self._places[:, g.ELEV])),
            pa.repeat(pa.scalar(url, pa.string()), n),
            pa.repeat(pa.scalar(seen, MOMENT), n),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ITEM_SCHEMA)

    def _strings(self, slot: int) -> pa.Array:
        return self._gather(self._slots[1:, slot, :2])

    def _gather(self, spans: Int64s) -> pa.Array:
        """Texts by their places, as an array; -1 as the start is null."""
        n = len(spans)
        valid = spans[:, 0] >= 0
        out = np.empty(int(spans[:, 1].sum(where=valid)), np.uint8)
        offsets = np.empty(n + 1, np.int32)
        gather(self._texts, np.ascontiguousarray(spans).ravel(), n, out, offsets)
        buffers = [_bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(out)]
        return pa.StringArray.from_buffers(n, buffers[1], buffers[2], buffers[0])

    def _links(self, url: str) -> pa.Array:
        links = self._strings(f.LINK)
        if not self.found[f.RELATIVE_LINKS]:
            return links
        return pa.array([self._absolute(row + 1, url) for row in range(self.rows)], pa.string())

    def _absolute(self, row: int, url: str) -> str | None:
        """A link, made absolute by the bases of its item and feed."""
        link = self.text(f.LINK, row)
        if link is None or not self.found[f.RELATIVE_LINKS]:
            return link
        base = url
        for inner in dict.fromkeys((0, row)):
            nearer = self.text(f.BASE, inner)
            try:
                joined = urljoin(base, nearer) if nearer else base
                base = joined if urlsplit(joined).scheme in _BASES else base
            except ValueError:  # a base that is no URL
                continue
        try:
            return urljoin(base, link)
        except ValueError:
            return link

    def _of_list(self, kind: int) -> Int64s:
        found: Int64s = self._entries[(self._entries[:, 1] == kind) & (self._entries[:, 0] > 0)]
        return found

    def _categories(self) -> pa.Array:
        return self._lists(self._of_list(f.CATEGORIES))

    def _lists(self, entries: Int64s) -> pa.Array:
        counts = np.bincount(entries[:, 0] - 1, minlength=self.rows) if self.rows else np.empty(0, np.int64)
        offsets = np.zeros(self.rows + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        type_ = pa.list_(pa.string())
        buffers = [_bitmap(counts > 0), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(type_, self.rows, buffers, children=[self._gather(entries[:, 3:5])])

    def _authors(self, inherit: bool) -> pa.Array:
        entries = self._of_list(f.AUTHOR)
        best = np.full(self.rows + 1, 255)
        np.minimum.at(best, entries[:, 0], entries[:, 2])
        names = pc.binary_join(self._lists(entries[entries[:, 2] == best[entries[:, 0]]]), ", ")
        if inherit and names.null_count:
            own = self._entries[(self._entries[:, 1] == f.AUTHOR) & (self._entries[:, 0] == 0)]
            if len(own):
                names = pc.fill_null(names, ", ".join(self.span(*entry[3:5].tolist()) for entry in own))
        return names

    def problems(self, limits: FeedLimits) -> list[str]:
        """What was cut, left out or not understood, in words."""
        found = self.found
        links = _count(found[f.LONG_LINKS], "link or guid", "links or guids")
        refused = _count(found[f.REFUSED_PARTS], "text or link", "texts or links")
        said = [
            (f.MORE_ITEMS, f"{found[f.MORE_ITEMS]} items after the first {limits.items} are left out"),
            (f.HALF_ITEM, "the last item is cut off and left out"),
            (
                f.CUT,
                f"{_count(found[f.CUT], 'text')} longer than the limit and cut, first in {_item(found[f.CUT_ROW])}",
            ),
            (f.LONG_LINKS, f"{links} longer than {limits.short} bytes and left out"),
            (
                f.MORE_ENTRIES,
                f"{found[f.MORE_ENTRIES]} categories or authors beyond {limits.categories} of an item are left out",
            ),
            (f.REFUSED_PARTS, f"{refused} rid of what can do harm, first in {_item(found[f.REFUSED_ROW])}"),
            (
                f.BAD_PLACES,
                f"{_count(found[f.BAD_PLACES], 'place')} not understood, first in {_item(found[f.BAD_PLACE_ROW])}",
            ),
            (f.ENCODED, f"{_count(found[f.ENCODED], 'content')} left out, being neither text nor markup"),
        ]
        problems = [words for count, words in said if found[count]]
        if found[f.BAD_DATES]:
            first = shown(self.span(found[f.BAD_DATE_AT], found[f.BAD_DATE_LENGTH]))
            problems.append(f"{_count(found[f.BAD_DATES], 'date')} not understood, first {first}")
        return problems


def _count(n: int, one: str, many: str | None = None) -> str:
    return f"1 {one} is" if n == 1 else f"{n} {many or one + 's'} are"


def _item(row: int) -> str:
    return f"item {row}" if row else "the feed's own"


def _number(text: str | None) -> float | None:
    """A positive number, or None."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None


def _bitmap(valid: AnyArray) -> Any:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _floats(values: AnyArray) -> pa.Array:
    return pa.Array.from_buffers(pa.float64(), len(values), [_bitmap(~np.isnan(values)), pa.py_buffer(values)])


def _boxes(sides: AnyArray) -> pa.Array:
    valid = ~np.isnan(sides[:, 0])
    children = [_floats(np.ascontiguousarray(side)) for side in sides.T]
    return pa.Array.from_buffers(BOX, len(sides), [_bitmap(valid)], children=children)


def _moments(slots: Int64s) -> pa.Array:
    values = np.ascontiguousarray(slots[:, 0])
    return pa.Array.from_buffers(MOMENT, len(values), [_bitmap(slots[:, 2] >= 0), pa.py_buffer(values)])
