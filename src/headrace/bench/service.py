"""Service rate: the stream tuples per second that a join takes without overflow, measured in the two ways of the papers.

`saturated`: the whole stream is available, and the join takes as much as it wants. [MESH] §5.1, [XHJ] §5.1
`sustained`: tuples arrive at a given rate into a bounded buffer; the highest rate without overflow is searched. [SSIJ] §VI

On a simulated disk, time is the disk's virtual clock, and measurements can be repeated exactly; on a real one, it is the time of
the join itself, without that of generating the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from headrace.bench.streams import KEY, Schedule, Steady, Stream, StreamCursor
from headrace.errors import BadInput, MemoryRefused, choice
from headrace.memory import MemoryBudget
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.semistream import ALGORITHMS, SSIJ, AdaptiveJoin, AMeshJoin, MeshJoin, RMeshJoin
from headrace.semistream.base import On, SemiStreamJoin

Method = Literal["saturated", "sustained"]
Operator = str | Callable[..., SemiStreamJoin]

_INPUT_SHARE = 0.25  # share of the memory for batches of a join that joins each to its end
_LEAST_WINDOW = 20_000  # fewest tuples of a window over which the rate is measured
_SETTLED = 0.03  # relative change of the rate between windows, below which it has settled
_MOST_WINDOWS = 40  # windows after which a rate that has not settled is measured all the same
_CLOSE = 0.01  # relative accuracy of the rate that `sustained` finds
_BACKLOG_SHARE = 0.02  # share of the memory for tuples that have arrived and are not taken in
_BACKLOGS = 25  # backlogs that arrive in a run, so that a rate that is too high by a few percent overflows


@dataclass(frozen=True, kw_only=True)
class ServiceRate:
    """A service rate, with the counters of the join during the measurement."""

    algorithm: str
    method: Method
    rate: float
    """stream tuples per second"""
    tuples: int
    """tuples that left the join during the measurement"""
    seconds: float
    results: int
    pages_read: int
    reads: int
    hits: int
    iterations: int
    mean_wait: float
    """mean seconds between the arrival of a tuple and its result"""
    longest_wait: float
    memory: int
    """bytes of the budget"""
    memory_peak: int
    """most bytes held"""
    settled: bool
    """whether the rate had stopped changing when the measurement began"""
    backlog: int = 0
    """for `sustained`, the most tuples that waited to be taken in"""

    @property
    def hit_ratio(self) -> float:
        """The share of tuples that were served from memory."""
        return self.hits / self.tuples if self.tuples else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return all fields and `hit_ratio` by name."""
        return asdict(self) | {"hit_ratio": self.hit_ratio}


@dataclass(frozen=True)
class MeasuringOptions:
    """Options for the length of warming up and of measuring.

    Parameters
    ----------
    loops
        Scans of R by a scanning join before its rate is measured over the next one: four in [MESH].
    warm
        Stream tuples before the rate of any other join is measured; by default until the rate settles.
    fill
        Stream tuples over which a join with a queue is filled; by default all at once. HYBRIDJOIN loads each partition about once
        in the time that a tuple waits: filled at once, it reads R in waves that take long to level out.
    tuples
        Stream tuples to measure over; by default twice those that wait in the join, and some thousands at least.
    batch
        Stream tuples per batch of a join that takes batches; by default what it wants, within a quarter of the memory.
    backlog
        Stream tuples that may wait to be taken in before `sustained` counts an overflow; by default a fiftieth of the
        memory, two iterations at least, and at least what the join itself has room for (`backlog_room`).
    """

    loops: int = 4
    warm: int | None = None
    fill: int | None = None
    tuples: int | None = None
    batch: int | None = None
    backlog: int | None = None

    def __post_init__(self) -> None:
        for name in ("loops", "fill", "tuples", "batch", "backlog"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"{name}={value} is not possible; give 1 or more")


