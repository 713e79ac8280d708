"""The input of cost models: facts about the relation, the stream and the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property

from headrace.cost.popularity import Popularity
from headrace.errors import BadInput, choice
from headrace.metrics import Factors, Overhead
from headrace.relation import Relation
from headrace.relation.columns import Column
from headrace.relation.index_memory import IndexLevels
from headrace.semistream.base import Order
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.sizes import tuple_bytes
from headrace.semistream.waiting_plan import page_bytes


@dataclass(frozen=True)
class Machine:
    """The costs of reads and of the steps of a join on a machine.

    Parameters
    ----------
    seek, transfer
        Seconds for a request and for 8 KiB of it, with one request at a time: c_I/O(b) of [MESH].
    factors
        Seconds of each step of a join, by the names of [MESH] Table 1.
    in_flight
        Seek and transfer with many requests in flight, for joins that request many pages at once; (seek, transfer) by default.
    longest
        The most pages of a planned request: maxScan of [SSIJ].
    follow
        Seconds for a request that starts where the last one ended, as in a scan; `seek` by default.
    overheads
        The time that algorithms take besides reads and steps, by name.
    """

    seek: float
    transfer: float
    factors: Factors = field(default_factory=Factors)
    _: KW_ONLY
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
        """Return the overhead of an algorithm."""
        return self.overheads.get(algorithm, Overhead())


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The properties of a relation, a stream and a machine that cost models need.

    Parameters
    ----------
    rows, pages, page_size, distinct_keys
        Sizes of the relation.
    tuple_bytes, texts
        Bytes of a tuple's payload in memory; the number of its columns of variable width.
    index_bytes, filter_bytes
        Bytes in memory of the index as a whole, and of the filter for absent keys.
    unique, ordered
        Whether no key occurs twice; whether tuples are stored by frequency.
    stream_bytes
        Bytes of a stream tuple: v_S.
    skew
        The exponent of the Zipf distribution of the relation's keys in the stream; 0 is uniform.
    scattered
        Whether popular keys are spread over the relation, and not side by side.
    absent
        Share of stream tuples whose key is not in the relation.
    batch_rows
        Stream tuples of a batch that is joined to its end; None for an endless stream.
    machine
        The costs of reads and steps.
    order
        "stream": results must come in the order of the stream. "any": they may go out as they are found.
    payload, variable_bytes, page_rows, integer_key
        Columns of the relation in a result, bytes of each that has values of any length, rows that a page has at most, and
        whether keys are integers: see PlanFacts.
    levels
        The pages of the index; None if it has none, and must be in memory as a whole.

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
    order: Order = "any"
    payload: tuple[Column, ...] = ()
    variable_bytes: Mapping[str, int] = field(default_factory=dict, hash=False)
    page_rows: int = 1
    integer_key: bool = True
    levels: IndexLevels | None = None

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
        order: Order = "any",
    ) -> Facts:
        """Collect the facts of an open relation. Without a machine, the relation's disk tells the costs of reads and steps."""
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
            order=choice("order", order, ("any", "stream")),  # type: ignore[arg-type]
            payload=payload,
            variable_bytes=relation.variable_bytes,
            page_rows=relation.opened.layout.most_rows,
            integer_key=relation.codec.integer,
            levels=relation.index_levels,
        )

    def on(self, machine: Machine) -> Facts:
        """Return these facts with another machine."""
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
            payload=self.payload,
            variable_bytes=self.variable_bytes,
            page_rows=self.page_rows,
            integer_key=self.integer_key,
            in_flight=self.costs(in_flight=True),
            factors=self.machine.factors,
            overhead=self.machine.overhead(algorithm),
            matches=self.matches,
            skew=self.skew,
            popular=self.ordered,
            levels=self.levels,
        )

    # -- derived quantities ------------------------------------------------------------------------------------------

    @property
    def rows_per_page(self) -> float:
        """Tuples of R per page: v_P / v_R."""
        return self.rows / self.pages

    @property
    def rows_per_key(self) -> float:
        """Tuples of R per key."""
        return self.rows / self.distinct_keys

    @property
    def matches(self) -> float:
        """Results per stream tuple."""
        return (1 - self.absent) * self.rows_per_key

    @property
    def pages_per_key(self) -> float:
        """Pages that the tuples of a key span."""
        return 1 + (self.rows_per_key - 1) / self.rows_per_page

    @cached_property
    def popularity(self) -> Popularity:
        """How often the stream asks for each key of the relation."""
        return Popularity.zipf(self.distinct_keys, self.skew)

    @cached_property
    def page_popularity(self) -> Popularity:
        """How often the stream asks for each page. An absent key leads to any page."""
        pages = self.popularity.grouped(self.distinct_keys / self.pages, scattered=self.scattered)
        return pages.mixed(self.absent, self.pages)

    @property
    def page_bytes(self) -> int:
        """Bytes of a disk buffer per page, including scratch space for the probing of its tuples."""
        return page_bytes(self.plan_facts(""))

    def costs(self, *, in_flight: bool = False, scan: bool = False) -> tuple[float, float]:
        """Return the seconds of a request and of a page of it. With `scan`, requests start where the last one ended."""
        seek, transfer = self.machine.many if in_flight else (self.machine.seek, self.machine.transfer)
        if scan and self.machine.follow is not None:
            seek = min(seek, self.machine.follow)
        return seek, transfer * self.page_size / 8192
