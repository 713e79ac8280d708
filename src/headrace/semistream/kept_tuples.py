"""Stream tuples that a join gives out while they wait, to be kept elsewhere and put back into it or into another one."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.arrays import Bools, Int64s

NOT_MET = -1  # in `left`: the tuple has met no page


@dataclass(frozen=True)
class KeptTuples:
    """Tuples that wait, in the order in which they leave the join: those that have met pages, then the others.

    Parameters
    ----------
    rows
        Their columns.
    left
        Of each, the pages of a scan that it has still to meet; NOT_MET where it has met none, and no result of it was given.
    matched
        Whether each has met a match. Its results up to now were given.
    """

    rows: pa.RecordBatch
    left: Int64s
    matched: Bools

    def __len__(self) -> int:
        return self.left.size

    def slice(self, start: int, stop: int | None = None) -> KeptTuples:
        """Some of them, one after the other."""
        stop = len(self) if stop is None else min(stop, len(self))
        return KeptTuples(self.rows.slice(start, stop - start), self.left[start:stop], self.matched[start:stop])

    def filter(self, which: Bools) -> KeptTuples:
        """Those of them that are wanted."""
        if which.all():
            return self
        return KeptTuples(self.rows.filter(pa.array(which)), self.left[which], self.matched[which])
