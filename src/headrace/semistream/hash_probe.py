"""Stream tuples enter H, and pages of R probe it: the part that the MESHJOIN and HYBRIDJOIN families share. [MESH] §3.1

stream buffer --take_in--> H <--probe-- pages in the disk buffer
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s, UInt8s, UInt64s
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.relation.columns import NO_BYTES
from headrace.relation.keys import Keys
from headrace.relation.reader import PageReader, key_column, stored_keys
from headrace.semistream.input_buffer import InputBuffer
from headrace.semistream.join_key import JoinKey, TupleColumns
from headrace.semistream.result_emitter import ResultEmitter
from headrace.semistream.waiting_store import HashWindow

_PIECE = 1 << 14  # stream tuples that enter H together: what is made of them on the way is small beside H


class HashProbe:
    """Moves tuples from the stream buffer to H, and joins pages that are in memory with the tuples in H.

    Parameters
    ----------
    relation, key
        R, and the columns that must be equal.
    stream, H, results
        The parts that tuples go through.
    leave_at_once
        Called with a batch, its numbers and the rows that can match nothing, because of a null; gives their results.
    """

    def __init__(
        self,
        *,
        relation: Relation,
        key: JoinKey,
        stream: InputBuffer,
        H: HashWindow,
        results: ResultEmitter,
        leave_at_once: Callable[[pa.RecordBatch, Int64s, Int64s], Iterator[pa.RecordBatch]],
    ) -> None:
        self._relation, self._key = relation, key
        self._stream, self._H, self._results = stream, H, results
        self._leave_at_once = leave_at_once
        named = () if key.is_key else key.relation
        if H.matching:
            named = (*named, *H.matching.condition.right_columns)
            H.matching.test_room = int(results.rows * H.matching.pair_bytes)
        # Columns that are read of tuples of R, beside the stored key
        self._columns = relation.payload([name for name in named if name not in relation.key])

    # -- stream tuples ---------------------------------------------------------------------------------------------------

    def take_in(self, count: int, entered: list[tuple[Int32s, UInt64s]] | None = None) -> Iterator[pa.RecordBatch]:
        """Move up to so many tuples from the stream buffer to H. Tuples with a null in the key leave at once.

        `entered` collects slots and hashes of the tuples that are in H now.
        """
        count = min(count, self._stream.rows, self._H.room)
        for done in range(0, count, _PIECE):
            taken, numbers, times = self._stream.take(min(_PIECE, count - done))
            hashes, valid = self._hashed(taken, numbers)
            self._relation.disk.spend({"c_S": numbers.size, "c_A": numbers.size})
            nulls = np.flatnonzero(valid == 0)
            if nulls.size:
                yield from self._leave_at_once(taken, numbers, nulls)
                there = np.flatnonzero(valid)
                taken, numbers, hashes, times = taken.take(pa.array(there)), numbers[there], hashes[there], times[there]
            slots = self._H.enter(taken, hashes, numbers, times)
            if entered is not None:
                entered.append((slots, hashes))

    def _hashed(self, taken: pa.RecordBatch, numbers: Int64s) -> tuple[UInt64s, UInt8s]:
        """Hashes of tuples, and 1 for those without a null in the key or for the condition (empty: all)."""
        if self._key.hashed:
            keys, valid = self._key.of_stream(taken)
            hashes = keys.hashes()
            self._stream.count_keys(hashes)
        else:  # nothing is looked up in H, which serves as the queue alone
            hashes, valid = numbers.astype(np.uint64), NO_BYTES
        if self._H.matching:
            there = self._H.matching.take(taken, int(numbers[0]))
            valid = valid & there if valid.size else there
        return hashes, valid

    # -- pages -----------------------------------------------------------------------------------------------------------

    def probe(
        self, reader: PageReader, addresses: Int64s, stats: JoinStats, met: list[Int32s] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Join the pages at these addresses with all that waits. `met` collects the slots of tuples that match."""
        if not addresses.size or not self._H.used:
            return
        keys, at, row = self.tuples_of(reader, addresses)
        stats.probes += len(keys)
        self._relation.disk.spend({"c_H": len(keys)})
        for r, slots in self._pairs(keys):
            if met is not None:
                met.append(slots)
            yield from self._results.found(slots, at[r], row[r])

    def tuples_of(self, reader: PageReader, addresses: Int64s) -> tuple[Keys, Int64s, Int32s]:
        """Key, page address and row of every tuple in some pages, which the condition compares from now on.

        The key is what is joined on; tuples with a null in it match nothing, and are left out.
        """
        matching, codec = self._H.matching, self._relation.codec
        store, at, row = reader.tuples(addresses, (key_column(codec), *self._columns))
        stored = stored_keys(store, codec.integer)
        columns = TupleColumns(
            self._relation, stored, {c.name: store.array(i + 1) for i, c in enumerate(self._columns)}
        )
        keys, valid = self._key.of_relation(stored, columns.column) if self._key.hashed else (stored, NO_BYTES)
        if valid.size:
            there = np.flatnonzero(valid)
            columns.keep(there)
            keys, at, row = keys.take(there), at[there], row[there]
        if matching:
            matching.look_at({name: columns.column(name) for name in matching.condition.right_columns})
        return keys, at, row

    def _pairs(self, keys: Keys) -> Iterator[tuple[Int32s, Int32s]]:
        """KeyPages of a tuple of R, given by its key, and the slot of a waiting tuple that match; a bounded number at a time."""
        matching, most = self._H.matching, self._results.rows
        if matching and not self._key.hashed:
            yield from matching.pairs(self._H, most)
            return
        hashes, stop = keys.hashes(), np.array([0, -1])
        while stop[0] < hashes.size:
            number, slots = np.empty(most, np.int32), np.empty(most, np.int32)
            n = self._H.probe(hashes, stop, number, slots)
            r, slots = self.equal(keys, number[:n], slots[:n])
            if matching:
                r, slots = matching.kept(r, slots)
            if r.size:
                yield r, slots

    def equal(self, keys: Keys, r: Int32s, slots: Int32s) -> tuple[Int32s, Int32s]:
        """Those pairs whose keys are equal. Hashes of integers are one to one; texts with one hash may differ."""
        if self._key.codec.integer or not r.size:
            return r, slots
        mine, _ = self._key.of_stream(self._H.some_columns(self._key.stream, slots))
        same = mine.equal_at(keys.take(r), np.arange(r.size, dtype=np.int32))  # type: ignore[arg-type]
        return r[same], slots[same]
