"""Every field of a manifest checked before it is used: a manifest is a file, and files come from anywhere.

A checksum finds damage. It does not find a manifest that was written wrong, or on purpose: a name that leads out of the
relation's directory, a page size of zero, more rows than pages can hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from headrace.errors import BadInput, DamagedRelation, shown
from headrace.relation.columns import plain_schema, width_of
from headrace.relation.keys import KeyCodec

MOST_PAGE_SIZE = 1 << 26  # bytes; offsets inside a page are u32, and a buffer must hold two pages
_SECTOR = 4096  # bytes: pages are multiples of it, for direct reads
_MOST_SHARDS = 1 << 15  # a shard's number has 15 bits of a page's address
_MOST = 1 << 62
_COUNTS = ("rows", "pages", "used_bytes", "distinct", "max_frequency")  # of a shard
_SIDECARS = ("index", "filter", "stats")
_LEAST_ROW = 4  # bytes: the offset of a key of variable width, without its own bytes
_FILE = re.compile(r"shard-(\d{4,})-\d{6,}[A-Za-z0-9_-]*\.(pages|index|fences|filter|stats)")


class ManifestCheck:
    """Checks of one manifest; the first field that cannot be right raises DamagedRelation with its name and value."""

    def __init__(self, path: Path, body: Mapping[str, Any], schema: pa.Schema) -> None:
        self.path = path
        self.body = body
        self.schema = schema

    def run(self) -> None:
        """Check everything."""
        body = self.body
        self._count("version", body.get("version"), 1)
        self._count("page_size", body.get("page_size"), _SECTOR, MOST_PAGE_SIZE)
        if body["page_size"] % _SECTOR:
            self._wrong("page_size", body["page_size"], "a multiple of 4,096")
        fill = body.get("fill")
        if not isinstance(fill, int | float) or isinstance(fill, bool) or not 0 < fill <= 1:
            self._wrong("fill", fill, "a share of a page, above 0 and up to 1")
        if body.get("order", "key") not in ("key", "frequency"):
            self._wrong("order", body["order"], "'key' or 'frequency'")
        if not isinstance(body.get("created"), str):
            self._wrong("created", body.get("created"), "a text")
        for name, kind in (("notes", dict), ("identity", str)):
            if not isinstance(body.get(name, kind()), kind):
                self._wrong(name, body[name], "a text" if kind is str else "an object")
        self._columns()
        shards = body.get("shards")
        if not isinstance(shards, list) or not 0 < len(shards) <= _MOST_SHARDS:
            self._wrong("shards", type(shards).__name__, f"a list of 1 to {_MOST_SHARDS:,} shards")
        for number, shard in enumerate(shards):
            self._shard(number, shard)

    def _columns(self) -> None:
        names, key = self.schema.names, self.body.get("key")
        texts = key if isinstance(key, list) and all(isinstance(name, str) for name in key) else []
        if not texts or len(set(texts)) < len(texts) or not set(texts) <= set(names):
            self._wrong("key", key, f"columns of the schema ({', '.join(names[:20])}), each once")
        try:
            stored = plain_schema(self.schema)
            KeyCodec(texts, [self.schema.field(name).type for name in texts])
        except BadInput as error:
            raise DamagedRelation(self.path, f"its schema is not one of a relation: {error}") from error
        if not stored.equals(self.schema):
            self._wrong("schema", self.schema, "the types that columns are stored as")
        payload = [name for name in names if name not in texts]
        variable = [f.name for f in self.schema if f.name not in texts and width_of(f.type) == 0]
        for field, wanted in (("nulls", payload), ("variable_bytes", variable)):
            counts = self.body.get(field)
            if not isinstance(counts, dict) or sorted(counts) != sorted(wanted):
                self._wrong(field, counts, f"a number for each of {', '.join(wanted[:20]) or 'no column'}")
            for name, count in counts.items():
                self._count(f"{field}[{name!r}]", count)

    def _shard(self, number: int, shard: Any) -> None:
        where = f"shards[{number}]"
        if not isinstance(shard, dict):
            self._wrong(where, type(shard).__name__, "an object")
        self._fields(where, shard, (*_COUNTS, "files", *_SIDECARS, "fences"))
        for name in _COUNTS:
            self._count(f"{where}.{name}", shard.get(name))
        size = self.body["page_size"]
        if not isinstance(shard.get("files"), list):
            self._wrong(f"{where}.files", shard.get("files"), "a list of files")
        for i, file in enumerate(shard["files"]):
            self._file(f"{where}.files[{i}]", file, number, "pages")
            if file["bytes"] != file["pages"] * size:
                self._wrong(f"{where}.files[{i}].bytes", file["bytes"], f"{file['pages']:,} pages of {size:,}")
        for part in _SIDECARS:
            self._file(f"{where}.{part}", shard.get(part), number, part)
        if shard.get("fences") is not None:
            self._index_pages(f"{where}.fences", shard["fences"], number)
        if shard["pages"] > sum(file["pages"] for file in shard["files"]):
            self._wrong(f"{where}.pages", shard["pages"], "no more pages than its files have")
        if shard["used_bytes"] > shard["pages"] * size:
            self._wrong(f"{where}.used_bytes", shard["used_bytes"], "no more bytes than its pages have")
        if shard["rows"] * _LEAST_ROW > shard["used_bytes"]:
            self._wrong(f"{where}.rows", shard["rows"], f"no more than {shard['used_bytes']:,} bytes can hold")
        if shard["distinct"] > shard["rows"]:  # max_frequency is a bound that updates leave as it was
            self._wrong(f"{where}.distinct", shard["distinct"], f"no more than {shard['rows']:,} rows")

    def _index_pages(self, where: str, file: Any, shard: int) -> None:
        self._file(where, file, shard, "fences", "levels", "moved")
        levels, size = file.get("levels"), self.body["page_size"]
        if not isinstance(file.get("moved"), bool):
            self._wrong(f"{where}.moved", file.get("moved"), "true or false")
        if not isinstance(levels, list):
            self._wrong(f"{where}.levels", levels, "a list of numbers of pages")
        for pages in levels:
            self._count(f"{where}.levels", pages, 1, 1 << 31)
        falls = all(above < below for below, above in pairwise(levels))
        if not falls or levels[-1:] != [1] or sum(levels) != file["pages"]:
            self._wrong(f"{where}.levels", levels, f"fewer pages on each level up to one, {file['pages']:,} in all")
        if file["bytes"] != file["pages"] * size:
            self._wrong(f"{where}.bytes", file["bytes"], f"{file['pages']:,} pages of {size:,}")

    def _file(self, where: str, file: Any, shard: int, part: str, *beside: str) -> None:
        name = file.get("name") if isinstance(file, dict) else None
        match = _FILE.fullmatch(name) if isinstance(name, str) else None
        if match is None or int(match[1]) != shard or match[2] != part:
            self._wrong(f"{where}.name", name, f"the name of a .{part} file of shard {shard}, in this directory")
        self._count(f"{where}.bytes", file.get("bytes"))
        self._count(f"{where}.tag", file.get("tag"), 0, 1 << 31)
        self._count(f"{where}.pages", file.get("pages"), 0, 1 << 31)
        self._fields(where, file, ("name", "bytes", "tag", "pages", *beside))

    def _fields(self, where: str, found: Mapping[str, Any], known: Sequence[str]) -> None:
        """Refuse a field that nobody writes; those that are missing are refused by what reads them."""
        for name in found:
            if name not in known:
                self._wrong(f"{where}.{shown(name)}", found[name], f"no fields but {', '.join(known)}")

    def _count(self, name: str, value: Any, least: int = 0, most: int = _MOST) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self._wrong(name, value, f"a whole number from {least:,} to {most:,}")

    def _wrong(self, name: str, value: Any, expected: str) -> NoReturn:
        raise DamagedRelation(self.path, f"its field {name} is {shown(value)}; expected {expected}")
