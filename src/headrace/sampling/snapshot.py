"""Snapshots of samplers and joins: record batches with a name and bytes, a part of the state each, so that none is large.

what     the words of the object's repr, which `restore` compares
array    an array of the state, with its type: "array tags int64"
rows     an Arrow stream of some of the rows
side     the parts that follow are those of a side of a join
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray
from headrace.errors import BadInput, shown

#: The schema of all snapshots.
SNAPSHOT = pa.schema({"name": pa.string(), "data": pa.large_binary()})
_WHAT, _ARRAY, _ROWS, _SIDE = "what", "array", "rows", "side"

Parts = Iterator[pa.RecordBatch]


def write_snapshot(what: str, arrays: Mapping[str, AnyArray], rows: Iterable[pa.RecordBatch] = ()) -> Parts:
    """Give the parts of a snapshot: what it is of, in words that `SnapshotReader` compares; the arrays; and the rows."""
    yield _part(_WHAT, what.encode())
    for name, array in arrays.items():
        yield _part(f"{_ARRAY} {name} {array.dtype}", array.tobytes())
    for batch in rows:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield _part(_ROWS, sink.getvalue())


def write_side(name: str, parts: Parts) -> Parts:
    """Give the parts of one side of a join."""
    yield _part(_SIDE, name.encode())
    yield from parts


def _part(name: str, data: bytes | pa.Buffer) -> pa.RecordBatch:
    values = pa.array([data], pa.large_binary()) if isinstance(data, bytes) else _one_value(data)
    return pa.RecordBatch.from_arrays([pa.array([name]), values], schema=SNAPSHOT)


def _one_value(data: pa.Buffer) -> pa.Array:
    """An array of one value, without a copy of it."""
    offsets = pa.py_buffer(np.array([0, data.size], np.int64))
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, [None, offsets, data])


class SnapshotReader:
    """Reads the parts of a snapshot, in the order in which they were written.

    Parameters
    ----------
    parts
        The record batches that `snapshot()` gave; they may have been put together, or divided.
    """

    def __init__(self, parts: Iterable[pa.RecordBatch]) -> None:
        self._parts = ((name.as_py(), data) for batch in parts for name, data in _columns(batch))
        self._next = next(self._parts, None)

    def check(self, what: str) -> None:
        """Refuse a snapshot of something else."""
        found = self._take(_WHAT)
        if found is None:
            raise BadInput(
                "these are not the parts of a snapshot in their order; give the batches that snapshot() made"
            )
        if found != what.encode():
            raise BadInput(
                f"the snapshot is of {found.decode()}, and this is {what}; restore it into an object made in the same way"
            )

    def arrays(self) -> dict[str, AnyArray]:
        """The arrays that come next."""
        out: dict[str, AnyArray] = {}
        while self._next is not None and self._next[0].startswith(f"{_ARRAY} "):
            _, name, dtype = self._next[0].split(" ")
            out[name] = np.frombuffer(self._next[1].as_buffer(), dtype).copy()  # a state changes
            self._next = next(self._parts, None)
        return out

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows that come next."""
        while self._next is not None and self._next[0] == _ROWS:
            data = self._next[1].as_buffer()
            self._next = next(self._parts, None)  # before anybody stops reading
            yield from pa.ipc.open_stream(data)

    def side(self) -> str | None:
        """The name of the side whose parts come next; None at the end."""
        found = self._take(_SIDE)
        return None if found is None else found.decode()

    def _take(self, name: str) -> bytes | None:
        """The data of the next part, if it has this name."""
        if self._next is None or self._next[0] != name:
            return None
        data: bytes = self._next[1].as_py()
        self._next = next(self._parts, None)
        return data


def _columns(batch: pa.RecordBatch) -> Iterable[tuple[pa.Scalar, pa.Scalar]]:
    if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(SNAPSHOT):
        raise BadInput(
            f"{shown(type(batch).__name__)} is not a part of a snapshot; give the record batches that snapshot() made"
        )
    return zip(*batch.columns, strict=True)