def service_rate(
    operator: Operator,
    relation: Relation,
    stream: Stream,
    memory: int | str,
    *,
    method: Method = "saturated",
    measuring: MeasuringOptions | None = None,
    schedule: Callable[[float], Schedule] = Steady,
    on: On = KEY,
    **options: Any,
) -> ServiceRate:
    """Measure the service rate of a join.

    Parameters
    ----------
    operator
        A class of headrace.semistream, its name in ALGORITHMS, or a function that makes one from (relation, on, memory).
    relation
        The relation, open on the disk to measure on, whose clock is used.
    stream
        The stream, read from its first tuple on; its join column is `k`.
    memory
        The budget, including batches that are passed to the join.
    method
        saturated or sustained.
    measuring
        The length of the measurement.
    schedule
        For `sustained`, the arrival times of tuples at a given rate: Steady or Bursty.
    on
        The join columns.
    options
        Passed to the operator.

    Example
    -------
    >>> import tempfile
    >>> from headrace.bench import RelationSpec, Zipf, make_relation
    >>> from headrace.cost import HDD, disk_of
    >>> rel = make_relation(tempfile.mkdtemp(), RelationSpec(35_000), disk=disk_of(HDD))
    >>> found = service_rate("meshjoin", rel, Zipf(35_000, 0.5), "420KB")
    >>> round(found.rate) == round(service_rate("meshjoin", rel, Zipf(35_000, 0.5), "420KB").rate)
    True
    """
    choice("method", method, ("saturated", "sustained"))
    measuring = measuring or MeasuringOptions()
    make = ALGORITHMS[choice("operator", operator, tuple(ALGORITHMS))] if isinstance(operator, str) else operator
    limit = MemoryBudget(memory).limit

    def run() -> _MeasuredJoin:
        return _MeasuredJoin.of(partial(make, relation, on, **options), stream, limit, measuring)

    first = _saturated(run(), measuring)
    if method == "saturated":
        return first
    return _highest(run, measuring, schedule, first)


# -- driving an operator ---------------------------------------------------------------------------------------------------


class _MeasuredJoin:
    """An operator with its stream, which runs step by step and counts the time of the steps."""

    def __init__(self, op: SemiStreamJoin, feed: StreamCursor, batch: int, limit: int, stream_bytes: float) -> None:
        self.op = op
        self.waits = op.as_waiting()  # the same join, if its tuples wait
        self.feed = feed
        self.batch = batch  # tuples of a batch at most; 0 for a join whose tuples wait
        self.asks = False  # whether the join is asked how many tuples it wants in a batch
        self.limit = limit
        self.stream_bytes = stream_bytes
        self.fill = 0  # tuples until all of the join's room is in use
        self.seconds = 0.0

    @classmethod
    def of(
        cls, make: Callable[..., SemiStreamJoin], stream: Stream, limit: int, measuring: MeasuringOptions
    ) -> _MeasuredJoin:
        """Make the operator; one that takes batches gets a smaller budget, with room for them."""
        size = float(stream.tuple_bytes)
        op = make(limit)
        if op.as_waiting() is not None:
            run = cls(op, stream.open(), 0, limit, size)
            run.fill = measuring.fill or 0
            return run
        batch = measuring.batch or max(1, int(limit * _INPUT_SHARE / size))
        if not measuring.batch and op.batch_rows is not None:
            batch = min(batch, 2 * op.batch_rows)  # it may come to want more than it does at first
        left = limit - int(batch * size)
        if left <= 0:
            raise MemoryRefused(
                f"batches of {batch:,} stream tuples of {size:.0f} bytes leave nothing of a memory of {limit:,} bytes; give more"
                " memory, or a smaller batch"
            )
        op = make(left)
        run = cls(op, stream.open(), batch, limit, size)
        run.asks = not measuring.batch and op.batch_rows is not None
        return run

    @property
    def buffered(self) -> int:
        """Tuples passed to the join that it has not taken in."""
        return 0 if self.waits is None else self.waits.buffered

    @property
    def waiting(self) -> int:
        """Tuples passed to the join that have not left it."""
        return 0 if self.waits is None else self.waits.waiting

    @property
    def left(self) -> int:
        """Tuples that have left the join."""
        return self.op.stats.matched + self.op.stats.unmatched

    @property
    def wanted(self) -> int:
        """Tuples that the next step needs beyond those passed before."""
        if self.waits is None:
            return min(self.batch, self.op.batch_rows or self.batch) if self.asks else self.batch
        return max(0, self.waits.wanted - self.buffered)

    def room(self, measuring: MeasuringOptions) -> int:
        """Return the number of tuples that may wait to be taken in."""
        if measuring.backlog:
            return measuring.backlog
        step, lent = (self.batch, 0) if self.waits is None else (self.waits.wanted, self.waits.backlog_room)
        return max(2 * step, int(self.limit * _BACKLOG_SHARE / self.stream_bytes), lent)

    def offer(self, rows: int) -> None:
        """Pass tuples to a join whose tuples wait."""
        if rows and self.waits is not None:
            self._timed(self.waits.offer, self.feed.take(rows))

    def step(self, rows: int) -> None:
        """Pass tuples to the join and run one iteration, or join one batch."""
        if self.waits is None:
            self._timed(self.op.join, self.feed.take(rows))
        else:
            self.offer(rows)
            self._timed(self.waits.advance)

    def take_all(self) -> None:
        """Run a step with as many tuples as the join wants."""
        if self.waits is not None and not self.feed.taken:
            self.offer(1)  # it chooses its sizes when it has seen a tuple
        if self.waits is not None:
            self.waits.has_waited(0.0)  # the stream is always there: one that follows its rate takes all that it can
        self.step(min(self.wanted, self._allowed))

    @property
    def _allowed(self) -> int:
        """Tuples that may be passed now, while the join fills up."""
        if self.waits is None or self.feed.taken >= self.fill:
            return self.wanted
        return max(1, int(self.waits.capacity * self.feed.taken / self.fill) - self.waiting)

    def _timed(self, work: Callable[..., Iterator[pa.RecordBatch] | None], *args: Any) -> None:
        begun = self.op.clock.now()
        for _ in work(*args) or ():
            pass
        self.seconds += self.op.clock.now() - begun

    def rest(self, seconds: float) -> None:
        """Let time pass without work, until more tuples arrive."""
        self.op.clock.sleep(seconds)
        self.seconds += seconds


