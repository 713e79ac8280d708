"""What a cost model is told: of the relation, of the stream, of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from headrace.cost.popularity import Popularity
from headrace.errors import BadInput
from headrace.metrics import Factors, Overhead
from headrace.relation import Relation
from headrace.semistream.adaptive.memory_plan import tuple_bytes
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.waiting_plan import page_bytes


@dataclass(frozen=True)
class Machine:
    """What reads and steps of a join take.

    Parameters
    ----------
    seek, transfer
        Seconds for a request and for 8 KiB of it, one request after the other: c_I/O(b) of [MESH].
    factors
        Seconds of each step of a join, by the names of [MESH] Table 1.
    in_flight
        The same two with many requests in flight, for joins that ask for many pages at a time; as one by one by default.
    longest
        Pages of a planned request at most: maxScan of [SSIJ].
    follow
        Seconds for a request that goes on where the last one ended, as those of a scan do; as `seek` by default.
    overheads
        What algorithms take besides reads and steps, by name.
    """

    seek: float
    transfer: float
    factors: Factors = field(default_factory=Factors)
    in_flight: tuple[float, float] | None = None
    longest: int = 200
    follow: float | None = None
    overheads: Mapping[str, Overhead] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("seek", "transfer"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise BadInput(f"{name}={value!r} is not a time; give seconds, 0 or more")

    @property
    def many(self) -> tuple[float, float]:
        """Seek and transfer with many requests in flight."""
        return self.in_flight or (self.seek, self.transfer)

    def overhead(self, algorithm: str) -> Overhead:
        """Of an algorithm."""
        return self.overheads.get(algorithm, Overhead())


@dataclass(frozen=True)
class Facts:
    """A relation, a stream and a machine, as far as the models need to know them.

    Parameters
    ----------
    rows, pages, page_size, distinct_keys
        Of the relation.
    tuple_bytes, texts
        Of a tuple's payload in memory; how many of its columns have values of any length.
    index_bytes, filter_bytes
        Memory of the index and of the filter for absent keys.
    unique, ordered
        Whether no key occurs twice; whether tuples are stored by popularity.
    stream_bytes
        v_S.
    skew
        The exponent of the Zipf distribution of the relation's keys in the stream; 0 is even.
    scattered
        Whether popular keys lie anywhere in the relation, and not side by side.
    absent
        Share of stream tuples whose key is not in the relation.
    batch_rows
        Stream tuples of a batch that is joined to its end; None for a stream without end.
    machine
        See Machine.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> rel = hr.Relation.create(tempfile.mkdtemp() + "/r", pa.table({"id": range(9999), "v": range(9999)}), key="id")
    >>> facts = Facts.of(rel, skew=1.0, stream_bytes=20)
    >>> facts.rows, facts.unique, round(facts.popularity.top(100), 2)
    (9999, True, 0.53)
    """

    rows: int
    pages: int
    page_size: int
    distinct_keys: int
    tuple_bytes: float
    texts: int
    index_bytes: int
    filter_bytes: int
    unique: bool
    ordered: bool
    stream_bytes: float
    skew: float
    scattered: bool
    absent: float
    batch_rows: int | None
    machine: Machine

    @classmethod
    def of(
        cls,
        relation: Relation,
        *,
        skew: float = 0.0,
        stream_bytes: float = 20.0,
        absent: float = 0.0,
        batch_rows: int | None = None,
        scattered: bool | None = None,
        machine: Machine | None = None,
        columns: Sequence[str] | None = None,
    ) -> Facts:
        """Of an open relation. Without a machine its disk says what a read costs, and its factors what a step does."""
        if stream_bytes <= 0:
            raise BadInput(f"stream_bytes={stream_bytes!r} is not the size of a tuple; give bytes, more than 0")
        if not 0 <= skew < float("inf"):
            raise BadInput(f"skew={skew!r} is not the exponent of a Zipf distribution; give 0 (even) or more")
        if not 0 <= absent <= 1:
            raise BadInput(f"absent={absent!r} is not a share of the stream; give 0 to 1")
        if batch_rows is not None and batch_rows < 1:
            raise BadInput(f"batch_rows={batch_rows!r} is not a number of tuples; give 1 or more, or None")
        disk = relation.disk
        ordered = relation.order == "frequency"
        distinct, payload = max(1, relation.distinct_keys), relation.payload(columns)
        return cls(
            rows=max(1, relation.num_rows),
            pages=max(1, relation.num_pages),
            page_size=relation.page_size,
            distinct_keys=distinct,
            tuple_bytes=tuple_bytes(relation, payload),
            texts=sum(column.width == 0 for column in payload),
            index_bytes=relation.index_bytes,
            filter_bytes=relation.filter_bytes,
            unique=relation.unique,
            ordered=ordered,
            stream_bytes=stream_bytes,
            skew=skew,
            scattered=not ordered if scattered is None else scattered,
            absent=absent,
            batch_rows=batch_rows,
            machine=machine
            or Machine(*disk.costs(8192), disk.factors, longest=disk.longest, follow=disk.scan_costs(8192)[0]),
        )

    def on(self, machine: Machine) -> Facts:
        """The same on another machine."""
        return replace(self, machine=machine)

    def plan_facts(self, algorithm: str) -> PlanFacts:
        """What an operator's memory plan is made from, for an algorithm on this machine."""
        seek, transfer = self.costs()
        return PlanFacts(
            rows=self.rows,
            pages=self.pages,
            page_size=self.page_size,
            distinct_keys=self.distinct_keys,
            tuple_bytes=self.tuple_bytes,
            texts=self.texts,
            index_bytes=self.index_bytes,
            filter_bytes=self.filter_bytes,
            stream_bytes=self.stream_bytes,
            seek=seek,
            transfer=transfer,
            scan_seek=self.costs(scan=True)[0],
            serial=self.machine.in_flight is None,
            longest=self.machine.longest,
            factors=self.machine.factors,
            overhead=self.machine.overhead(algorithm),
            matches=self.matches,
            skew=self.skew,
            popular=self.ordered,
        )

    # -- what follows from them ------------------------------------------------------------------------------------------

    @property
    def rows_per_page(self) -> float:
        """v_P / v_R."""
        return self.rows / self.pages

    @property
    def rows_per_key(self) -> float:
        """Tuples of R with the same key."""
        return self.rows / self.distinct_keys

    @property
    def matches(self) -> float:
        """Results a stream tuple gives."""
        return (1 - self.absent) * self.rows_per_key

    @property
    def pages_per_key(self) -> float:
        """Pages that the tuples of a key are in."""
        return 1 + (self.rows_per_key - 1) / self.rows_per_page

    @cached_property
    def popularity(self) -> Popularity:
        """Of the keys that are in the relation."""
        return Popularity.zipf(self.distinct_keys, self.skew)

    @cached_property
    def page_popularity(self) -> Popularity:
        """How often each page is asked for. A key that is absent leads to any of them."""
        pages = self.popularity.grouped(self.distinct_keys / self.pages, scattered=self.scattered)
        return pages.mixed(self.absent, self.pages)

    @property
    def page_bytes(self) -> int:
        """Bytes of a disk buffer a page, with what is noted of its tuples while they are probed."""
        return page_bytes(self.plan_facts(""))

    def costs(self, *, in_flight: bool = False, scan: bool = False) -> tuple[float, float]:
        """Seconds for a request and for a page of it. `scan`: the request goes on where the last one ended."""
        seek, transfer = self.machine.many if in_flight else (self.machine.seek, self.machine.transfer)
        if scan and self.machine.follow is not None:
            seek = min(seek, self.machine.follow)
        return seek, transfer * self.page_size / 8192
