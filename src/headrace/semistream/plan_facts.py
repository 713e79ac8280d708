"""Facts of a relation, a stream and a disk that a memory plan is made from, by operators and by their cost models alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.metrics import Factors, Overhead
from headrace.relation import Relation
from headrace.relation.columns import Column
from headrace.relation.index_memory import IndexLevels, IndexMemory
from headrace.semistream.sizes import tuple_bytes


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
        Memory of the index as a whole, and of the filter for absent keys.
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
    payload
        The columns of a tuple that the join keeps.
    variable_bytes
        Bytes that each column with values of any length takes in the whole relation, by name.
    page_rows
        Rows that a page has at most.
    integer_key
        Whether keys are 64-bit integers; else they are byte strings.
    in_flight
        Seconds for a request and for a page of it with many requests in flight; as `seek` and `transfer` by default.
    factors, overhead
        Seconds of the steps of a join, and what the algorithm takes besides reads and steps on this machine.
    matches
        Results that a stream tuple gives, in the mean.
    skew, popular
        The exponent of the stream's Zipf distribution; whether the relation is stored by popularity.
    condition_row_bytes, condition_slot_bytes, condition_pair_bytes
        Memory that a condition takes for a tuple of R in the disk buffer, for a waiting tuple, and for a pair while it is tested.
    column_extra_bytes
        Memory of a waiting tuple's columns and key beyond stream_bytes.
    store_bytes
        Memory of a store of result tuples: for each row, and whatever the rows. By default they are estimated from tuple_bytes
        and texts; an operator knows them.
    levels
        The pages of the index, for a memory that it does not fit as a whole; None: there are none, and it must fit.
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
    payload: tuple[Column, ...] = ()
    variable_bytes: Mapping[str, int] = field(default_factory=dict, hash=False)
    page_rows: int = 1
    integer_key: bool = True
    in_flight: tuple[float, float] | None = None
    factors: Factors = field(default_factory=Factors)
    overhead: Overhead = field(default_factory=Overhead)
    matches: float = 1.0
    skew: float = 0.0
    popular: bool = False
    condition_row_bytes: float = 0.0
    condition_slot_bytes: float = 0.0
    condition_pair_bytes: float = 0.0
    column_extra_bytes: float = 0.0
    store_bytes: tuple[float, int] | None = None
    levels: IndexLevels | None = None

    @classmethod
    def of(
        cls,
        relation: Relation,
        payload: Sequence[Column],
        *,
        index_bytes: int | None = None,
        stream_bytes: float = 20.0,
    ) -> PlanFacts:
        """The facts of an open relation, with the costs of its disk that every process knows, whatever it has read.

        Parameters
        ----------
        relation, payload
            The relation, and the columns that the join keeps.
        index_bytes
            Memory of the index as a whole, by default as it is in a process of its own.
        stream_bytes
            Bytes of a stream tuple, where a plan asks for them before the stream is seen.
        """
        disk, page = relation.disk, relation.page_size
        seek, transfer = disk.costs(page, alone=True, known=True)
        return cls(
            rows=max(1, relation.num_rows),
            pages=max(1, relation.num_pages),
            page_size=page,
            distinct_keys=max(1, relation.distinct_keys),
            tuple_bytes=tuple_bytes(relation, payload),
            texts=sum(column.width == 0 for column in payload),
            index_bytes=relation.index_bytes if index_bytes is None else index_bytes,
            filter_bytes=relation.filter_bytes,
            stream_bytes=stream_bytes,
            seek=seek,
            transfer=transfer,
            scan_seek=disk.scan_costs(page, known=True)[0],
            serial=disk.workers == 1,
            longest=disk.longest,
            payload=tuple(payload),
            variable_bytes=relation.variable_bytes,
            page_rows=relation.opened.layout.most_rows,
            integer_key=relation.codec.integer,
            in_flight=disk.costs(page, known=True),
            levels=relation.index_levels,
        )

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

    def index_in(self, room: int, *, bitmap: bool = False) -> IndexMemory:
        """How the index is held by an operator with so many bytes beside the least of its other parts; see IndexMemory.of."""
        return IndexMemory.of(self.index_bytes, self.levels, room, bitmap=bitmap)

    def result_bytes(self, rows: int) -> int:
        """Memory of a store of so many result tuples."""
        row, base = self.store_bytes or (self.tuple_bytes, self.texts * self.page_size)
        return int(rows * row) + base
