"""Relation: a table of any size on disk, sorted by key, cut into pages, with an index, a filter and versions."""

from __future__ import annotations

import copy
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from headrace.clock import SystemClock
from headrace.errors import BadInput, RelationError, RelationReplaced, choice, listed, shown
from headrace.files import close
from headrace.kernels.pages import expand_rows
from headrace.metrics import JoinStats
from headrace.paths import local_path
from headrace.relation import update
from headrace.relation.columns import Column
from headrace.relation.create import Progress, create_relation
from headrace.relation.disk import Disk, DiskKind, disk_of
from headrace.relation.index_memory import IndexLevels
from headrace.relation.input_data import refuse_index, table_of
from headrace.relation.keys import ByteKeys, IntKeys, KeyCodec, Keys
from headrace.relation.manifest import Manifest, StorageOrder, directory_at, pin, remove_old, remove_unnamed, writing
from headrace.relation.popularity import note_popularity, ranks_by, reorder
from headrace.relation.reader import PageFacts, PageReader, Version, key_column, stored_keys
from headrace.relation.relation_html import relation_html
from headrace.relation.rows_out import first_rows, reader_of, whole_table
from headrace.relation.sketch import Sketch
from headrace.relation.store import TupleStore
from headrace.relation.update import Change
from headrace.relation.verify import verify_version
from headrace.units import format_duration, parse_size

if TYPE_CHECKING:
    import pandas as pd

_log = logging.getLogger(__name__)

_SCAN_BUFFER = 16 << 20  # bytes of the read buffer of a scan or a lookup: long runs, and little memory
_LOOKUP_KEYS = 1 << 16  # keys of a lookup that are handled at a time


