"""Creation of a relation from data of any kind, in a directory that gets its final name last."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from headrace.errors import BadInput, choice
from headrace.files import sync_directory
from headrace.paths import local_path
from headrace.relation.columns import in_microseconds, plain_schema, plain_table
from headrace.relation.disk import Disk
from headrace.relation.frequency_order import FrequencyRanks, FrequencySorter
from headrace.relation.manifest import UNFINISHED, Manifest, commit, directory_at, drafts, versions, writing
from headrace.relation.reader import Version
from headrace.relation.sorter import ExternalSorter, batches_of
from headrace.relation.writer import Layout, ShardWriter
from headrace.units import parse_size

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

Progress = Callable[[int, int | None], None]

_SECTOR = 4096  # bytes; O_DIRECT needs reads of whole sectors
_AT_FDCWD = -100  # renameat2: paths are relative to the working directory
_NO_REPLACE, _EXCHANGE = 1, 2  # flags of renameat2


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
    choice("null_keys", null_keys, ("refuse", "drop"))
    truncate = choice("nanoseconds", nanoseconds, ("refuse", "truncate")) == "truncate"
    if root.exists():
        if not overwrite:
            raise BadInput(f"{root} exists; pass overwrite=True to replace it, or choose another path")
        versions(root)  # refuses to replace anything but a relation
    notes: dict[str, Any] = {}
    if hasattr(data, "snapshot"):  # hr.postgresql or hr.delta, whose version is noted in the manifest
        data, notes = data.snapshot()
    if shards < 1:
        raise BadInput(f"shards={shards} is not possible; a relation has 1 shard or more")
    schema, batches, total = source_of(data)
    layout = _layout(schema, key, page_size, fill, truncate=truncate)
    ranks = _frequency_ranks(order, frequencies, layout, spark=_is_spark(data))
    if ranks:
        layout = replace(layout, order="frequency")
    fill_directory: Callable[..., Manifest] = partial(_create_from_arrow, ranks)
    if _is_spark(data):
        from headrace.relation.spark_create import create_from_spark as fill_directory
    root.parent.mkdir(parents=True, exist_ok=True)
    for left in drafts(root):
        _remove_if_dead(left)
    draft = root.with_name(f"{root.name}{UNFINISHED}{os.getpid()}-{uuid.uuid4().hex[:8]}")
    draft.mkdir()
    try:
        manifest = fill_directory(
            draft,
            batches,
            layout,
            shards,
            parse_size(memory),
            null_keys,
            (lambda done: progress(done, total)) if progress else (lambda done: None),
        )
        manifest.notes.update(notes)
        commit(draft, manifest)
        with closing(Version(draft, manifest, Disk())) as made:  # before it takes the place of one that is sound
            made.check_sidecars()
        if overwrite and root.exists():
            _replace(draft, root)
        else:
            _rename(draft, root, _NO_REPLACE)
        sync_directory(root.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


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
                _rename(draft, root, _EXCHANGE)
                return


def _rename(draft: Path, root: Path, how: int) -> None:
    """Rename atomically: to a free name, or by exchanging the two directories, so that one of them is always there."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(draft), _AT_FDCWD, os.fsencode(root), how) == 0:
        return
    code = ctypes.get_errno()
    if code == errno.EEXIST:
        raise BadInput(f"{root} was created meanwhile; pass overwrite=True to replace it, or choose another path")
    raise OSError(code, f"{root} cannot be given its name in one step: {os.strerror(code)}")


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


def _is_spark(data: Any) -> bool:
    return hasattr(data, "sparkSession")


