"""Storage by frequency: ranks of keys, given or measured, and a sorter that sorts rows by them. [XHJ] §4.1

Rows are sorted by (rank of the key's frequency, key) and cut into pages in that order, so that the first pages hold what the
stream asks for most. Within a page rows are in key order, as in any page.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Int32s, Int64s, UInt64s
from headrace.errors import BadInput
from headrace.relation.input_data import refuse_index, table_of
from headrace.relation.keys import KeyCodec, Keys, positions
from headrace.relation.reader import SecondaryIndex, Version
from headrace.relation.sorter import ExternalSorter
from headrace.relation.writer import Layout

_RANK = "\0rank"  # a column name that no user's table has


class Ranks(Protocol):
    """Ranks of keys; those of the lowest rank are stored first."""

    def rank(self, keys: Keys) -> Int64s:
        """Return the rank of each key, from 0 to below 2**31."""
        ...


class KeyCounts(Protocol):
    """How often a stream asked for keys, as joins measure it. `headrace.relation.Sketch` is one."""

    def estimate(self, hashes: UInt64s) -> Int32s:
        """Return the count of each key, given by its hash."""
        ...


class CountedRanks:
    """The ranks of keys by how often they were counted, most often first.

    Parameters
    ----------
    counts
        What a join has measured.
    """

    def __init__(self, counts: KeyCounts) -> None:
        self._counts = counts

    def rank(self, keys: Keys) -> Int64s:
        """Return the rank of each key; keys that were not counted come last."""
        return np.int64(np.iinfo(np.int32).max) - self._counts.estimate(keys.hashes())


class RanksFromNow:
    """Ranks that leave keys of equal popularity in the order they have: by the page that they lie in now, and then by key.

    Parameters
    ----------
    version
        The version whose order is kept.
    ranks
        The popularity that comes first; None where the order stays as it is.
    """

    def __init__(self, version: Version, ranks: Ranks | None) -> None:
        self._version, self._ranks = version, ranks

    def rank(self, keys: Keys) -> Int64s:
        """Return the rank of each key."""
        page = np.zeros(len(keys), np.int64)
        shards = self._version.shards_of(keys.hashes())
        for number, index in enumerate(self._version.indexes):
            if isinstance(index, SecondaryIndex):
                mine = np.flatnonzero(shards == number)
                mine = mine[keys.take(mine).argsort()]
                page[mine] = index.locate(keys.take(mine))[0]
        return page if self._ranks is None else (self._ranks.rank(keys) << 32) + page


class FrequencyRanks:
    """The ranks of keys by frequency: 0 is the most frequent, and equal frequencies have the same rank.

    Parameters
    ----------
    frequencies
        A table in any of the forms that `Relation.create` takes: the key columns, and "frequency", a number. It is held
        in memory.
    codec
        The codec of the relation's key.
    """

    def __init__(self, frequencies: Any, codec: KeyCodec) -> None:
        table = _table(frequencies, codec)
        frequency = np.asarray(table.column("frequency").cast(pa.float64()))
        keys, valid = codec.encode([table.column(name) for name in codec.names])
        if valid.size:  # a relation has no null keys
            there = np.flatnonzero(valid)
            keys, frequency = keys.take(there), frequency[there]
        order = keys.argsort()
        self._keys = keys.take(order)
        twice = np.flatnonzero(self._keys.repeats())
        if twice.size:
            value = codec.shown(self._keys.take(twice[:1]))
            raise BadInput(f"frequencies has key {value} more than once; give each key once, with its whole frequency")
        distinct, rank = np.unique(-frequency[order], return_inverse=True)
        self._rank = rank.astype(np.int64)
        self._last = distinct.size

    def rank(self, keys: Keys) -> Int64s:
        """Return the rank of each key; keys without a frequency come last."""
        order = keys.argsort()
        at, known = positions(keys.take(order), self._keys)
        out = np.full(len(keys), self._last, np.int64)
        out[order[known]] = self._rank[at[known]]
        return out


def _table(frequencies: Any, codec: KeyCodec) -> pa.Table:
    refuse_index(frequencies, codec.names, "frequencies: ")
    frequencies = table_of(frequencies, "frequencies")
    for name in (*codec.names, "frequency"):
        if frequencies.schema.names.count(name) != 1:
            raise BadInput(
                f"frequencies has {'no' if name not in frequencies.schema.names else 'more than one'} column {name!r}; expected"
                f" {', '.join(codec.names)} and frequency, got {', '.join(frequencies.schema.names)}"
            )
    codec.check([frequencies.schema.field(name) for name in codec.names])
    frequency = frequencies.column("frequency")
    if not (pa.types.is_integer(frequency.type) or pa.types.is_floating(frequency.type)):
        raise BadInput(f"frequencies has 'frequency' of type {frequency.type}; expected a number")
    sound = pc.and_(pc.is_valid(frequency), pc.greater_equal(frequency, 0)).fill_null(False)
    if not pc.all(sound, min_count=0).as_py():
        wrong = frequency.filter(pc.invert(sound))[0].as_py()
        raise BadInput(f"frequencies has a frequency of {wrong}; expected numbers from 0 up, and none missing")
    return frequencies


class FrequencySorter(ExternalSorter):
    """An external sorter that sorts by rank and then by key. Shards depend on the key alone."""

    def __init__(self, layout: Layout, shards: int, memory: int, scratch: Path, null_keys: str, ranks: Ranks) -> None:
        super().__init__(layout, shards, memory, scratch, null_keys)
        self._ranks = ranks
        self.codec = KeyCodec((_RANK, *layout.codec.names), (pa.int64(), *layout.codec.types))

    def shard(self, number: int) -> Iterator[pa.Table]:
        """Yield the rows of a shard, the most frequent keys first."""
        for table in super().shard(number):
            yield table.drop_columns([_RANK])

    def _prepare(self, table: pa.Table) -> pa.Table:
        return table.append_column(_RANK, pa.array(self._ranks.rank(self._own(table))))

    def _hashes(self, table: pa.Table, keys: Keys) -> UInt64s:
        return self._own(table).hashes()

    def _own(self, table: pa.Table) -> Keys:
        return self.layout.codec.encode([table.column(name) for name in self.layout.codec.names])[0]
