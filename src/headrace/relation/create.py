"""Creation of a relation from data of any kind, in a directory that gets its final name last."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import SystemClock
from headrace.errors import BadInput, choice, listed, shown
from headrace.files import (
    Lease,
    exchange,
    exists,
    make_directory,
    remove_abandoned,
    remove_tree,
    rename_exclusively,
)
from headrace.kernels.pages import ALIGNMENT
from headrace.relation.columns import in_microseconds, plain_schema, plain_table
from headrace.relation.disk import Disk
from headrace.relation.frequency_order import FrequencyRanks, FrequencySorter
from headrace.relation.input_data import is_spark, refuse_index, source_of
from headrace.relation.manifest import UNFINISHED, Manifest, commit, directory_at, versions, writing
from headrace.relation.manifest_check import MOST_PAGE_SIZE
from headrace.relation.reader import Version
from headrace.relation.sorter import ExternalSorter, batches_of
from headrace.relation.writer import Layout, ShardWriter
from headrace.units import format_duration, format_size, parse_size

_log = logging.getLogger(__name__)

Progress = Callable[[int, int | None], None]

_SECTOR = 4096  # bytes; O_DIRECT needs reads of whole sectors
# A shard's number has 15 bits of a page's place, which is a signed 64-bit number: see `reader.SHARD_SHIFT`.
_MOST_SHARDS = (1 << 15) - 1


def create_relation(
    root: Path,
    data: Any,
    key: str | Sequence[str],
    *,
    shards: int,
    page_size: int | str,
    fill: float,
    memory: int | str,
    null_keys: str,
    overwrite: bool,
    progress: Progress | None,
    order: str = "key",
    frequencies: Any = None,
    nanoseconds: str = "refuse",
) -> None:
    """Write and commit version 1 of a relation; see Relation.create."""
    clock = SystemClock()
    begun = clock.now()
    choice("null_keys", null_keys, ("refuse", "drop"))
    truncate = choice("nanoseconds", nanoseconds, ("refuse", "truncate")) == "truncate"
    if exists(root):
        if not overwrite:
            raise BadInput(f"{root} exists; pass overwrite=True to replace it, or choose another path")
        versions(root)  # refuses to replace anything but a relation
    notes: dict[str, Any] = {}
    if hasattr(data, "snapshot"):  # hr.postgresql or hr.delta, whose version is noted in the manifest
        data, notes = data.snapshot()
    if isinstance(shards, bool) or not isinstance(shards, int | np.integer) or shards < 1:
        raise BadInput(f"shards={shown(shards)} is not possible; give a whole number, 1 or more")
    if shards > _MOST_SHARDS:
        raise BadInput(
            f"shards={shards} is too many; a relation has {_MOST_SHARDS:,} at most, and a few for each core do"
        )
    limit = parse_size(memory, name="memory")
    if progress is not None and not callable(progress):
        raise BadInput(f"progress={shown(progress)} is not a function; give one of rows done and rows in all, or None")
    schema: pa.Schema
    batches: Any
    total: int | None = None
    if is_spark(data):
        from headrace.relation.spark_create import arrow_schema

        schema, batches = arrow_schema(data), data
    else:
        schema, batches, total = source_of(data)
    names = _key_names(key, schema)
    refuse_index(data, names, "key=")
    layout = _layout(schema, names, page_size, fill, truncate=truncate)
    ranks = _frequency_ranks(order, frequencies, layout, spark=is_spark(data))
    if ranks:
        layout = replace(layout, order="frequency")
    fill_directory: Callable[..., Manifest] = partial(_create_from_arrow, ranks)
    if is_spark(data):
        from headrace.relation.spark_create import create_from_spark as fill_directory
    make_directory(root.parent, parents=True)
    for left in remove_abandoned(root.parent, f"{root.name}{UNFINISHED}"):
        _log.info("removed %s, which a create left that was stopped", left)
    with Lease(root.parent, f"{root.name}{UNFINISHED}") as lease:
        draft = lease.directory
        manifest = fill_directory(
            draft,
            batches,
            layout,
            shards,
            limit,
            null_keys,
            (lambda done: progress(done, total)) if progress else (lambda done: None),
        )
        manifest.notes.update(notes)
        commit(draft, manifest)
        with closing(Version(draft, manifest, Disk())) as made:  # before it takes the place of one that is sound
            made.check_sidecars()
        if overwrite and exists(root):
            _replace(draft, root)
        else:
            _name(draft, root)
        _log.info(
            "created %s: %s in %s",
            root,
            manifest.summary(),
            format_duration(clock.now() - begun),
        )


def _replace(draft: Path, root: Path) -> None:
    """Take the place of a relation when no writer is at work on it.

    A writer gives its files and its manifest names below the path: in the new relation, if that came there meanwhile, which would
    then be damaged. One that comes later finds another identity, and stops.
    """
    while True:
        place = directory_at(root)
        with writing(root, wait=True):
            # If another relation has come there meanwhile, this is the lock of the one before.
            if directory_at(root) == place:
                _in_one_step(exchange, draft, root)
                return


def _name(draft: Path, root: Path) -> None:
    """Give a relation its name, if that is free."""
    try:
        _in_one_step(rename_exclusively, draft, root)
    except FileExistsError as error:
        raise BadInput(
            f"{root} was created meanwhile; pass overwrite=True to replace it, or choose another path"
        ) from error


def _in_one_step(rename: Callable[[Path, Path], None], draft: Path, root: Path) -> None:
    """Rename; explains the refusal of a file system that cannot do it at once."""
    try:
        rename(draft, root)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        raise OSError(error.errno, f"{root} cannot be given its name in one step: {error.strerror}") from error


def _frequency_ranks(order: str, frequencies: Any, layout: Layout, *, spark: bool) -> FrequencyRanks | None:
    """Return the ranks of keys; None if rows are stored by key."""
    choice("order", order, ("key", "frequency"))
    if order == "key":
        if frequencies is not None:
            raise BadInput(
                "frequencies is given and order='key' does not use it; pass order='frequency', or leave it out"
            )
        return None
    if frequencies is None:
        raise BadInput(
            f"order='frequency' needs frequencies: a table with {', '.join(layout.key)} and 'frequency', how often the stream"
            " asks for each key"
        )
    if spark:
        raise BadInput(
            "order='frequency' cannot be made from a Spark DataFrame; write it as Parquet and give the path of that"
        )
    return FrequencyRanks(frequencies, layout.codec)


def _key_names(key: Any, schema: pa.Schema) -> tuple[str, ...]:
    """Return the key columns' names; refuses what names none."""
    names = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, Iterable) else (key,)
    if not all(isinstance(name, str) for name in names):
        raise BadInput(
            f"key={shown(key)} is not a column's name; give the column or columns to join on: the data have"
            f" {listed(schema.names)}"
        )
    return names


