"""External sort: batches of any number in, sorted tables of one shard at a time out, in bounded memory.

Rows are collected into runs, each sorted by (shard, key) and, when they do not all fit in memory, spilled. Then the key range
is cut at splitters drawn from all runs so that a piece fits in memory; a piece takes one contiguous slice of every run,
found by binary search, sorts them together and hands them on. There is no heap and no loop over rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Int64s, UInt8s, UInt64s
from headrace.errors import BadInput
from headrace.files import map_regular, open_new
from headrace.kernels.hashing import shards_of
from headrace.relation.columns import NO_LONGS
from headrace.relation.keys import Keys, bounds, concat_keys
from headrace.relation.writer import Layout

_TABLE = 4 << 20  # bytes of input that are handled at a time, so that small batches cost little
_SAMPLES = 512  # keys sampled per run, at even steps, to choose splitters from


@dataclass
class _SortedRun:
    """A sorted run: rows of one shard, in memory or in a file."""

    rows: int
    bytes: int
    samples: Keys
    table: pa.Table | None
    file: Path | None

    def read(self) -> pa.Table:
        if self.table is not None:
            return self.table
        assert self.file is not None
        return pa.ipc.open_file(pa.py_buffer(map_regular(self.file))).read_all()


class ExternalSorter:
    """An external merge sort: collects rows with `add`, and returns each shard's rows in key order with `shard`.

    Parameters
    ----------
    memory
        Bytes it may hold: a run is a quarter of it, a merged piece an eighth.
    scratch
        A directory for spilled runs, on the disk that will hold the relation.
    """

    def __init__(self, layout: Layout, shards: int, memory: int, scratch: Path, null_keys: str) -> None:
        self.layout = layout
        self.codec = layout.codec  # of the sort key
        self.shards = shards
        self.memory = memory
        self.scratch = scratch
        self.null_keys = null_keys
        self.dropped = 0
        self.rows = 0
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._runs: list[list[_SortedRun]] = [[] for _ in range(shards)]
        self._spilled = False

    def add(self, table: pa.Table) -> None:
        """Add rows of the stored schema."""
        table = self._prepare(self._without_null_keys(table))
        self.rows += table.num_rows
        self._held.append(table)
        self._held_bytes += table.nbytes
        if self._held_bytes >= self.memory // 4:
            self._spilled = True
            self._sort_held()

    def finish(self) -> None:
        if self._held:
            self._sort_held()

    def shard(self, number: int) -> Iterator[pa.Table]:
        """Yield the rows of a shard, in order of the key and, among equal keys, of arrival."""
        runs = self._runs[number]
        if len(runs) <= 1:
            for run in runs:
                table = run.read()
                step = max(1, int(table.num_rows * self.memory / 16 / max(1, run.bytes)))
                for start in range(0, table.num_rows, step):
                    yield table.slice(start, step)
            return
        cuts, repeated = self._cuts(runs)
        starts = [bounds(self._keys(run.read()), cuts, repeated) for run in runs]
        for piece in range(starts[0].size - 1):
            yield from self._piece(runs, [s[piece : piece + 2] for s in starts])

    def _cuts(self, runs: list[_SortedRun]) -> tuple[Keys, UInt8s]:
        """Return splitters that cut the runs into pieces of about an eighth of memory, and which of them are repeated keys."""
        samples = concat_keys([run.samples for run in runs], self.codec)
        samples = samples.take(samples.argsort())
        total = sum(run.bytes for run in runs)
        pieces = max(1, -(-total * 8 // self.memory))
        at = np.unique(np.arange(1, pieces) * len(samples) // pieces)
        often = samples.repeats()
        cuts, often = samples.take(at), np.append(often[1:], np.uint8(0))[at] | often[at]
        distinct = np.flatnonzero(cuts.repeats() == 0) if len(cuts) else NO_LONGS
        return cuts.take(distinct), often[distinct]

    def _piece(self, runs: list[_SortedRun], spans: list[Int64s]) -> Iterator[pa.Table]:
        parts = [(run, int(a), int(b)) for run, (a, b) in zip(runs, spans, strict=True) if b > a]
        if not parts:
            return
        edges = [self._keys(run.read().take([a, b - 1])) for run, a, b in parts]
        if bool(concat_keys(edges, self.codec).repeats()[1:].all()):
            # The piece has one key, so there is nothing to sort, and it may be too large to hold. Each step maps its run anew,
            # so that what was read before does not stay in memory.
            for run, a, b in parts:
                step = max(1, int(run.rows * self.memory / 16 / max(1, run.bytes)))
                for start in range(a, b, step):
                    yield run.read().slice(start, min(step, b - start))
            return
        together = pa.concat_tables([run.read().slice(a, b - a) for run, a, b in parts])
        yield together.take(pa.array(self._keys(together).argsort()))

    def _keys(self, table: pa.Table) -> Keys:
        keys, _ = self.codec.encode([table.column(name) for name in self.codec.names])
        return keys

    def _prepare(self, table: pa.Table) -> pa.Table:
        """Add the columns of the sort key to rows."""
        return table

    def _hashes(self, table: pa.Table, keys: Keys) -> UInt64s:
        """Return the hashes that determine the shards: those of the relation's key, whatever the sort key is."""
        return keys.hashes()

    def _sort_held(self) -> None:
        table = pa.concat_tables(self._held).combine_chunks()
        self._held, self._held_bytes = [], 0
        pa.default_memory_pool().release_unused()
        keys = self._keys(table)
        shard = np.zeros(len(keys), np.int32)
        if self.shards > 1:
            shards_of(self._hashes(table, keys), self.shards, shard)
        for number in range(self.shards):
            rows = np.flatnonzero(shard == number) if self.shards > 1 else np.arange(len(keys))
            if rows.size == 0:
                continue
            order = rows[keys.take(rows).argsort() if self.shards > 1 else keys.argsort()]
            self._runs[number].append(self._keep(table.take(pa.array(order)), number))

    def _keep(self, table: pa.Table, number: int) -> _SortedRun:
        at = np.unique(np.linspace(0, table.num_rows - 1, _SAMPLES).astype(np.int64))
        samples = self._keys(table.take(pa.array(at)))
        if not self._spilled:
            return _SortedRun(table.num_rows, table.nbytes, samples, table, None)
        file = self.scratch / f"run-{number:04d}-{len(self._runs[number]):06d}.arrow"
        with open_new(file) as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return _SortedRun(table.num_rows, table.nbytes, samples, None, file)

    def _without_null_keys(self, table: pa.Table) -> pa.Table:
        for name in self.layout.key:
            column = table.column(name)
            if column.null_count == 0:
                continue
            if self.null_keys == "refuse":
                raise BadInput(
                    f"key column {name!r} holds {column.null_count:,} null(s), and a null key matches nothing; filter them"
                    " out, or pass null_keys='drop'"
                )
            self.dropped += column.null_count
            table = table.filter(pc.is_valid(column))
        return table


def batches_of(reader: Iterable[pa.RecordBatch], schema: pa.Schema, memory: int) -> Iterator[pa.Table]:
    """Combine record batches into tables of some megabytes."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in reader:
        held.append(batch)
        size += _bytes_of(batch)
        if size >= min(_TABLE, memory // 16):
            yield pa.Table.from_batches(held, schema)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held, schema)


def _bytes_of(batch: pa.RecordBatch) -> int:
    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:
        # Of views an older pyarrow knows only the whole buffers, which may be more than a slice has.
        return int(batch.get_total_buffer_size())