@dataclass
class _Mark:
    """The counters at the start of a measurement."""

    seconds: float
    left: int
    stats: JoinStats

    @classmethod
    def of(cls, run: _MeasuredJoin) -> _Mark:
        return cls(run.seconds, run.left, replace(run.op.stats))

    def rate(self, run: _MeasuredJoin) -> float:
        """Return the tuples per second that left since the start."""
        return (run.left - self.left) / max(1e-12, run.seconds - self.seconds)

    def measured(self, run: _MeasuredJoin, method: Method, *, settled: bool) -> ServiceRate:
        """Return the measurement since the start."""
        now, then = run.op.stats, self.stats
        tuples = run.left - self.left

        def since(name: str) -> Any:
            return getattr(now, name) - getattr(then, name)

        peak = run.op.budget.peak + int(run.batch * run.stream_bytes)
        return ServiceRate(
            algorithm=type(run.op).__name__,
            method=method,
            rate=self.rate(run),
            tuples=tuples,
            seconds=run.seconds - self.seconds,
            results=since("results"),
            pages_read=since("pages_read"),
            reads=since("reads"),
            hits=since("hits"),
            iterations=since("iterations"),
            mean_wait=since("waiting_seconds") / max(1, tuples),
            longest_wait=now.longest_wait,
            memory=run.limit,
            memory_peak=peak,
            settled=settled,
        )


# -- saturated -------------------------------------------------------------------------------------------------------------


def _saturated(run: _MeasuredJoin, measuring: MeasuringOptions) -> ServiceRate:
    if isinstance(run.op, MeshJoin | AMeshJoin | RMeshJoin) and run.op.relation.num_pages and measuring.warm is None:
        return _over_a_loop(run, measuring.loops)
    settled = _warm_up(run, measuring)
    mark = _Mark.of(run)
    _until(run, mark.left + _window(run, measuring))
    return mark.measured(run, "saturated", settled=settled)


