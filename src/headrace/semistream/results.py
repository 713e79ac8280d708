"""Results of a join, made from stream rows and from tuples of the relation that are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s
from headrace.kernels.store import ANTI, INNER, LEFT, SEMI, expand
from headrace.relation.columns import Column
from headrace.relation.store import StoreFull, TupleSources
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
        self, batch: pa.RecordBatch, schema: pa.Schema, matches: Matches, rows: int, which: Int32s | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Results of a batch, or of some of its rows, at most `rows` at a time."""
        stop = np.zeros(2, np.int64)
        uid = matches.uid if which is None else matches.uid[which]
        kind = _KINDS[self.how]
        while stop[0] < uid.size:
            row, within = int(stop[0]), int(stop[1])
            out_row, out_src, out_pos = (np.empty(rows, np.int32) for _ in range(3))
            n = expand(uid, matches.src, matches.pos, matches.count, kind, row, within, stop, out_row, out_src, out_pos)
            if n == 0:
                return
            if which is not None:
                out_row[:n] = which[out_row[:n]]
            try:
                out = self.gather(batch, schema, matches.sources, out_row[:n], out_src[:n], out_pos[:n])
            except StoreFull:
                # Strings of this many results would not fit one Arrow array.
                stop[:] = row, within
                rows = max(1, n // 2)
                continue
            yield out

    def gather(
        self,
        batch: pa.RecordBatch,
        schema: pa.Schema,
        sources: TupleSources | None,
        row: Int32s,
        src: Int32s,
        pos: Int32s,
    ) -> pa.RecordBatch:
        """One batch of results: stream row row[i] beside tuple pos[i] of source src[i], or beside nulls where that is -1."""
        n = row.size
        if row[-1] - row[0] == n - 1 and (n == 1 or bool((row[1:] > row[:-1]).all())):
            stream = batch.slice(int(row[0]), n)  # every row once: no copy
        else:
            stream = batch.take(pa.array(row))
        arrays: list[Any] = stream.columns
        if self.payload:
            assert sources is not None
            outer = self.how == "left"
            arrays += [sources.gather(i, src, pos, outer=outer) for i in range(len(self.payload))]
        if self.mark:
            arrays.append(pa.array(src >= 0))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
