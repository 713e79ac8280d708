"""Joins stream tuples with pages in memory, each tuple with one page that the index named."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s
from headrace.kernels.cache import spell_out
from headrace.relation.disk import Disk
from headrace.relation.keys import Keys
from headrace.semistream.result_emitter import ResultEmitter


def search_pages(
    results: ResultEmitter, disk: Disk, keys: list[Keys], which: Int32s, slots: Int32s, pages: Int64s
) -> Iterator[pa.RecordBatch]:
    """Results of waiting tuples, each with the tuples of R in one page that have its key or lie in its range.

    Parameters
    ----------
    results, disk
        Where matches go, and the machine that a search is charged to.
    keys, which, slots
        Tuple i has key which[i] of keys[0], or the range up to key which[i] of keys[1], and waits in slots[i].
    pages
        The address of each tuple's page.
    """
    low, high = np.empty(which.size, np.int32), np.empty(which.size, np.int32)
    keys[0].find(pages, which, low, high)
    if len(keys) == 2:
        keys[1].find(pages, which, np.empty_like(low), high)
        np.maximum(low, high, out=high)  # a range whose end is before its begin
    disk.spend({"c_H": which.size})
    if results.how in ("semi", "anti"):
        hit = np.unique(slots[high > low])
        for a in range(0, hit.size, results.rows):
            yield from results.found(hit[a : a + results.rows], pages, low)
        return
    stop: Int64s = np.zeros(2, np.int64)
    while stop[0] < which.size:
        pair, row = np.empty(results.rows, np.int32), np.empty(results.rows, np.int32)
        n = int(spell_out(low, high, stop, pair, row))
        if n:
            yield from results.found(slots[pair[:n]], pages[pair[:n]], row[:n])
