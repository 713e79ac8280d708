"""f_R of stream tuples: the number of tuples of R that each joins with, from the relation's statistics. [MESH] §4.2"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Float64s
from headrace.kernels.filter import filter_test
from headrace.relation import Relation
from headrace.relation.keys import ByteKeys, IntKeys, Keys, positions


class KeyFrequencies:
    """Estimates f_R of keys from memory, without reading a page.

    The most frequent keys of R have their exact frequency. Any other key has the mean frequency of the rest if the filter says
    that it may be in R, else 0. If R has few frequent keys, this is exact too, up to false positives of the filter (about 1 in
    300).

    Example
    -------
    >>> import tempfile, headrace as hr
    >>> table = pa.table({"k": [7, 7, 7, 8], "x": [1, 2, 3, 4]})
    >>> with hr.Relation.create(tempfile.mkdtemp() + "/r", table, key="k") as relation:
    ...     KeyFrequencies(relation).of([pa.array([7, 8, None])]).tolist()
    [3.0, 1.0, 0.0]

    Parameters
    ----------
    relation
        The relation R, which must stay open.
    """

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        version = relation.opened
        self._heavy: list[tuple[Keys, Float64s]] = []
        self._others: list[float] = []
        self._filters = [version.filter(shard) for shard in range(relation.num_shards)]
        for shard, facts in enumerate(version.manifest.shards):
            arrays = version.arrays(shard, "stats")
            keys: Keys = (
                IntKeys(arrays["values"].view(np.int64))
                if version.codec.integer
                else ByteKeys(arrays["values"], arrays["offsets"])
            )
            order = keys.argsort()
            counts = arrays["counts"].astype(np.float64)
            self._heavy.append((keys.take(order), counts[order]))
            rest = facts.distinct - counts.size
            self._others.append(max(1.0, (facts.rows - float(counts.sum())) / rest) if rest > 0 else 0.0)

    @property
    def nbytes(self) -> int:
        """Bytes in memory of keys, counts and filters."""
        return sum(k.nbytes + c.nbytes for k, c in self._heavy) + sum(f.nbytes for f in self._filters)

    def of(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> Float64s:
        """Return f_R of each row, given its key columns in the order of the relation's key."""
        version = self.relation.opened
        keys, valid = version.codec.encode(columns)
        out = np.zeros(len(keys))
        hashes = keys.hashes()
        shards = version.shards_of(hashes)
        there = np.flatnonzero(valid) if valid.size else np.arange(len(keys))
        for shard in range(self.relation.num_shards):
            rows = there[shards[there] == shard]
            maybe = np.empty(rows.size, np.uint8)
            filter_test(self._filters[shard], hashes, rows, maybe)
            rows = rows[maybe == 1]
            if rows.size:
                out[rows] = self._of_shard(shard, keys.take(rows))
        return out

    def _of_shard(self, shard: int, keys: Keys) -> Float64s:
        heavy, counts = self._heavy[shard]
        found = np.full(len(keys), self._others[shard])
        if counts.size:
            order: Any = keys.argsort()
            at, equal = positions(keys.take(order), heavy)
            found[order[equal]] = counts[at[equal]]
        return found