def _layout(
    schema: pa.Schema, key: str | Sequence[str], page_size: int | str, fill: float, *, truncate: bool
) -> Layout:
    names = (key,) if isinstance(key, str) else tuple(key)
    size = parse_size(page_size)
    if size % _SECTOR:
        raise BadInput(f"page_size={page_size!r} is not a multiple of 4KiB; use 8KiB, say")
    if not 0 < fill <= 1:
        raise BadInput(f"fill={fill} is not a share of a page; use a number above 0 and up to 1")
    plain = plain_schema(schema)
    if len(set(names)) < len(names):
        raise BadInput(f"key={list(names)} names a column twice; name each once")
    if not names:
        raise BadInput("key names no column; give the column or columns to join on")
    for name in names:
        if name not in plain.names:
            raise BadInput(
                f"key names {name!r}, which the data does not have; its columns are {', '.join(plain.names)}"
            )
    plain = in_microseconds(plain, names, truncate=truncate)
    layout = Layout.of(plain, names, size, fill)
    if layout.overhead + layout.fixed > size:
        raise BadInput(
            f"a row of {len(plain)} columns needs {layout.overhead + layout.fixed:,} bytes and a page has {size:,}; use a"
            " larger page_size"
        )
    return layout


def source_of(data: Any) -> tuple[pa.Schema, Any, int | None]:
    """Return the schema, the batches (or the Spark DataFrame itself) and, where known, the number of rows."""
    from pyarrow import dataset  # imports pandas, 45 MiB, which workers that create no relation can do without

    if _is_spark(data):
        from headrace.relation.spark_create import arrow_schema

        return arrow_schema(data), data, None
    if isinstance(data, str | Path):
        data = local_path(data, "data")
        if not data.exists():
            raise BadInput(f"there are no data at {data}; expected a Parquet file or a directory of such")
        data = dataset.dataset(data, format="parquet", partitioning="hive")
    elif type(data).__module__.split(".")[0] == "pandas":
        data = pa.Table.from_pandas(data, preserve_index=False)
    if isinstance(data, dataset.Dataset):
        return data.schema, _dataset_batches(data), data.count_rows()
    if isinstance(data, pa.Table):
        return data.schema, data.to_batches(max_chunksize=1 << 20), data.num_rows
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, data, None
    raise BadInput(
        f"data is a {type(data).__name__}; expected a Spark DataFrame, a pyarrow Table, RecordBatchReader or Dataset, a pandas"
        " frame, or the path of Parquet files"
    )


def _dataset_batches(data: Dataset) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a dataset with as little read-ahead as possible."""
    from pyarrow.dataset import ParquetFileFragment

    try:
        fragments = list(data.get_fragments())
    except ValueError:  # a filtered dataset has no fragments; only the scanner can read it
        yield from data.to_batches(batch_size=1 << 16, batch_readahead=1, fragment_readahead=1)
        return
    for fragment in fragments:
        plain = isinstance(fragment, ParquetFileFragment)
        if plain and fragment.physical_schema.equals(data.schema):
            # The scanner decodes row groups ahead, several hundred MB of them; this reader does not.
            with fragment.open() as source:
                reader = pyarrow.parquet.ParquetFile(source, pre_buffer=False)
                yield from reader.iter_batches(batch_size=1 << 16)
        else:
            yield from fragment.to_batches(
                schema=data.schema, batch_size=1 << 16, batch_readahead=1, fragment_readahead=1
            )


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
    scratch.mkdir()
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
    facts, nulls = [], dict.fromkeys((c.name for c in layout.payload), 0)
    variable = {c.name: 0 for c in layout.payload if c.width == 0}
    written = 0
    for shard in range(shards):
        writer = ShardWriter(root, layout, shard, 1)
        for table in sorter.shard(shard):
            writer.write(table)
            written += table.num_rows
            progress((sorter.rows + written) // 2)
        facts.append(writer.close())
        for name, count in writer.builder.nulls.items():
            nulls[name] += count
        for name, count in writer.builder.variable_bytes.items():
            variable[name] += count
    shutil.rmtree(scratch)
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


def _remove_if_dead(draft: Path) -> None:
    """Remove the directory of an unfinished create, unless its process still runs."""
    pid = draft.name.split(UNFINISHED, 1)[1].split("-", 1)[0]
    if not (pid.isdigit() and Path(f"/proc/{pid}").exists()):
        shutil.rmtree(draft, ignore_errors=True)
