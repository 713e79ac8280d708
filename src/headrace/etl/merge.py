"""A merge of two tables of any size in key order, which finds rows that are inserted, deleted and updated."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import BadInput
from headrace.relation.keys import KeyCodec, Keys, bounds, concat_keys, positions


class MergeInput:
    """One input of a merge: rows in key order, read piece by piece and taken up to a key; refuses duplicate keys.

    Parameters
    ----------
    pieces
        Tables, each beginning after the last key of the one before.
    codec
        The codec of the key.
    name
        The name of the input in errors.
    """

    def __init__(self, pieces: Iterator[pa.Table], codec: KeyCodec, name: str) -> None:
        self.codec = codec
        self.name = name
        self._pieces = pieces
        self._last: Keys | None = None
        self.table: pa.Table | None = None
        self.keys: Keys
        self.refill()

    def refill(self) -> None:
        """Read the next piece if no rows are left of the last one."""
        while self.table is None or self.table.num_rows == 0:
            piece = next(self._pieces, None)
            if piece is None:
                self.table = None
                return
            self.table = piece
            self.keys, _ = self.codec.encode([piece.column(name) for name in self.codec.names])
            if piece.num_rows:
                self._check()

    def _check(self) -> None:
        """Refuse a key that occurs twice, also across pieces."""
        keys = self.keys if self._last is None else concat_keys([self._last, self.keys], self.codec)
        twice = np.flatnonzero(keys.repeats())
        if twice.size:
            raise BadInput(
                f"key {self.codec.shown(keys.take(twice[:1]))} is in {self.name} more than once; a difference needs each key once"
            )
        self._last = self.last()

    def last(self) -> Keys:
        """Return the last key of the current piece."""
        return self.keys.slice(len(self.keys) - 1, len(self.keys))

    def up_to(self, key: Keys | None) -> pa.Table:
        """Take the rows of the current piece up to and including a key, or all of them."""
        assert self.table is not None
        stop = len(self.keys) if key is None else int(bounds(self.keys, key, np.ones(1, np.uint8))[2])
        taken, self.table = self.table.slice(0, stop), self.table.slice(stop)
        self.keys = self.keys.slice(stop, len(self.keys))
        self.refill()
        return taken


def aligned_ranges(old: MergeInput, new: MergeInput) -> Iterator[tuple[pa.Table | None, pa.Table | None]]:
    """Yield the rows of both inputs for one range of keys after another; None for an input that has ended."""
    while old.table is not None and new.table is not None:
        ends = concat_keys([old.last(), new.last()], old.codec)
        cut = ends.take(ends.argsort()[:1])  # beyond it, the next piece of one input may have more keys
        yield old.up_to(cut), new.up_to(cut)
    while old.table is not None:
        yield old.up_to(None), None
    while new.table is not None:
        yield None, new.up_to(None)


def compare(old: pa.Table | None, new: pa.Table | None, codec: KeyCodec) -> tuple[dict[str, pa.Table], int]:
    """Return the difference of two sorted tables by part, and the number of unchanged rows."""
    if old is None or new is None:
        return ({"inserted": new} if old is None else {"deleted": old}), 0
    mine, theirs = (codec.encode([t.column(name) for name in codec.names])[0] for t in (old, new))
    at, known = positions(theirs, mine)
    gone = np.ones(old.num_rows, np.bool_)
    gone[at[known]] = False
    before, after = old.take(pa.array(at[known])), new.filter(pa.array(known))
    differs = pa.array(np.zeros(after.num_rows, np.bool_))
    for name in new.column_names:
        if name not in codec.names:
            differs = pc.or_(differs, differing(before.column(name), after.column(name)))
    parts = {
        "inserted": new.filter(pa.array(~known)),
        "deleted": old.filter(pa.array(gone)),
        "before": before.filter(differs),
        "after": after.filter(differs),
    }
    return parts, after.num_rows - parts["after"].num_rows


def differing(a: pa.ChunkedArray, b: pa.ChunkedArray) -> pa.ChunkedArray:
    """Tell where two columns differ; two nulls are equal, and so are two NaN."""
    differs = pc.not_equal(a, b)
    if pa.types.is_floating(a.type):
        differs = pc.and_not(differs, pc.and_(pc.is_nan(a), pc.is_nan(b)))
    return pc.if_else(pc.is_null(differs), pc.xor(pc.is_null(a), pc.is_null(b)), differs)
