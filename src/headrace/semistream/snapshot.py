"""What an operator knows between two batches, as arrays: to write down, and to start warm from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import BadInput
from headrace.relation.columns import Column
from headrace.relation.keys import ByteKeys, IntKeys, Keys
from headrace.relation.store import TupleSources
from headrace.semistream.adaptive.hot_set import KeyedStore

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Snapshot:
    """State of one operator over one version of one relation. Arrays only: `headrace.relation.sidecar` writes them."""

    operator: str
    relation: str
    version: int
    columns: tuple[str, ...]
    arrays: Arrays

    def check(self, other: Snapshot) -> None:
        """Refuse to restore into an operator that this is not a snapshot of."""
        for name in ("operator", "relation", "version", "columns"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise BadInput(f"the snapshot is of {name} {mine!r}, and this operator has {name} {theirs!r}")


def dump_store(store: KeyedStore, prefix: str) -> Arrays:
    """The entries of a store, trimmed to what is used."""
    keys, (first, many) = store.keys().buffers(), store.places()
    stop = int(keys.offsets[-1]) if keys.offsets.size else keys.values.size
    arrays: Arrays = {"keys": keys.values[:stop], "key_offsets": keys.offsets, "first": first, "many": many}
    for i in range(len(store.tuples.columns)):
        buffers = store.tuples.buffers(i)
        arrays |= {f"{i}.values": buffers.values, f"{i}.offsets": buffers.offsets, f"{i}.valid": buffers.valid}
    return {f"{prefix}.{name}": array.copy() for name, array in arrays.items()}


def load_store(columns: Sequence[Column], integer: bool, arrays: Arrays, prefix: str) -> KeyedStore:
    """A store of exactly what `dump_store` wrote."""
    part = {name.removeprefix(f"{prefix}."): a for name, a in arrays.items() if name.startswith(f"{prefix}.")}
    keys: Keys = IntKeys(part["keys"].view(np.int64)) if integer else ByteKeys(part["keys"], part["key_offsets"])
    data = {c.name: part[f"{i}.values"].size for i, c in enumerate(columns) if c.width == 0} | {"": part["keys"].size}
    rows = int((part["first"] + part["many"]).max(initial=0))
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
