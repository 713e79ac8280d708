"""Results of a join, made from stream rows and from tuples of the relation that are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s
from headrace.kernels.store import ANTI, INNER, LEFT, SEMI, expand
from headrace.relation.columns import Column
from headrace.relation.store import StoreFull, TupleSources
from headrace.row_copies import cuts, row_sizes, take
from headrace.semistream.base import How

# Kinds of join by name, with the number that the compiled loop knows each by.
_KINDS = {"inner": INNER, "left": LEFT, "semi": SEMI, "anti": ANTI}


@dataclass(frozen=True, slots=True)
class Matches:
    """Where the matches of a batch's rows are.

    uid[row] numbers the row's key among the distinct keys of the batch (-1: null); the matches of key u are tuples
    pos[u] .. pos[u] + count[u] of source src[u].
    """

    uid: Int32s
    src: Int32s
    pos: Int32s
    count: Int32s
    sources: TupleSources | None


class ResultMaker:
    """Turns matches into result batches, for inner, left, semi and anti joins.

    Parameters
    ----------
    how
        The kind of join.
    payload
        Columns of the relation that a result has.
    mark
        The name of a last column that says whether the row has a match, or None for no such column.
    """

    def __init__(self, how: How, payload: Sequence[Column], mark: str | None = None) -> None:
        self.how = how
        self.payload = tuple(payload)
        self.mark = mark

    def emit(
        self,
        batch: pa.RecordBatch,
        schema: pa.Schema,
        matches: Matches,
        rows: int,
        room: int,
        which: Int32s | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Results of a batch, or of some of its rows: at most `rows` at a time, in `room` bytes unless one takes more alone."""
        stop = np.zeros(2, np.int64)
        uid = matches.uid if which is None else matches.uid[which]
        kind = _KINDS[self.how]
        while stop[0] < uid.size:
            at = int(stop[0]), int(stop[1])
            out_row, out_src, out_pos = (np.empty(rows, np.int32) for _ in range(3))
            n = expand(uid, matches.src, matches.pos, matches.count, kind, *at, stop, out_row, out_src, out_pos)
            if n == 0:
                return
            if which is not None:
                out_row[:n] = which[out_row[:n]]
            results = out_row[:n], out_src[:n], out_pos[:n]
            with suppress(StoreFull):
                yield self.gather(batch, schema, matches.sources, *results, room)
                continue
            for some in self._fitting(batch, matches.sources, *results, room):
                row, src, pos = (column[some] for column in results)
                yield self.gather(batch, schema, matches.sources, row, src, pos)

    def _fitting(
        self, batch: pa.RecordBatch, sources: TupleSources | None, row: Int32s, src: Int32s, pos: Int32s, room: int
    ) -> list[slice]:
        """Divide results into parts of at most `room` bytes, or of one result that takes more."""
        sizes = row_sizes(batch)[row]
        if self.payload:
            assert sources is not None
            sources.add_sizes(len(self.payload), src, pos, sizes)
        return list(cuts(sizes, room))

    def gather(
        self,
        batch: pa.RecordBatch,
        schema: pa.Schema,
        sources: TupleSources | None,
        row: Int32s,
        src: Int32s,
        pos: Int32s,
        room: int | None = None,
    ) -> pa.RecordBatch:
        """One batch of results: stream row row[i] beside tuple pos[i] of source src[i], or beside nulls where that is -1.

        Raises StoreFull before they take more than `room` bytes. Their number does not tell: one stream row may be in all of
        them, and one text be most of them.
        """
        n, used = row.size, 0
        if _each_once(row):
            stream = batch.slice(int(row[0]), n)  # no copy
        else:
            if room is not None and (used := int(row_sizes(batch)[row].sum())) > room:
                raise StoreFull
            stream = take(batch, row)
        arrays: list[Any] = stream.columns
        if self.payload:
            assert sources is not None
            outer = self.how == "left"
            for i in range(len(self.payload)):
                arrays.append(sources.gather(i, src, pos, outer=outer, room=None if room is None else room - used))
                used += arrays[-1].nbytes
        if self.mark:
            arrays.append(pa.array(src >= 0))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _each_once(row: Int32s) -> bool:
    """Whether rows are neighbours in their order, each once: then they need no copy."""
    return bool(row[-1] - row[0] == row.size - 1 and (row.size == 1 or (row[1:] > row[:-1]).all()))