class Relation:
    """A disk-resident relation R, opened at one version.

    Create it once with `Relation.create`, open it anywhere with `Relation.open`. An open relation reads its version to
    the end, whatever writers do meanwhile; `apply` and `compact` make new versions, which this object does not show: open
    the relation again, or call `refresh`, to see them.

        shard 0:  fence keys  [ k0 | k51 | k102 | ... ]      one per page: in memory, or the upper part of them
                                |     |     |
                  pages       [....][....][....] ...         on disk, 8 KiB, checksummed, column by column
                  filter      "not in R" from memory         12 bits per key

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> where = tempfile.mkdtemp() + "/products"
    >>> products = pa.table({"product_id": [3, 1, 2], "name": ["nut", "bolt", "gear"]})
    >>> rel = hr.Relation.create(where, products, key="product_id")
    >>> rel.lookup([2, 9]).to_pylist()
    [{'product_id': 2, 'name': 'gear'}]
    """

    def __init__(self, path: Path, manifest: Manifest, lock: int, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self._version = Version(path, manifest, disk)
        self._known = manifest.version  # the latest version that this handle opened or committed
        self._close = weakref.finalize(self, _release, self._version, lock)

    # -- making and opening ------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: str | Path,
        data: Any,
        key: str | Sequence[str],
        *,
        shards: int | None = None,
        page_size: int | str = "8KiB",
        fill: float = 0.8,
        memory: int | str = "512MiB",
        null_keys: Literal["refuse", "drop"] = "refuse",
        nanoseconds: Literal["refuse", "truncate"] = "refuse",
        overwrite: bool = False,
        order: StorageOrder = "key",
        frequencies: Any = None,
        disk: DiskKind | Disk = "buffered",
        progress: Progress | None = None,
    ) -> Relation:
        """Write data of any size as a relation, sorted by key, in bounded memory. It is atomic: a killed create leaves none.

        Parameters
        ----------
        data
            A Spark DataFrame (written by its executors), a pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a pandas
            frame, a Polars DataFrame or LazyFrame, a DuckDB relation, anything else with `__arrow_c_stream__` or
            `__arrow_c_array__`, or the path of Parquet files or of a CSV file with a header (.csv, .csv.gz). Or
            hr.postgresql(...) or hr.delta(...), which `hr.refresh` follows later.
        key
            The key column, or several. Duplicate keys are allowed.
        shards
            Units of parallel work; rows are spread over them by a hash of the key. 2 by default; 1 where rows are stored by
            popularity, which then holds for the whole relation and not within each shard.
        fill
            The share of a page that is filled; the rest is room for updates.
        memory
            Bytes that sorting may hold; more is spilled beside the relation while it is made.
        null_keys
            "refuse" rows with a null key, or "drop" them: a null key matches nothing.
        nanoseconds
            "refuse" timestamps and durations of nanoseconds in the payload, as Spark has microseconds; "truncate" stores these.
        overwrite
            Replace the relation at the path, when no writer is at work on it any more. Queries that join with it stop.
        order, frequencies
            "key": sorted by key. "frequency": the rows of the most popular keys first, for X-HYBRIDJOIN, with a secondary index
            that holds every key. `frequencies` is a table of the key columns and
            "frequency", how often the stream asks for each key; keys that are not in it come last.
        progress
            Called with the rows done and, where known, the total.
        """
        root = local_path(path)
        if shards is None:
            shards = 1 if order == "frequency" else 2
        create_relation(
            root,
            data,
            key,
            shards=shards,
            page_size=page_size,
            fill=fill,
            memory=memory,
            null_keys=null_keys,
            overwrite=overwrite,
            progress=progress,
            order=order,
            frequencies=frequencies,
            nanoseconds=nanoseconds,
        )
        return cls._open_latest(root, None, disk_of(disk))

    @classmethod
    def open(cls, path: str | Path, *, version: int | None = None, disk: DiskKind | Disk = "buffered") -> Relation:
        """Open the latest version, or a given one that still exists."""
        relation = cls._open_latest(local_path(path), version, disk_of(disk))
        _log.info("opened %s: %s", relation.path, relation._manifest.summary())
        return relation

    @classmethod
    def _open_latest(cls, root: Path, version: int | None, disk: Disk) -> Relation:
        while True:
            place = directory_at(root)
            try:
                relation = cls._open(root, version, disk)
            except (RelationError, OSError):
                if directory_at(root) == place:
                    raise
                continue
            if directory_at(root) == place:
                return relation
            # Another relation took this one's place meanwhile: manifest and files may be of both.
            relation.close()

    @classmethod
    def _open(cls, root: Path, version: int | None, disk: Disk) -> Relation:
        manifest, lock = pin(root, version)
        try:
            return cls(root, manifest, lock, disk)
        except BaseException:
            close(lock)
            raise

    def refresh(self) -> Relation:
        """Open the latest version; this object stays at its own."""
        return Relation.open(self.path, disk=self.disk)

    def check_identity(self, identity: str) -> None:
        """Refuse with RelationReplaced if this is not the relation with that `identity`, but one that was made in its place."""
        if self.identity != identity:
            raise RelationReplaced(
                f"{self.path} is not the relation that was opened: another was made in its place (Relation.create with"
                " overwrite=True); open it again, and start the query anew, to go on with the new one"
            )

    def close(self) -> None:
        """Close the files and release the version."""
        self._close()

    def __enter__(self) -> Relation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- facts ---------------------------------------------------------------------------------------------------------

    @property
    def _manifest(self) -> Manifest:
        return self._version.manifest

    @property
    def schema(self) -> pa.Schema:
        return self._manifest.schema

    @property
    def key(self) -> tuple[str, ...]:
        return self._manifest.key

    @property
    def version(self) -> int:
        return self._manifest.version

    @property
    def num_rows(self) -> int:
        return self._manifest.rows

    @property
    def num_pages(self) -> int:
        return sum(shard.pages for shard in self._manifest.shards)

    @property
    def num_shards(self) -> int:
        return len(self._manifest.shards)

    @property
    def page_size(self) -> int:
        return self._manifest.page_size

    @property
    def distinct_keys(self) -> int:
        return sum(shard.distinct for shard in self._manifest.shards)

    @property
    def index_bytes(self) -> int:
        """Bytes in memory of the fence keys or, if rows are stored by frequency, of the secondary index, as a whole."""
        return self._version.index_bytes

    @property
    def index_levels(self) -> IndexLevels | None:
        """The pages of the index, for joins that cannot hold it as a whole; None if the version was written without them."""
        return IndexLevels.of(self._manifest)

    @property
    def filter_bytes(self) -> int:
        """Bytes in memory of the filters for absent keys."""
        return sum(shard.filter.bytes for shard in self._manifest.shards)

    @property
    def variable_bytes(self) -> dict[str, int]:
        """Total bytes of each column of variable width."""
        return self._manifest.variable_bytes

    @property
    def opened(self) -> Version:
        """The open version, with the files, indexes and filters that operators read."""
        return self._version

    @property
    def codec(self) -> KeyCodec:
        """The codec that converts between Arrow columns and the relation's keys."""
        return self._version.codec

    @property
    def identity(self) -> str:
        """A random name that this relation has in all its versions; one made anew in its place has another."""
        return self._manifest.identity

    @property
    def order(self) -> StorageOrder:
        """The order in which rows are stored: by key, or by the frequency of their key."""
        return self._manifest.order

    @property
    def notes(self) -> dict[str, Any]:
        """A copy of the notes that writers committed with this version and earlier ones."""
        return copy.deepcopy(self._manifest.notes)

    @property
    def unique(self) -> bool:
        """Whether no key occurs twice."""
        return all(shard.max_frequency <= 1 for shard in self._manifest.shards)

    def describe(self) -> dict[str, Any]:
        """Return rows, pages, bytes, fill, height of the index, sizes of index and filter, version, and more."""
        shards = self._manifest.shards
        pages, used = self.num_pages, sum(shard.used_bytes for shard in shards)
        index_bytes = self.index_bytes
        entries = [shard.distinct if self.order == "frequency" else shard.pages for shard in shards]
        fanout = max(2, self.page_size * sum(entries) // max(1, index_bytes))
        height, nodes = 1, max(entries, default=0)
        while nodes > 1:
            nodes = -(-nodes // fanout)
            height += 1
        return {
            "path": str(self.path),
            "version": self.version,
            "created": self._manifest.created,
            "rows": self.num_rows,
            "distinct_keys": self.distinct_keys,
            "max_frequency": max((shard.max_frequency for shard in shards), default=0),
            "key": list(self.key),
            "order": self.order,
            "columns": {f.name: str(f.type) for f in self.schema},
            "shards": len(shards),
            "page_size": self.page_size,
            "pages": pages,
            "bytes": sum(file.bytes for shard in shards for file in shard.files),
            "fill": round(used / (pages * self.page_size), 4) if pages else 0.0,
            "index_height": height,
            "index_bytes": index_bytes,
            "filter_bytes": self.filter_bytes,
        }

    def key_frequencies(self) -> pa.Table:
        """Return f_R of the most frequent keys that occur more than once, as a table of the key columns and "frequency"."""
        tables = []
        for number in range(self.num_shards):
            arrays = self._version.arrays(number, "stats")
            keys: Keys = (
                IntKeys(arrays["values"].view(np.int64))
                if self._version.codec.integer
                else ByteKeys(arrays["values"], arrays["offsets"])
            )
            columns = [*self._version.codec.decode(keys), pa.array(arrays["counts"])]
            tables.append(pa.table(columns, names=[*self.key, "frequency"]))
        return pa.concat_tables(tables).sort_by([("frequency", "descending")])

    # -- reading -------------------------------------------------------------------------------------------------------

    def lookup(self, keys: Any, *, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows with the given keys, in the order of the keys; a key given twice counts once.

        Parameters
        ----------
        keys
            A list or Arrow array of values (one key column), or a table with the key columns.
        columns
            Payload columns wanted; all by default.
        """
        version = self._version
        arrays = key_arrays(self, keys)
        payload = self.payload(columns)
        encoded, valid = version.codec.encode(arrays)
        if valid.size:
            encoded = encoded.take(np.flatnonzero(valid))
        order = encoded.argsort()
        fresh = np.sort(order[np.flatnonzero(encoded.take(order).repeats() == 0)])
        encoded = encoded.take(fresh)
        reader = PageReader(version, min(_SCAN_BUFFER, 2 * max(1, self.num_pages) * self.page_size))
        pieces = [
            self._lookup(encoded.slice(a, min(a + _LOOKUP_KEYS, len(encoded))), payload, reader)
            for a in range(0, max(1, len(encoded)), _LOOKUP_KEYS)
        ]
        return pa.concat_tables(pieces)

    def _lookup(self, wanted: Keys, payload: tuple[Column, ...], reader: PageReader) -> pa.Table:
        version = self._version
        pairs = version.pairs(wanted, wanted.hashes(), np.arange(len(wanted)))
        stats = JoinStats()
        names = [*self.key, *(column.name for column in payload)]
        tables, numbers = [], []
        places, inverse = np.unique(pairs.place, return_inverse=True)
        # One round of the reader at a time: only the result, which the caller asked for, may exceed the buffer.
        by_place = np.argsort(inverse, kind="stable")
        starts = np.searchsorted(inverse[by_place], np.arange(places.size + 1))
        columns = (key_column(version.codec), *payload)
        for a, b, addresses in reader.read(places, stats):
            mine = by_place[starts[a] : starts[b]]
            pages = np.repeat(addresses, np.diff(starts[a : b + 1]))
            table, rows = _rows_of(version, wanted, pairs.key[mine], pages, columns, names)
            tables.append(table)
            numbers.append(np.repeat(mine, rows))
        if not tables:
            return self.schema.empty_table().select(names)
        together = pa.concat_tables(tables)
        pair = np.concatenate(numbers)
        # Pages come in the order of the disk; the result is sorted by key and, for one key, in the order of its pages.
        return together.take(pa.array(np.lexsort((pair, pairs.key[pair]))))

    def head(self, n: int = 5, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the first n rows in the order in which they are stored; only the pages that hold them are read."""
        return first_rows(self, n, columns)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows as one table in memory, of the named columns in that order or of all as in `schema`.

        Refused with MemoryRefused where the machine has not that much free memory: `to_reader` and `scan` give any number of rows
        in batches.
        """
        return whole_table(self, columns)

    def to_pandas(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return all rows as a pandas frame, as `to_arrow` does; the key is a column like others."""
        frame: pd.DataFrame = whole_table(self, columns, objects=True).to_pandas()
        return frame

    def to_reader(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Return a reader of all rows, for what takes a stream of batches: pages are read as batches are asked for."""
        return reader_of(self, columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return all rows as a stream of Arrow's C interface: Polars, DuckDB, pyarrow and others read the relation by it."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def scan(self, *, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield every row, shard by shard in the order of the pages, in batches of bounded size."""
        payload = self.payload(columns)
        names = [*self.key, *(column.name for column in payload)]
        for shard in range(self.num_shards):
            for keys, store, _ in self._scan_shard(shard, payload):
                arrays = [store.array(i + 1) for i in range(len(payload))]
                yield pa.RecordBatch.from_arrays([*self._version.codec.decode(keys), *arrays], names=names)

    def _scan_shard(self, shard: int, payload: tuple[Column, ...]) -> Iterator[tuple[Keys, TupleStore, PageFacts]]:
        version = self._version
        reader = PageReader(version, max(2 * self.page_size, min(_SCAN_BUFFER, 2 * self.num_pages * self.page_size)))
        for facts, store in reader.scan(version.places(shard), (key_column(version.codec), *payload), JoinStats()):
            yield stored_keys(store, version.codec.integer), store, facts

    def payload(self, columns: Sequence[str] | None) -> tuple[Column, ...]:
        """Return the payload columns with the given names, all by default; refuses unknown ones."""
        known = {column.name: column for column in self._version.payload}
        if columns is None:
            return self._version.payload
        if isinstance(columns, str):
            raise BadInput(f"columns={columns!r} is one text; give a list of names: [{columns!r}]")
        for name in columns:
            if name not in known and name not in self.key:
                raise BadInput(
                    f"columns names {name!r}, which the relation does not have; choose from {listed(list(known), like=name)}"
                )
        return tuple(known[name] for name in dict.fromkeys(columns) if name in known)

    def verify(self, progress: Progress | None = None) -> None:
        """Read every byte of this version; raises DamagedRelation with file, shard and page of the first damage.

        Damage is what a checksum does not match, and what was written wrong: pages that lead outside of themselves, fences and
        filters that do not fit the keys in the pages, counts that are not theirs.
        """
        verify_version(self._version, progress)

    # -- changing ------------------------------------------------------------------------------------------------------

    def apply(
        self, upserts: Any = None, deletes: Any = None, *, on_conflict: Literal["refuse", "rebase"] = "refuse"
    ) -> int:
        """Write a new version with rows replaced, added or removed; returns its number.

        Rows of `upserts` (the relation's columns, in any form that `create` takes but a Spark DataFrame) replace all rows with
        the same key; keys of `deletes` lose all theirs. Readers go on with the version they opened, and so does this handle:
        `refresh` opens the new version. What `snapshot_diff` found is taken as it is. Where rows are stored by popularity, those
        of a key stay at its rank, and a key that is new comes last.

        Parameters
        ----------
        on_conflict
            What to do if another writer has committed since this handle was opened or last committed: "refuse" raises
            VersionConflict, since what the change was decided on may not be so any more; "rebase" applies it on top of the latest
            version. A change of `snapshot_diff` was decided on the version that it was compared with.
        """
        choice("on_conflict", on_conflict, ("refuse", "rebase"))
        change = getattr(upserts, "change", upserts)
        if not isinstance(change, Change):
            change = Change(upserts, deletes)
        base = None if on_conflict == "rebase" else self._known if change.base is None else change.base
        return self._change(lambda latest: update.apply(latest, replace(change, base=base)))

    def revise(self, decide: Callable[[Relation], Change | None]) -> int:
        """Read the latest version and change it with no other writer in between; returns the version that holds the result.

        Waits while another writer has the lock. `decide` gets the latest version, open, and returns the change, or None if there
        is nothing to do.
        """

        def change(latest: Relation) -> int:
            decided = decide(latest)
            return latest.version if decided is None else update.apply(latest, decided)

        return self._change(change, wait=True)

    def compact(
        self,
        *,
        order: StorageOrder | None = None,
        popularity: Any = None,
        memory: int | str = "512MiB",
        progress: Progress | None = None,
    ) -> int:
        """Rewrite everything in order at the fill factor, as a new version; returns its number.

        Parameters
        ----------
        order
            "key", or "frequency": the rows of the most popular keys first. By default the order that the relation has.
        popularity
            With order="frequency": what a join measured (`join.popularity`), or a table of the key columns and "frequency". By
            default what `note_popularity` kept. Keys of equal popularity, or none, stay in the order they have.
        memory
            Bytes that sorting by popularity may hold; more is spilled beside the relation.
        progress
            Called with the rows done and the total.
        """
        wanted = self.order if order is None else choice("order", order, ("key", "frequency"))
        if popularity is not None and order != "frequency":
            raise BadInput(
                f"popularity is given and order={order!r} does not use it; pass order='frequency', or leave it out"
            )
        limit = parse_size(memory, name="memory")

        def change(latest: Relation) -> int:
            if wanted == "key" and latest.order == "key":
                return update.compact(latest, progress)
            ranks = ranks_by(latest, popularity) if order == "frequency" else None
            return reorder(latest, wanted, ranks, limit, progress)  # type: ignore[arg-type]

        return self._change(change, decided=False, what="compacted")

    def note_popularity(self, counts: Sketch | None) -> None:
        """Keep what a join measured (`join.popularity`) beside the relation, for `compact(order="frequency")`.

        It takes the place of what was noted before: the counts forget slowly, so the last ones are of the stream as it is.
        """
        if counts is None:
            raise BadInput("the join has measured nothing; make it with measure=True")
        note_popularity(self, counts)

    def _change(
        self, change: Callable[[Relation], int], *, wait: bool = False, decided: bool = True, what: str = "changed"
    ) -> int:
        """Commit a change of the latest version. `decided`: whoever made it answers for what earlier writers have committed."""
        clock = SystemClock()
        begun = clock.now()
        with writing(self.path, wait=wait):
            with Relation._open_latest(self.path, None, self.disk) as latest:
                latest.check_identity(self.identity)
                known = decided or latest.version == self._known
                try:
                    version = change(latest)
                except BaseException:
                    with suppress(OSError, RelationError):  # what the change met is told; the next one removes these
                        remove_unnamed(self.path)
                    raise
                made = version != latest.version
            # The new version opens before an old one goes.
            with Relation._open_latest(self.path, version, disk_of("buffered")) as new:
                new.opened.check_sidecars()
                if made:
                    seconds = format_duration(clock.now() - begun)
                    _log.info("%s %s: %s in %s", what, self.path, new._manifest.summary(), seconds)
            # The writer's lock is still held, so a file that no manifest names is not one that another writer is writing.
            remove_old(self.path)
        if known:
            self._known = version
        return version

    def _repr_html_(self) -> str:
        return relation_html(self)

    def __repr__(self) -> str:
        return f"Relation({str(self.path)!r}, version={self.version}, rows={self.num_rows:,}, pages={self.num_pages:,})"


def key_arrays(relation: Relation, keys: Any) -> list[pa.Array]:
    """Return the key columns of a list, an array, a series or a table; refuses what does not fit the key's type."""
    if len(relation.key) == 1 and (isinstance(keys, str | bytes | int | float) or keys is None):
        raise BadInput(f"keys={shown(keys)} is one value of {relation.key[0]!r}; give a list: [{shown(keys)}]")
    refuse_index(keys, relation.key, "the keys: ")
    keys = _in_arrow(keys)
    if isinstance(keys, pa.Table | pa.RecordBatch):
        missing = [name for name in relation.key if name not in keys.schema.names]
        if missing:
            raise BadInput(
                f"the keys have no column {missing[0]!r}; expected {', '.join(relation.key)},"
                f" got {', '.join(keys.schema.names)}"
            )
        columns = [keys.column(name) for name in relation.key]
    elif len(relation.key) > 1:
        raise BadInput(
            f"the key has {len(relation.key)} columns ({', '.join(relation.key)}): give the keys as a table with them"
        )
    elif isinstance(keys, pa.Array | pa.ChunkedArray):
        columns = [keys]
    else:
        columns = [_listed(keys, relation.schema.field(relation.key[0]))]
    relation.codec.check([pa.field(name, c.type) for name, c in zip(relation.key, columns, strict=True)])
    return columns


def _in_arrow(keys: Any) -> Any:
    """Return keys of other libraries as a table or an array of Arrow; lists and what is Arrow's already stay as they are."""
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        return keys
    if type(keys).__module__.split(".")[0] == "pandas" and not hasattr(keys, "columns"):
        return pa.array(keys)
    if hasattr(keys, "to_arrow") and hasattr(keys, "dtype"):  # a series of Polars
        return keys.to_arrow()
    # The class is asked: a lazy frame of Polars would resolve its columns.
    if any(hasattr(type(keys), name) for name in ("columns", "__arrow_c_stream__", "__arrow_c_array__")):
        return table_of(keys, "the keys")
    return keys


def _listed(keys: Any, field: pa.Field) -> pa.Array:
    """Convert Python values to the key's type; refuses values that would change, as 1.5 to 1 or a time to a date."""
    try:
        values = list(keys)
        array = pa.array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, OverflowError) as error:
        raise BadInput(f"the keys do not fit column {field.name!r} of type {field.type}: {shown(error)}") from error
    for given, kept in zip(values, array.to_pylist(), strict=True):
        if given != kept or isinstance(given, bool):
            raise BadInput(
                f"key {shown(given)} does not fit column {field.name!r} of type {field.type}; it would become {shown(kept)}"
            )
    return array


def _rows_of(
    version: Version, keys: Keys, which: Any, pages: Any, columns: tuple[Any, ...], names: list[str]
) -> tuple[pa.Table, Any]:
    """Return the rows with keys[which[i]] in the page at address pages[i], and how many there are for each i."""
    low, high = np.empty(which.size, np.int32), np.empty(which.size, np.int32)
    total = keys.find(pages, which, low, high)
    at, row = np.empty(total, np.int64), np.empty(total, np.int32)
    expand_rows(pages, low, high, at, row)
    room = np.unique(pages).size * version.page_size
    store = TupleStore(columns, total, {c.name: room for c in columns})
    store.append_from_pages(at, row)
    decoded = version.codec.decode(stored_keys(store, version.codec.integer))
    arrays = [store.array(i + 1) for i in range(len(columns) - 1)]
    return pa.table([*decoded, *arrays], names=names), high - low


def _release(version: Version, lock: int) -> None:
    try:
        version.close()
    finally:
        with suppress(OSError):
            close(lock)
