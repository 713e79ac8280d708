"""KeyedStore: tuples by key in arrays of fixed size, in memory of a process or in shared memory. (DESIGN D5)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.arrays import AnyArray, Int32s, Int64s, UInt8s, UInt64s
from headrace.kernels.store import TAIL, table_insert
from headrace.relation.columns import Column, address
from headrace.relation.keys import ByteKeys, IntKeys, Keys
from headrace.relation.store import ArrayAllocator, StoreFull, TupleSources, TupleStore

Arrays = dict[str, AnyArray]
Records = np.ndarray[Any, np.dtype[np.void]]

_LOAD = 0.75  # share of the hash table's slots in use when the store is full: probes stay short
_SLOT_BYTES = 8  # of a slot of the hash table
#: Bytes of an entry besides its key and tuples: position and number of its tuples, and its slots of the hash table.
ENTRY_BYTES = 8 + int(_SLOT_BYTES / _LOAD)


class KeyedStore:
    """A hash table from keys to their tuples. A key with no tuples is known to be absent from the relation.

    Parameters
    ----------
    columns
        The columns of a tuple that are kept.
    entries, rows
        How many keys and how many tuples there is room for.
    data
        Bytes for each variable column by name, and for the keys under "".
    integer
        Whether keys are 64-bit integers; else they are byte strings.
    room
        The memory that the arrays lie in; memory of their own by default.
    fresh
        Whether to start empty. If not, the room holds a store already, and `attach` sets how full it is.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        entries: int,
        rows: int,
        data: dict[str, int],
        integer: bool,
        room: ArrayAllocator | None = None,
        *,
        fresh: bool = True,
    ) -> None:
        room = room or ArrayAllocator()
        self.tuples = TupleStore(columns, rows, data, room)
        self.entries = entries
        self.integer = integer
        self.used = 0
        self._key_bytes = 0
        self._keys = room.take(8 * entries if integer else data[""], np.uint8)
        self._key_offsets = room.take(0 if integer else entries + 1, np.uint32)
        self._key_offsets[:1] = 0
        self._first = room.take(entries, np.int32)
        self._many = room.take(entries, np.int32)
        self._table = room.take(_slots(entries), np.int64)
        if fresh:
            self._table.fill(-1)

    @staticmethod
    def size(columns: Sequence[Column], entries: int, rows: int, data: dict[str, int], integer: bool) -> int:
        """Bytes of a store with this much room."""
        keys = 8 * entries if integer else data[""] + 4 * entries
        return TupleStore.size(columns, rows, data) + keys + 8 * entries + _SLOT_BYTES * _slots(entries)

    @staticmethod
    def arrays(columns: Sequence[Column]) -> int:
        """How many arrays a store has: each may lose a few bytes to alignment in a given piece of memory."""
        return 3 * len(columns) + 5

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self._keys, self._key_offsets, self._first, self._many, self._table)
        return self.tuples.nbytes + sum(array.nbytes for array in arrays)

    @staticmethod
    def state_type(columns: int) -> np.dtype[np.void]:
        """The record that describes a store of so many columns: every field is a 64-bit integer."""
        column = np.dtype([("room", np.int64), ("used", np.int64)])
        sizes = [(name, np.int64) for name in ("entries", "rows", "key_room", "used", "key_bytes", "tuples")]
        return np.dtype([*sizes, ("columns", column, (columns,))])

    def state(self) -> Records:
        """The store's sizes and how far it is filled, as one record. With the store's memory it is all that `attach` needs."""
        tuples = self.tuples
        state = np.zeros(1, self.state_type(len(tuples.columns)))
        state["entries"], state["rows"], state["key_room"] = self.entries, tuples.rows, self._keys.size
        state["used"], state["key_bytes"], state["tuples"] = self.used, self._key_bytes, tuples.used
        state["columns"]["room"], state["columns"]["used"] = tuples.room_for_data(), tuples.mark()[1]
        return state

    @classmethod
    def attach(cls, columns: Sequence[Column], integer: bool, memory: UInt8s, state: Records) -> KeyedStore:
        """Open the store that some process made in this memory, from the record of its state."""
        of = {name: int(state[name][0]) for name in ("entries", "rows", "key_room", "used", "key_bytes", "tuples")}
        room, filled = (state["columns"][name][0].tolist() for name in ("room", "used"))
        data = {c.name: room[i] for i, c in enumerate(columns) if c.width == 0} | {"": of["key_room"]}
        store = cls(columns, of["entries"], of["rows"], data, integer, ArrayAllocator(memory), fresh=False)
        store.tuples.rewind((of["tuples"], filled))
        store.used, store._key_bytes = of["used"], of["key_bytes"]
        return store

    def clear(self) -> None:
        """Forget every entry."""
        self.used = 0
        self._key_bytes = 0
        self.tuples.clear()
        self._table.fill(-1)

    def insert(self, keys: Keys, hashes: UInt64s, first: Int32s, many: Int32s) -> None:
        """Add keys, each with the position of its first tuple and the number of its tuples."""
        n = hashes.size
        if self.used + n > self.entries:
            raise StoreFull
        buffers = keys.buffers()
        if self.integer:
            self._keys.view(np.int64)[self.used : self.used + n] = buffers.values.view(np.int64)
        else:
            start, stop = int(buffers.offsets[0]), int(buffers.offsets[-1])
            if self._key_bytes + stop - start > self._keys.size:
                raise StoreFull
            self._keys[self._key_bytes : self._key_bytes + stop - start] = buffers.values[start:stop]
            self._key_offsets[self.used : self.used + n + 1] = buffers.offsets - start + self._key_bytes
            self._key_bytes += stop - start
        self._first[self.used : self.used + n] = first
        self._many[self.used : self.used + n] = many
        table_insert(self._table, hashes, self.used)
        self.used += n

    @property
    def description(self) -> list[int]:
        """What a search in several stores knows of this one: its addresses and the size of its hash table."""
        arrays = (self._table, self._keys, self._key_offsets, self._first, self._many)
        return [*(address(array) if array.size else 0 for array in arrays), self._table.size]

    def keys(self) -> Keys:
        """The keys of all entries, in the order they were added."""
        if self.integer:
            return IntKeys(self._keys.view(np.int64)[: self.used])
        return ByteKeys(self._keys, self._key_offsets[: self.used + 1].astype(np.int64))

    def places(self) -> tuple[Int32s, Int32s]:
        """Position of the first tuple, and number of tuples, of every entry."""
        return self._first[: self.used], self._many[: self.used]

    def entry_bytes(self) -> Int64s:
        """Bytes that each entry takes, with its share of the hash table."""
        out = self.tuples.sizes(*self.places())
        out += ENTRY_BYTES + (8 if self.integer else 4)
        if not self.integer:
            out += np.diff(self._key_offsets[: self.used + 1])
        return out