def _layout(schema: pa.Schema, names: tuple[str, ...], page_size: int | str, fill: float, *, truncate: bool) -> Layout:
    size = parse_size(page_size, name="page_size")
    if size % _SECTOR:
        raise BadInput(f"page_size={page_size!r} is not a multiple of 4KiB; use 8KiB, say")
    if size > MOST_PAGE_SIZE:
        raise BadInput(f"page_size={page_size!r} is too large; a page has {format_size(MOST_PAGE_SIZE)} at most")
    if isinstance(fill, bool) or not isinstance(fill, int | float | np.number) or not 0 < fill <= 1:
        raise BadInput(f"fill={shown(fill)} is not a share of a page; use a number above 0 and up to 1")
    plain = plain_schema(schema)
    if len(set(names)) < len(names):
        raise BadInput(f"key={list(names)} names a column twice; name each once")
    if not names:
        raise BadInput("key names no column; give the column or columns to join on")
    for name in names:
        if name not in plain.names:
            raise BadInput(
                f"key names {name!r}, which the data does not have; its columns are {listed(plain.names, like=name)}"
            )
    plain = in_microseconds(plain, names, truncate=truncate)
    layout = Layout.of(plain, names, size, fill)
    needed = layout.overhead + layout.fixed
    if needed > size:
        # Nulls take an aligned bitmap a column. Texts come on top of what is known of a row by its types.
        beside = sum(column.width == 0 for column in layout.payload)
        size_for_all = -(-(needed + len(layout.payload) * ALIGNMENT) // _SECTOR) * _SECTOR
        raise BadInput(
            f"a row of {len(plain):,} columns needs {needed:,} bytes and a page has {size:,}; create the relation with"
            f" page_size={size_for_all} or more"
            + (f": the bytes of {beside:,} columns of text or binary come on top" if beside else "")
        )
    return layout


def _create_from_arrow(
    ranks: FrequencyRanks | None,
    root: Path,
    batches: Iterable[pa.RecordBatch],
    layout: Layout,
    shards: int,
    memory: int,
    null_keys: str,
    progress: Callable[[int], None],
) -> Manifest:
    scratch = root / "scratch"
    make_directory(scratch)
    sorter = (
        FrequencySorter(layout, shards, memory, scratch, null_keys, ranks)
        if ranks
        else ExternalSorter(layout, shards, memory, scratch, null_keys)
    )
    iterator = iter(batches)
    first = next(iterator, None)
    if first is not None:
        for table in batches_of(chain([first], iterator), first.schema, memory):
            # What may not be truncated has been refused: see `in_microseconds`.
            sorter.add(plain_table(table, layout.schema, truncate=True))
            progress(sorter.rows // 2)
    sorter.finish()
    if sorter.dropped:
        _log.info("dropped %s rows with a null key", f"{sorter.dropped:,}")
    facts, nulls = [], dict.fromkeys((c.name for c in layout.payload), 0)
    variable = {c.name: 0 for c in layout.payload if c.width == 0}
    written = 0
    for shard in range(shards):
        with ShardWriter(root, layout, shard, 1) as writer:
            for table in sorter.shard(shard):
                writer.write(table)
                written += table.num_rows
                progress((sorter.rows + written) // 2)
            facts.append(writer.close())
        for name, count in writer.builder.nulls.items():
            nulls[name] += count
        for name, count in writer.builder.variable_bytes.items():
            variable[name] += count
    remove_tree(scratch, errors=True)
    return Manifest(
        version=1,
        schema=layout.schema,
        key=layout.key,
        page_size=layout.page_size,
        fill=layout.fill,
        shards=facts,
        nulls=nulls,
        variable_bytes=variable,
        order=layout.order,
    )
