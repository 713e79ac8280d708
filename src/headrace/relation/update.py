"""Change a relation: new pages beside the old ones, a new index over both, a new manifest. (DESIGN D9, [SSIJ] §IV.E)

Only the pages that hold a changed key are written again, to a file of their own; all other pages stay where they are.
`compact` writes everything anew, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Int64s, UInt8s, UInt32s
from headrace.errors import BadInput, VersionConflict
from headrace.files import open_new
from headrace.kernels.filter import filter_add
from headrace.metrics import JoinStats
from headrace.relation.columns import NO_LONGS, plain_schema, plain_table
from headrace.relation.input_data import refuse_index, table_of
from headrace.relation.keys import ByteKeys, IntKeys, Keys, bounds, concat_keys, positions
from headrace.relation.manifest import FileFacts, Manifest, ShardFacts, commit
from headrace.relation.reader import (
    FILE_SHIFT,
    PAGE_MASK,
    FenceIndex,
    PageFacts,
    PageReader,
    Version,
    key_column,
    stored_keys,
)
from headrace.relation.writer import (
    FILTER_BITS,
    FREQUENCY_BINS,
    BuiltPages,
    KeyStatistics,
    PageBuilder,
    fence_arrays,
    new_filter,
    write_shards,
    write_sidecars,
)

if TYPE_CHECKING:
    from headrace.relation.relation import Relation

_PIECE = 1024  # pages rewritten at a time (8 MiB of 8 KiB pages), unless one key spans more
MOST_FILES = 32  # files of a shard; a change that finds as many gathers the small ones, as each takes a file descriptor


@dataclass(frozen=True)
class Change:
    """A change of a relation: the rows, deletions and notes that make the next version.

    Parameters
    ----------
    upserts
        A table with the relation's columns: its rows replace all rows with the same key.
    deletes
        Keys that lose all their rows.
    notes
        JSON that is kept in this version and all later ones, until another change has notes of the same names. The note
        "highest" is special: {column: number} is the largest value that the column ever had, and every change updates it.
    base
        The only version that the change applies to; any by default.
    """

    upserts: Any = None
    deletes: Any = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    base: int | None = None


def apply(relation: Relation, change: Change) -> int:
    """Commit a version with a change applied; see `Relation.apply`."""
    from headrace.relation.frequency_update import FrequencyShardChange
    from headrace.relation.relation import key_arrays

    change_of = ShardChange if relation.order == "key" else FrequencyShardChange
    if change.base is not None and change.base != relation.version:
        raise VersionConflict(
            f"the change was made for version {change.base} of {relation.path}, whose latest version is {relation.version}; open"
            " the relation again and decide anew, or give on_conflict='rebase' to change the latest version whatever it holds"
        )
    upserts, deletes = change.upserts, change.deletes
    version = relation._version
    manifest = version.manifest
    new_rows = rows_for(relation, upserts)
    new_keys, nulls = version.codec.encode([new_rows.column(name) for name in relation.key])
    if nulls.size:
        raise BadInput(
            f"upserts hold a null in key column(s) {', '.join(relation.key)}; a null key matches nothing: remove them"
        )
    if deletes is None:
        deletes = relation.schema.empty_table()
    gone, valid = version.codec.encode(key_arrays(relation, deletes))
    if valid.size:  # a null key matches nothing
        gone = gone.take(np.flatnonzero(valid))
    _refuse_both(relation, new_keys, gone)
    number = manifest.version + 1
    new_shard = version.shards_of(new_keys.hashes())
    gone_shard = version.shards_of(gone.hashes())
    shards, nulls_by, bytes_by = list(manifest.shards), dict(manifest.nulls), dict(manifest.variable_bytes)
    for shard in range(len(shards)):
        mine = np.flatnonzero(new_shard == shard)
        lost = gone.take(np.flatnonzero(gone_shard == shard))
        if mine.size == 0 and len(lost) == 0:
            continue
        rows = new_rows.take(pa.array(mine))
        piece = change_of(version=version, shard=shard, number=number, rows=rows, keys=new_keys.take(mine), gone=lost)
        shards[shard] = piece.write()
        for name, delta in piece.nulls.items():
            nulls_by[name] += delta
        for name, delta in piece.variable_bytes.items():
            bytes_by[name] += delta
    commit(
        relation.path,
        replace(
            manifest,
            version=number,
            shards=shards,
            nulls=nulls_by,
            variable_bytes=bytes_by,
            notes=_notes(manifest.notes, change.notes, new_rows),
            created=Manifest.now(),
        ),
    )
    return number


def _notes(old: Mapping[str, Any], new: Mapping[str, Any], rows: pa.Table) -> dict[str, Any]:
    """Merge the notes of the old version and of the change, and update the note "highest"."""
    notes = {**old, **new}
    if "highest" in notes:
        largest = {name: pc.max(rows.column(name)).as_py() for name in notes["highest"]}
        notes["highest"] = {
            name: at if largest[name] is None else max(at, largest[name]) for name, at in notes["highest"].items()
        }
    return notes


def compact(relation: Relation, progress: Callable[[int, int | None], None] | None = None) -> int:
    """Commit a version with all rows rewritten in key order at the fill factor."""
    version, manifest = relation._version, relation._version.manifest
    number = manifest.version + 1
    counted = RowCounter(progress, manifest.rows)
    rows = (
        counted(table for table, _, _ in scan_tables(version, version.places(shard)))
        for shard in range(len(manifest.shards))
    )
    facts, nulls, variable = write_shards(relation.path, version.layout, number, rows)
    commit(
        relation.path,
        replace(
            manifest,
            version=number,
            shards=facts,
            nulls=nulls,
            variable_bytes=variable,
            created=Manifest.now(),
        ),
    )
    return number


class RowCounter:
    """Passes tables on, and tells a callback of progress how many of all rows have passed."""

    def __init__(self, progress: Callable[[int, int | None], None] | None, total: int, passes: int = 1) -> None:
        self._progress = progress
        self._total = total
        self._passes = passes  # how often each row passes
        self._rows = 0

    def __call__(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the tables."""
        for table in tables:
            yield table
            self._rows += table.num_rows
            if self._progress:
                self._progress(self._rows // self._passes, self._total)


def scan_tables(version: Version, places: Int64s) -> Iterator[tuple[pa.Table, Keys, PageFacts]]:
    """Yield the rows of pages in key order as tables of the stored schema, with their keys and the facts of the pages."""
    reader = PageReader(version, 2 * version.page_size * max(1, min(_PIECE, places.size)))
    columns = (key_column(version.codec), *version.payload)
    for facts, store in reader.scan(places, columns, JoinStats()):
        keys = stored_keys(store, version.codec.integer)
        arrays = [*version.codec.decode(keys), *(store.array(i + 1) for i in range(len(version.payload)))]
        names = [*version.codec.names, *(column.name for column in version.payload)]
        yield pa.table(arrays, names=names).select(version.manifest.schema.names), keys, facts


def rows_for(relation: Relation, upserts: Any, what: str = "upserts") -> pa.Table:
    """Convert rows to a table of the stored schema; errors call the rows `what`."""
    refuse_index(upserts, relation.key, f"{what}: ")
    return stored_rows(relation.schema, upserts, what)


def stored_rows(schema: pa.Schema, upserts: Any, what: str, *, truncate: bool = False) -> pa.Table:
    """Convert rows to a table of a stored schema; see `plain_table` for `truncate`."""
    if upserts is None:
        return schema.empty_table()
    upserts = table_of(upserts, what, types=schema)
    given = plain_schema(upserts.schema)
    for name in schema.names:
        if name not in given.names:
            raise BadInput(f"{what} have no column {name!r}; expected {', '.join(schema.names)}")
    for name in given.names:
        if name not in schema.names:
            raise BadInput(
                f"{what} have a column {name!r} that the relation does not; expected {', '.join(schema.names)}"
            )
    if upserts.num_rows == 0:
        return schema.empty_table()
    for column in schema:
        kind = given.field(column.name).type
        if not _same_kind(kind, column.type):
            raise BadInput(f"{what} have column {column.name!r} of type {kind}; expected {column.type}")
    return plain_table(upserts, schema, truncate=truncate).combine_chunks()


def _same_kind(given: pa.DataType, stored: pa.DataType) -> bool:
    """Tell whether a cast keeps the meaning: widths may differ, but text does not become a number."""
    t = pa.types
    kinds = (t.is_integer, t.is_floating, t.is_decimal, t.is_timestamp, t.is_time, t.is_duration, t.is_date)
    return bool(given == stored or t.is_null(given) or any(kind(given) and kind(stored) for kind in kinds))


def _refuse_both(relation: Relation, new: Keys, gone: Keys) -> None:
    new, gone = _distinct(new), _distinct(gone)
    _, both = positions(new, gone)
    if both.any():
        value = relation._version.codec.shown(new.take(np.flatnonzero(both)[:1]))
        raise BadInput(f"key {value} is in upserts and in deletes; give each key in one of them")


def _distinct(keys: Keys) -> Keys:
    """Sort keys and remove duplicates."""
    keys = keys.take(keys.argsort())
    return keys.take(np.flatnonzero(keys.repeats() == 0))


@dataclass(kw_only=True)
class ShardChange:
    """Writes the new version of one shard that is stored by key."""

    version: Version
    shard: int
    number: int  # of the new version
    rows: pa.Table  # upserts of this shard
    keys: Keys  # of `rows`
    gone: Keys  # deletes of this shard
    # changes of the totals in the manifest
    nulls: dict[str, int] = field(default_factory=dict)
    variable_bytes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order = self.keys.argsort()
        self.rows, self.keys = self.rows.take(pa.array(order)), self.keys.take(order)
        self.changed = _distinct(concat_keys([self.keys, self.gone], self.version.codec))
        self.nulls = dict.fromkeys(self.version.manifest.nulls, 0)
        self.variable_bytes = dict.fromkeys(self.version.manifest.variable_bytes, 0)
        self.builder = PageBuilder(self.version.layout, self.shard, FileFacts.new_tag())
        # rows of each changed key in the old and in the new version
        self.before = np.zeros(len(self.changed), np.int64)
        self.after = np.zeros(len(self.changed), np.int64)
        np.add.at(self.after, positions(self.keys, self.changed)[0], 1)

    def write(self) -> ShardFacts:
        version, old = self.version, self.version.manifest.shards[self.shard]
        index = version.indexes[self.shard]
        assert isinstance(index, FenceIndex)  # FrequencyShardChange changes the others
        stem = f"shard-{self.shard:04d}-{self.number:06d}"
        low, high = index.locate(self.changed)
        steps = np.zeros(old.pages + 1, np.int64)
        if old.pages:
            np.add.at(steps, np.maximum(low, 0), 1)
            np.add.at(steps, np.maximum(high, 0) + 1, -1)
        affected = np.cumsum(steps)[: old.pages] > 0
        if len(old.files) >= MOST_FILES:
            affected |= index.places >> FILE_SHIFT > 0  # rewrite all that earlier changes wrote, into one file
        used = old.used_bytes
        pages = 0
        fences: list[Keys] = []
        continues: list[UInt8s] = []
        anchors: list[Int64s] = []
        with open_new(version.root / f"{stem}.pages") as file:
            for piece in pieces(np.flatnonzero(affected), index.continues):
                run, anchor, freed = self._rewrite(index, piece, pages)
                file.write(run.pages.data)
                used += run.used_bytes - freed
                pages += run.count
                fences.append(run.keys.take(run.starts[:-1]))
                flags = run.keys.repeats()[run.starts[:-1]]
                self._inherit(index, fences[-1], flags, anchor)
                continues.append(flags)
                anchors.append(anchor)
            file.sync()
        kept = np.flatnonzero(~affected)
        anchor = np.concatenate([kept, *anchors])
        order = np.argsort(anchor, kind="stable")
        places = (index.places[kept] if index.places.size else kept).astype(np.int64)
        fresh = (len(old.files) << FILE_SHIFT) + np.arange(pages, dtype=np.int64)
        fence = concat_keys([index.fence.take(kept), *fences], version.codec)
        statistics = self._statistics()
        words = self._filter(index, kept, statistics.distinct)
        files = [*old.files, FileFacts(f"{stem}.pages", pages * version.page_size, self.builder.tag, pages)]
        where = np.concatenate([places, fresh])
        files, where = in_use(files, where)
        return write_sidecars(
            version.root,
            stem,
            self.builder,
            files,
            index=fence_arrays(
                fence.take(order), np.concatenate([index.continues[kept], *continues])[order], where[order]
            ),
            pages=len(fence),
            words=words,
            statistics=statistics,
            rows=old.rows + int(self.after.sum() - self.before.sum()),
            used_bytes=used,
        )

    def _rewrite(self, index: FenceIndex, piece: Int64s, first_number: int) -> tuple[BuiltPages, Int64s, int]:
        """Build new pages in place of some old ones, with the changes of the keys in their range.

        Returns the new pages, for each of them the first old page of its group of neighbours, and the bytes freed. Groups stay
        apart: the pages between two groups are not rewritten, so no new page may hold rows of both.
        """
        version = self.version
        groups = np.flatnonzero(np.diff(piece, prepend=-2) != 1)
        tables, old, freed, done = [], [], 0, 0
        for table, keys, facts in scan_tables(version, index.place(piece)):
            at, equal = positions(keys, self.changed)
            np.add.at(self.before, at[equal], 1)
            self._count(table, -1)
            pages = np.repeat(np.arange(done, done + facts.rows.size), facts.rows)
            old.append(pages[~equal])
            tables.append(table.filter(pa.array(~equal)))
            freed += int(facts.used.sum())
            done += facts.rows.size
        first, last = self._range(index, piece)
        new = self.keys.slice(first, last)
        page = np.maximum(index.locate(new)[0], 0)
        old.append(np.maximum(np.searchsorted(piece, page, side="right") - 1, 0))
        tables.append(self.rows.slice(first, last - first))
        together = pa.concat_tables(tables).combine_chunks()
        old_page = np.concatenate(old)  # of each row, where it lies or belongs: a number in `piece`
        group = np.searchsorted(groups, old_page, side="right") - 1
        keys, _ = version.codec.encode([together.column(name) for name in version.manifest.key])
        # By group first, as an unchanged key may lie in two groups, on both sides of pages that stay.
        order = keys.argsort()
        order = order[np.argsort(group[order], kind="stable")]
        together, group = together.take(pa.array(order)), group[order]
        run = self.builder.rebuild(together, first_number, np.maximum.accumulate(old_page[order]), group)
        self._count(together, +1)
        anchor = piece[groups[group[run.starts[:-1]]]] if piece.size else np.zeros(run.count, np.int64)
        return run, anchor, freed

    def _range(self, index: FenceIndex, piece: Int64s) -> tuple[int, int]:
        """Return which upserts fall into the pages of a piece: from its first fence key up to that of the page after it."""
        if len(index.fence) == 0:
            return 0, len(self.keys)
        ends = [piece[0], piece[-1] + 1]
        cuts = [p for p in ends if 0 < p < len(index.fence)]
        at = (
            bounds(self.keys, index.fence.take(np.array(cuts, np.int64)), np.zeros(len(cuts), np.uint8))[1:-1]
            if cuts
            else NO_LONGS
        )
        first = int(at[0]) if piece[0] > 0 else 0
        last = int(at[-1]) if piece[-1] + 1 < len(index.fence) else len(self.keys)
        return first, last

    def _inherit(self, index: FenceIndex, fence: Keys, flags: UInt8s, anchor: Int64s) -> None:
        """Set the "continues" flag of the first new page of each group, if the old first page of the group had it.

        The key that continues is unchanged (all pages of a changed key are rewritten), so it is still the first of the group.
        """
        first = np.flatnonzero(np.diff(anchor, prepend=-1) != 0)
        if len(index.fence) == 0:
            flags[first] = 0
            return
        page = anchor[first]
        same = fence.take(first).equal_at(index.fence, page.astype(np.int32))  # type: ignore[arg-type]
        flags[first] = same & (index.continues[page] == 1)

    def _count(self, table: pa.Table, sign: int) -> None:
        """Add (sign 1) or subtract (sign -1) the nulls and the variable bytes of a table."""
        for name in self.nulls:
            self.nulls[name] += sign * table.column(name).null_count
        for name in self.variable_bytes:
            self.variable_bytes[name] += sign * (pc.sum(pc.binary_length(table.column(name))).as_py() or 0)

    def _filter(self, index: FenceIndex, kept: Int64s, distinct: int) -> UInt32s:
        """Add the new keys to the old filter, or build a larger one of all keys when too many absent keys would pass."""
        words = self.version.filter(self.shard).copy()
        if distinct * FILTER_BITS > 1.5 * 32 * words.size:  # half again as many keys as it was made for
            words = new_filter([], 2 * distinct)
            reader = PageReader(self.version, 2 * self.version.page_size * max(1, min(_PIECE, kept.size)))
            places = np.sort(index.place(np.arange(len(index.fence))))
            for _, store in reader.scan(places, (key_column(self.version.codec),), JoinStats()):
                filter_add(words, stored_keys(store, self.version.codec.integer).hashes())
        filter_add(words, self.keys.hashes())
        return words

    def _statistics(self) -> KeyStatistics:
        """Return f_R with the changed keys replaced. The largest frequency stays an upper bound until `compact`."""
        version, old = self.version, self.version.manifest.shards[self.shard]
        arrays = version.arrays(self.shard, "stats")
        heavy: Keys = (
            IntKeys(arrays["values"].view(np.int64))
            if version.codec.integer
            else ByteKeys(arrays["values"], arrays["offsets"])
        )
        order = heavy.argsort()
        _, changed = positions(heavy.take(order), self.changed)
        keep = np.sort(order[~changed])
        had = self.before[self.before > 0]
        statistics = KeyStatistics(
            version.codec,
            old.distinct - had.size,
            old.max_frequency,
            arrays["histogram"].copy(),
            heavy.take(keep),
            arrays["counts"][keep].copy(),
        )
        bins = np.frexp(had.astype(np.float64))[1] - 1
        statistics.histogram -= np.bincount(bins, minlength=FREQUENCY_BINS)[:FREQUENCY_BINS]
        present = np.flatnonzero(self.after > 0)
        statistics.add(self.changed.take(present), self.after[present])
        return statistics


def in_use(files: list[FileFacts], places: Int64s) -> tuple[list[FileFacts], Int64s]:
    """Return those files that a place is in, and the places by their numbers: an unused file is not part of a new version."""
    used = np.unique(places >> FILE_SHIFT)
    return [files[i] for i in used], (np.searchsorted(used, places >> FILE_SHIFT) << FILE_SHIFT) + (places & PAGE_MASK)


def pieces(pages: Int64s, continues: UInt8s) -> Iterator[Int64s]:
    """Split affected pages into pieces that do not cut a key that spans pages. There is one piece at least, perhaps empty."""
    start = 0
    while start < pages.size:
        stop = min(start + _PIECE, pages.size)
        while stop < pages.size and pages[stop] == pages[stop - 1] + 1 and continues[pages[stop]]:
            stop += 1
        yield pages[start:stop]
        start = stop
    if pages.size == 0:
        yield pages
