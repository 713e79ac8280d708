"""Facts of a relation, a stream and a disk that a memory plan is made from, by operators and by their cost models alike."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PlanFacts:
    """Sizes and costs that decide how an operator divides its memory. An operator's `plan(facts, limit)` uses nothing else.

    Parameters
    ----------
    rows, pages, page_size, distinct_keys
        Of the relation; page_size in bytes.
    tuple_bytes
        Of a tuple's payload in memory.
    texts
        How many payload columns have values of any length.
    index_bytes, filter_bytes
        Memory of the index and of the filter for absent keys.
    stream_bytes
        v_S: of a stream tuple.
    seek, transfer
        Seconds for a request and for a page of it, one request after another.
    scan_seek
        Seconds for a request that goes on where the last one ended.
    serial
        Whether the disk serves one request at a time.
    longest
        Pages of a planned request at most: maxScan of [SSIJ].
    """

    rows: int
    pages: int
    page_size: int
    distinct_keys: int
    tuple_bytes: float
    texts: int
    index_bytes: int
    filter_bytes: int
    stream_bytes: float
    seek: float
    transfer: float
    scan_seek: float
    serial: bool
    longest: int

    @property
    def rows_per_page(self) -> float:
        """v_P / v_R."""
        return self.rows / self.pages

    @property
    def rows_per_key(self) -> float:
        """Tuples of R with the same key."""
        return self.rows / self.distinct_keys

    @property
    def pages_per_key(self) -> float:
        """Pages that the tuples of a key are in."""
        return 1 + (self.rows_per_key - 1) / self.rows_per_page