def _slots(entries: int) -> int:
    return int(entries / _LOAD) + 2 + TAIL


# -- snapshots -----------------------------------------------------------------------------------------------------------


def dump_store(store: KeyedStore, prefix: str) -> Arrays:
    """Copies of the arrays of a store, trimmed to what is used, with names that begin with the prefix."""
    keys, (first, many) = store.keys().buffers(), store.places()
    stop = int(keys.offsets[-1]) if keys.offsets.size else keys.values.size
    arrays: Arrays = {"keys": keys.values[:stop], "key_offsets": keys.offsets, "first": first, "many": many}
    arrays["rows"] = np.array([store.tuples.used])
    for i in range(len(store.tuples.columns)):
        buffers = store.tuples.buffers(i)
        arrays |= {f"{i}.values": buffers.values, f"{i}.offsets": buffers.offsets, f"{i}.valid": buffers.valid}
    return {f"{prefix}.{name}": array.copy() for name, array in arrays.items()}


def load_store(columns: Sequence[Column], integer: bool, arrays: Arrays, prefix: str) -> KeyedStore:
    """A store with room for exactly the entries that `dump_store` copied."""
    part = {name.removeprefix(f"{prefix}."): a for name, a in arrays.items() if name.startswith(f"{prefix}.")}
    keys: Keys = IntKeys(part["keys"].view(np.int64)) if integer else ByteKeys(part["keys"], part["key_offsets"])
    data = {c.name: part[f"{i}.values"].size for i, c in enumerate(columns) if c.width == 0} | {"": part["keys"].size}
    rows = int(part["rows"][0])  # more than the entries have, where some keys that were fetched got no entry
    store = KeyedStore(columns, len(keys), rows, data, integer)
    for i in range(len(columns)):
        store.tuples.fill(i, part[f"{i}.values"], part[f"{i}.offsets"], part[f"{i}.valid"])
    store.tuples.used = rows
    store.insert(keys, keys.hashes(), part["first"], part["many"])
    return store


def refill(target: KeyedStore, source: KeyedStore) -> None:
    """Copy all entries of one store to another that has room for them."""
    rows = source.tuples.used
    target.tuples.append_from(TupleSources([source.tuples]), np.zeros(rows, np.int32), np.arange(rows, dtype=np.int32))
    keys = source.keys()
    target.insert(keys, keys.hashes(), *source.places())
