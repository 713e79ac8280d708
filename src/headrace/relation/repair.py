"""`hr.repair`: damaged shards of a relation written anew from the relation's source, as a new version.

    source --rows whose key hashes to a damaged shard--> external sort --> new files of that shard
                                                                            |  compared with what is known of the old ones
    new manifest = the files of sound shards as they are + the new files <--+

Rows of pages that are still sound must be in the source as they are, and counts must be those of the manifest: a source that has
changed since would mix rows of two states in one version.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Bools, Int64s
from headrace.clock import Clock
from headrace.errors import BadInput, DamagedRelation, RelationError
from headrace.files import close, leased_directory
from headrace.paths import local_path
from headrace.relation.disk import Disk
from headrace.relation.input_data import is_spark, source_of
from headrace.relation.keys import Keys, bounds
from headrace.relation.manifest import (
    SCRATCH,
    Manifest,
    ShardFacts,
    commit,
    is_relation,
    pin,
    remove_old,
    remove_unnamed,
    writing,
)
from headrace.relation.reader import FILE_SHIFT, SHARD_SHIFT, PageReader, Version
from headrace.relation.relation import Relation
from headrace.relation.scrub import Pace, Progress, Scrubbed, pages_of, scrub
from headrace.relation.sorter import ExternalSorter, batches_of
from headrace.relation.update import scan_tables, stored_rows
from headrace.relation.verify import BUFFER, ColumnCounts, verify_shard
from headrace.relation.writer import ShardWriter
from headrace.runlog import RowMultiset
from headrace.units import parse_size

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Repair:
    """What `repair` found and did."""

    version: int
    """the version that is sound: a new one, or the latest as it was"""
    damage: list[DamagedRelation]
    """all that was damaged"""
    shards: list[int]
    """the shards that were written anew"""
    rows: int
    """rows of these shards"""


def repair(
    path: str | Path,
    source: Any,
    *,
    accept_changes: bool = False,
    memory: int | str = "512MiB",
    pace: str | float | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Repair:
    """Verify a relation and write its damaged shards anew from its source, as a new version; other shards keep their files.

    Readers go on with the version that they opened. No other writer is let in meanwhile. The rows of the source must be those
    that the relation was made of, as far as that can be told: rows, distinct keys, nulls and bytes of text must be as many as the
    manifest says, and the rows of pages that are sound must be the same. Else nothing is committed, and BadInput names what
    differs. Not repaired are a damaged manifest, which says what the relation is, and a relation stored by popularity.

    Parameters
    ----------
    path
        The relation.
    source
        What the relation was made of: anything that `Relation.create` takes but a Spark DataFrame, or the path of another
        relation, such as a copy.
    accept_changes
        Take the source's rows for the damaged shards although they differ from what is known of the old ones.
    memory
        Bytes that sorting may hold; more is spilled beside the relation.
    pace, progress, clock
        Of the search for damage: see `hr.verify`.

    Example
    -------
    >>> import tempfile, pyarrow as pa, headrace as hr
    >>> path, rows = tempfile.mkdtemp() + "/r", pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]})
    >>> rel = hr.Relation.create(path, rows, key="k", shards=1)
    >>> pages = next(rel.path.glob("*.pages"))
    >>> _ = pages.write_bytes(bytes(pages.stat().st_size))
    >>> done = hr.repair(path, rows)
    >>> done.version, done.shards, done.damage[0].page, hr.verify(path)
    (2, [0], 0, [])
    """
    root, limit = local_path(path), parse_size(memory, name="memory")
    with writing(root):
        try:
            manifest, lock = pin(root, None)
        except DamagedRelation as error:
            raise DamagedRelation(
                error.file,
                f"{error.reason}. No source can replace a manifest; restore the file from a copy, or create the relation again",
            ) from error
        try:
            done = _repair(
                root, manifest, source, limit, Pace(pace, manifest.page_size, clock), progress, accept_changes
            )
        except BaseException:
            with suppress(OSError, RelationError):  # what it met is told; the next writer removes these
                remove_unnamed(root)
            raise
        finally:
            close(lock)
        remove_old(root)
    return done


def _repair(
    root: Path,
    manifest: Manifest,
    source: Any,
    memory: int,
    pace: Pace,
    progress: Progress | None,
    accept: bool,
) -> Repair:
    unopened: list[DamagedRelation] = []
    with closing(Version(root, manifest, Disk(), unopened)) as old:
        found = scrub(old, unopened, pace, progress)
        if not found.damage:
            return Repair(manifest.version, [], [], 0)
        if not found.shards:
            raise DamagedRelation(
                found.damage[0].file,
                f"{found.damage[0].reason}. No source can replace a manifest; create the relation again",
            )
        if manifest.order != "key":
            raise BadInput(
                f"{root} is stored by popularity, and its source does not have that order; create the relation again, with"
                f" frequencies. Damaged: {found.damage[0]}"
            )
        rebuilt = _Rebuilt(old, found, source, memory)
        rebuilt.write()
        disk = Disk()
        with closing(Version(root, rebuilt.manifest, disk)) as new:
            reader = PageReader(new, max(2 * new.page_size, min(BUFFER, 2 * rebuilt.pages * new.page_size)))
            for shard in found.shards:
                verify_shard(new, shard, reader)
            differences = [] if accept else list(rebuilt.differences(new))
    if differences:
        raise BadInput(
            f"the source does not have the rows that {root} was made of: {'; '.join(differences[:3])}. Give the source as it was,"
            " or pass accept_changes=True to take its rows as they are for the damaged shards"
        )
    commit(root, rebuilt.manifest)
    _log.info("repaired %s: shards %s, %s", root, ", ".join(map(str, found.shards)), rebuilt.manifest.summary())
    return Repair(rebuilt.manifest.version, found.damage, found.shards, rebuilt.rows)


class _Rebuilt:
    """Damaged shards of a version, written anew: their files, and the manifest of the version that has them."""

    def __init__(self, old: Version, found: Scrubbed, source: Any, memory: int) -> None:
        self.old = old
        self.found = found
        self.source = source
        self.memory = memory
        self.manifest = old.manifest
        self.rows = self.pages = 0
        self._counts = ColumnCounts.none(old)

    def write(self) -> None:
        """Write the shards, and make the manifest."""
        old, manifest = self.old, self.old.manifest
        layout, number = old.layout, manifest.version + 1
        shards: list[ShardFacts] = list(manifest.shards)
        notes, highest = dict(manifest.notes), dict(manifest.notes.get("highest", {}))
        for counts in self.found.counts.values():
            self._counts.add(counts)
        with leased_directory(old.root, SCRATCH) as scratch:
            sorter = ExternalSorter(layout, len(shards), self.memory, scratch, "drop")
            for table in self._rows():
                sorter.add(table)
            sorter.finish()
            for shard in self.found.shards:
                with ShardWriter(old.root, layout, shard, number) as writer:
                    for table in sorter.shard(shard):
                        writer.write(table)
                        for name, at in highest.items():  # the largest number ever given, of which none is given twice
                            largest = pc.max(table.column(name)).as_py()
                            highest[name] = at if largest is None else max(at, largest)
                    shards[shard] = writer.close()
                self._counts.add(ColumnCounts(writer.builder.nulls, writer.builder.variable_bytes))
        if highest:
            notes["highest"] = highest
        self.rows = sum(shards[shard].rows for shard in self.found.shards)
        self.pages = sum(shards[shard].pages for shard in self.found.shards)
        self.manifest = replace(
            manifest,
            version=number,
            shards=shards,
            nulls=self._counts.nulls,
            variable_bytes=self._counts.variable_bytes,
            notes=notes,
            created=Manifest.now(),
        )

    def _rows(self) -> Iterator[pa.Table]:
        """Yield the rows of the source that belong to the damaged shards, as they are stored."""
        wanted = np.zeros(len(self.manifest.shards), np.bool_)
        wanted[self.found.shards] = True
        with closing(_Source(self.source, self.manifest.schema)) as source:
            for batch in batches_of(source.batches, source.schema, self.memory):
                table = stored_rows(self.manifest.schema, batch, "the source's rows", truncate=True)
                for name in self.manifest.key:  # rows without a key are in no relation
                    table = table.filter(pc.is_valid(table.column(name))) if table.column(name).null_count else table
                keys, _ = self.old.codec.encode([table.column(name) for name in self.manifest.key])
                mine = wanted[self.old.shards_of(keys.hashes())]
                yield table if mine.all() else table.filter(pa.array(mine))

    def differences(self, new: Version) -> Iterator[str]:
        """Yield what is known of the old shards and is not so in the new ones."""
        for shard in self.found.shards:
            was, now = self.old.manifest.shards[shard], self.manifest.shards[shard]
            for name, before, after in (
                ("rows", was.rows, now.rows),
                ("distinct keys", was.distinct, now.distinct),
            ):
                if before != after:
                    yield f"shard {shard} has {after:,} {name} where {before:,} were written"
            if now.max_frequency > was.max_frequency:
                yield (
                    f"a key of shard {shard} has {now.max_frequency:,} rows where no key had more than {was.max_frequency:,}"
                )
            yield from _Comparison(self.old, new, shard, self.found.damage).differences()
        for what, before_by, after_by in (
            ("nulls", self.old.manifest.nulls, self.manifest.nulls),
            ("bytes", self.old.manifest.variable_bytes, self.manifest.variable_bytes),
        ):
            for name, before in before_by.items():
                if before != after_by[name]:
                    yield f"column {name!r} has {after_by[name]:,} {what} where {before:,} were written"


class _Source:
    """The rows that a relation was made of, in batches."""

    def __init__(self, data: Any, types: pa.Schema) -> None:
        self._relation: Relation | None = None
        if is_spark(data):
            raise BadInput("source is a Spark DataFrame; write it as Parquet and give the path of that")
        if isinstance(data, str | Path) and is_relation(local_path(data, "source")):
            self._relation = data = Relation.open(data)
        elif hasattr(data, "snapshot"):
            data, _ = data.snapshot()
        if isinstance(data, Relation):
            data = data.to_reader()
        self.schema: pa.Schema
        self.batches: Iterable[pa.RecordBatch]
        self.schema, self.batches, _ = source_of(data, "source", types=types)

    def close(self) -> None:
        """Close what was opened."""
        if self._relation is not None:
            self._relation.close()


@dataclass
class _Comparison:
    """The rows of the pages of an old shard that are sound, beside those of the new shard, both in the order of keys.

        old pages   [a a b] [c d] [ damaged ] [f f g] [h]
        compared     a a b   c                     g   h        of d and f the damaged page may have rows, too

    Where the index is damaged and changes have moved pages, their order is not known, and none is compared.
    """

    old: Version
    new: Version
    shard: int
    damage: list[DamagedRelation]
    _scan: Iterator[tuple[pa.Table, Keys]] = field(default=iter(()), init=False)
    _rest: tuple[pa.Table, Keys] | None = field(default=None, init=False)  # of the new shard, read and not compared yet

    def differences(self) -> Iterator[str]:
        """Yield the first difference, if there is one."""
        order = self._in_order()
        if order is None:
            return
        places, sound = order
        self._scan = ((table, keys) for table, keys, _ in scan_tables(self.new, self.new.places(self.shard)))
        edges = np.flatnonzero(np.diff(sound.astype(np.int8), prepend=0, append=0))
        for begin, end in edges.reshape(-1, 2).tolist():
            for mine, last in self._runs(places[begin:end], after_gap=begin > 0, before_gap=end < places.size):
                difference = self._compare(mine, self._up_to(last))
                if difference:
                    yield difference
                    return
        if sound[-1:].all():
            difference = self._compare(self.new.manifest.schema.empty_table(), self._up_to(None))
            if difference:
                yield difference

    def _in_order(self) -> tuple[Int64s, Bools] | None:
        """Return the places of the old pages in the order of keys, and which are sound; None if the order is not known."""
        facts = self.old.manifest.shards[self.shard]
        try:
            self.old.read_index(self.shard)
        except (RelationError, OSError):
            if facts.moved:
                return None
        places, bad = pages_of(self.old, self.shard), list[int]()
        by_name = {str(self.old.root / file.name): number for number, file in enumerate(facts.files)}
        lost = np.zeros(len(by_name), np.bool_)
        for damage in self.damage:
            number = by_name.get(damage.file)
            if number is not None and damage.page is None:
                lost[number] = True
            elif number is not None and damage.page is not None:
                bad.append((self.shard << SHARD_SHIFT) + (number << FILE_SHIFT) + damage.page)
        files = (places - (self.shard << SHARD_SHIFT)) >> FILE_SHIFT
        return places, ~lost[files] & ~np.isin(places, np.array(bad, np.int64))

    def _runs(self, places: Int64s, *, after_gap: bool, before_gap: bool) -> Iterator[tuple[pa.Table, Keys]]:
        """Yield the rows of neighbouring pages, with their last key: all of a key, but none of a key that a gap may have too."""
        held: pa.Table | None = None
        skip = after_gap
        last: Keys | None = None
        for table, _, _ in scan_tables(self.old, places):
            table = table if held is None else pa.concat_tables([held, table])
            keys, _ = self.old.codec.encode([table.column(name) for name in self.old.manifest.key])
            if skip:
                first = keys.slice(0, 1)
                self._up_to(first)
                beyond = int(bounds(keys, first, np.ones(1, np.uint8))[2])
                skip = beyond == len(keys)
                held = table if skip else None
                if skip:
                    continue
                table, keys = table.slice(beyond), keys.slice(beyond, len(keys))
            last = keys.slice(len(keys) - 1, len(keys))
            at = int(bounds(keys, last, np.zeros(1, np.uint8))[1])
            held = table.slice(at)
            if at:
                yield table.slice(0, at), keys.slice(at - 1, at)
        if held is not None and last is not None and not skip and not before_gap:
            yield held, last

    def _up_to(self, key: Keys | None) -> pa.Table:
        """Return the next rows of the new shard, those with this key being the last; all that are left if there is none."""
        taken = [self.new.manifest.schema.empty_table()]
        while (piece := self._rest or next(self._scan, None)) is not None:
            table, keys = piece
            n = len(keys) if key is None else int(bounds(keys, key, np.ones(1, np.uint8))[2])
            taken.append(table.slice(0, n))
            self._rest = (table.slice(n), keys.slice(n, len(keys))) if n < len(keys) else None
            if self._rest is not None:
                break
        return pa.concat_tables(taken)

    def _compare(self, old: pa.Table, new: pa.Table) -> str | None:
        """Say which row is in one of two tables alone."""
        for some, others, words in (
            (new, old, "was not in a page that is sound"),
            (old, new, "is in a page that is sound, and not in the source"),
        ):
            batches = some.combine_chunks().to_batches() or []
            multiset = RowMultiset(others)
            for batch in batches:
                missing = np.flatnonzero(~multiset.take(batch))
                if missing.size:
                    keys, _ = self.old.codec.encode([batch.column(name) for name in self.old.manifest.key])
                    key = self.old.codec.shown(keys.take(missing[:1]))
                    return f"a row of key {key} {words}"
        return None