def _over_a_loop(run: _MeasuredJoin, loops: int) -> ServiceRate:
    """Measure the rate over one scan of R, after some others. [MESH] §5.1"""
    pages = run.op.relation.num_pages

    def to_round(number: int) -> None:
        while run.op.stats.pages_read < number * pages:
            run.take_all()

    to_round(loops)
    mark = _Mark.of(run)
    to_round(loops + 1)
    return mark.measured(run, "saturated", settled=loops > 0)


def _window(run: _MeasuredJoin, measuring: MeasuringOptions) -> int:
    return measuring.tuples or max(_LEAST_WINDOW, 2 * run.waiting, 3 * getattr(run.op, "capacity", 0), 4 * run.batch)


def _until(run: _MeasuredJoin, left: int) -> None:
    """Run until so many tuples have left and, for a join with join phases, to the end of a phase.

    Most of the time of such a join goes into its join phases, so a part of a phase more or less would change the rate.
    """
    most = left + max(0, left - run.left)
    while run.left < left:
        run.take_all()
    reads = run.op.stats.reads
    while isinstance(run.op, AdaptiveJoin | SSIJ) and run.op.stats.reads == reads and run.left < most:
        run.take_all()


def _warm_up(run: _MeasuredJoin, measuring: MeasuringOptions) -> bool:
    """Run until the rate has settled; returns whether it has."""
    if measuring.warm is not None:
        _until(run, measuring.warm)
        return True
    steady, before = 0, 0.0
    for _ in range(_MOST_WINDOWS):
        mark = _Mark.of(run)
        _until(run, run.left + _window(run, measuring))
        rate = mark.rate(run)
        steady = steady + 1 if abs(rate - before) <= _SETTLED * rate else 0
        if steady == 2:
            return True
        before = rate
    return False


# -- sustained -------------------------------------------------------------------------------------------------------------


def _highest(
    make: Callable[[], _MeasuredJoin],
    measuring: MeasuringOptions,
    schedule: Callable[[float], Schedule],
    first: ServiceRate,
) -> ServiceRate:
    """Search the highest sustainable rate by bisection."""
    low, high = 0.0, float("inf")
    best: ServiceRate | None = None
    rate = first.rate
    for _ in range(60):
        if high < (1 + _CLOSE) * low:
            break
        coming = schedule(rate)
        total = max(6 * first.tuples, _LEAST_WINDOW, coming.by(coming.seconds))
        found = _at_rate(make(), measuring, coming, rate, total)
        if found is None:
            high = rate
        else:
            low, best = rate, found
        rate = 1.25 * low if high == float("inf") else high / 1.5 if not low else (low + high) / 2
    if best is None:
        raise BadInput(f"no rate goes: even {high:.3g} tuples a second overflow; give more memory, or a longer backlog")
    return best


def _at_rate(
    run: _MeasuredJoin, measuring: MeasuringOptions, schedule: Schedule, rate: float, total: int
) -> ServiceRate | None:
    """Run with so many tuples that arrive at a rate; returns None if the backlog overflows."""
    most = 0
    if not run.batch:
        run.offer(1)
    room = run.room(measuring)
    total = max(total, _BACKLOGS * room)
    settled_at = total // 3
    mark = _Mark.of(run)
    while run.feed.taken < total:
        come = schedule.by(run.seconds) - run.feed.taken
        backlog = come + run.buffered
        most = max(most, backlog)
        if backlog > room:
            return None
        if run.feed.taken < settled_at:
            mark = _Mark.of(run)
        if come < (1 if run.batch else run.wanted):
            # There are not enough tuples for a step yet, so time passes until there are.
            wanted = 1 if run.batch else run.wanted
            run.rest(max(0.0, schedule.when(run.feed.taken + wanted) - run.seconds))
            continue
        room = run.room(measuring)  # for tuples that arrive during the step, so it is computed before the step
        run.step(min(come, run.wanted) if run.batch else max(0, come))
    return replace(mark.measured(run, "sustained", settled=True), rate=rate, backlog=most)
