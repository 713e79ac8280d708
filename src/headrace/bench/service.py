"""Service rate: how many stream tuples a second a join takes in without overflow, measured in both ways the papers have.

`saturated`: the whole stream is there, and the join takes what it wants. [MESH] §5.1, [XHJ] §5.1
`sustained`: tuples come at a given rate, and wait where there is room; the highest rate at which there always is. [SSIJ] §VI

On a simulated disk time is the disk's own clock, and a measurement is the same every time; on a real one it is the time that
the join itself takes, without that of making the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from headrace.bench.streams import KEY, Feed, Schedule, Steady, Stream
from headrace.errors import BadInput, MemoryRefused, choice
from headrace.memory import MemoryBudget
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.semistream import ALGORITHMS, SSIJ, AdaptiveJoin, AMeshJoin, MeshJoin
from headrace.semistream.base import On, SemiStreamJoin

Method = Literal["saturated", "sustained"]
Operator = str | Callable[..., SemiStreamJoin]

_INPUT_SHARE = 0.25  # of the memory, for batches that are handed over to be joined to their end
_LEAST_WINDOW = 20_000  # tuples between two looks at the rate
_SETTLED = 0.03  # change of the rate from one window to the next, below which it has settled
_MOST_WINDOWS = 40
_CLOSE = 0.01  # of the rate: how near to the highest one `sustained` comes
_BACKLOG_SHARE = 0.02  # of the memory, for tuples that have come and not been taken in
_BACKLOGS = 25  # times that many tuples come: what is too fast by a few hundredths overflows


@dataclass(frozen=True)
class ServiceRate:
    """A service rate, with what the join did while it was measured."""

    algorithm: str
    method: Method
    rate: float
    """stream tuples a second"""
    tuples: int
    """that left the join while it was measured"""
    seconds: float
    results: int
    pages_read: int
    reads: int
    hits: int
    iterations: int
    mean_wait: float
    """seconds from taking a tuple in to letting it go"""
    longest_wait: float
    memory: int
    """of the budget"""
    memory_peak: int
    """the most held"""
    settled: bool
    """whether the rate had stopped changing when the measurement began"""
    backlog: int = 0
    """sustained: the most tuples that waited to be taken in"""

    @property
    def hit_ratio(self) -> float:
        """Share of tuples that were served from memory."""
        return self.hits / self.tuples if self.tuples else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Everything by name."""
        return asdict(self) | {"hit_ratio": self.hit_ratio}


@dataclass(frozen=True)
class Measuring:
    """How long to warm up and to measure.

    Parameters
    ----------
    loops
        Rounds over R of a join that scans it before its rate is measured over the next one: four in [MESH].
    warm
        Stream tuples before the rate of another join is measured; without it, until its rate settles.
    fill
        Stream tuples over which a join whose tuples wait is let fill up; by default all at once. HYBRIDJOIN loads each partition
        about once in the time that a tuple waits: filled at once, it goes through R in waves that take long to die away.
    tuples
        Stream tuples to measure over; by default twice what waits in the join, some thousands at least.
    batch
        Stream tuples handed over at a time to a join that takes batches; by default what it wants, in a quarter of the memory.
    backlog
        Stream tuples that may wait to be taken in before `sustained` calls it an overflow; by default a
        fiftieth of the memory, room for two iterations at least, and what the join itself has for it (`backlog_room`).
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
    measuring: Measuring | None = None,
    schedule: Callable[[float], Schedule] = Steady,
    on: On = KEY,
    **options: Any,
) -> ServiceRate:
    """The highest rate that a join sustains.

    Parameters
    ----------
    operator
        A class of headrace.semistream, its name in ALGORITHMS, or a function that makes one from (relation, on, memory).
    relation
        Open on the disk to measure on: its clock is the one that counts.
    stream
        Read from its first tuple on; its join column is `k`.
    memory
        The budget, batches that are handed over included.
    method
        saturated or sustained.
    measuring
        How long; see Measuring.
    schedule
        sustained: when tuples come at a given rate; Steady, or Bursty.
    on
        What is joined on.
    options
        Handed on to the operator.

    Example
    -------
    >>> import tempfile
    >>> from headrace.bench import MadeRelation, Zipf, make_relation
    >>> from headrace.cost import HDD, disk_of
    >>> rel = make_relation(tempfile.mkdtemp(), MadeRelation(35_000), disk=disk_of(HDD))
    >>> found = service_rate("meshjoin", rel, Zipf(35_000, 0.5), "420KB")
    >>> round(found.rate) == round(service_rate("meshjoin", rel, Zipf(35_000, 0.5), "420KB").rate)
    True
    """
    choice("method", method, ("saturated", "sustained"))
    measuring = measuring or Measuring()
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
    """An operator with its stream: takes steps, and keeps the time they take."""

    def __init__(self, op: SemiStreamJoin, feed: Feed, batch: int, limit: int, stream_bytes: float) -> None:
        self.op = op
        self.feed = feed
        self.batch = batch  # tuples of a batch at most; 0 for a join whose tuples wait
        self.asks = False  # whether the join says how many it wants in a batch
        self.limit = limit
        self.stream_bytes = stream_bytes
        self.fill = 0  # tuples until all of the join's room is in use
        self.seconds = 0.0

    @classmethod
    def of(cls, make: Callable[..., SemiStreamJoin], stream: Stream, limit: int, measuring: Measuring) -> _MeasuredJoin:
        """Make the operator. One that takes batches leaves memory for them."""
        size = float(stream.tuple_bytes)
        op = make(limit)
        if hasattr(op, "advance") and not (isinstance(op, AdaptiveJoin) and op.order == "stream"):
            run = cls(op, stream.open(), 0, limit, size)
            run.fill = measuring.fill or 0
            return run
        batch = measuring.batch or max(1, int(limit * _INPUT_SHARE / size))
        if not measuring.batch and hasattr(op, "wanted_rows"):
            batch = min(batch, 2 * op.wanted_rows)  # it may come to want more than it does at first
        left = limit - int(batch * size)
        if left <= 0:
            raise MemoryRefused(
                f"batches of {batch:,} stream tuples of {size:.0f} bytes leave nothing of a memory of {limit:,} bytes; give more"
                " memory, or a smaller batch"
            )
        op = make(left)
        run = cls(op, stream.open(), batch, limit, size)
        run.asks = not measuring.batch and hasattr(op, "wanted_rows")
        return run

    @property
    def buffered(self) -> int:
        """Tuples handed over and not taken in."""
        return 0 if self.batch else self.op.buffered  # type: ignore[attr-defined]

    @property
    def waiting(self) -> int:
        """Tuples handed over that have not left."""
        return 0 if self.batch else self.op.waiting  # type: ignore[attr-defined]

    @property
    def left(self) -> int:
        """Tuples that have left."""
        return self.op.stats.matched + self.op.stats.unmatched

    @property
    def wanted(self) -> int:
        """Tuples for the next step, beyond those handed over."""
        if self.batch:
            return min(self.batch, self.op.wanted_rows) if self.asks else self.batch  # type: ignore[attr-defined]
        wanted: int = self.op.wanted  # type: ignore[attr-defined]
        return max(0, wanted - self.buffered)

    def room(self, measuring: Measuring) -> int:
        """Tuples that may wait to be taken in."""
        if measuring.backlog:
            return measuring.backlog
        step: int = self.batch or self.op.wanted  # type: ignore[attr-defined]
        lent: int = getattr(self.op, "backlog_room", 0)
        return max(2 * step, int(self.limit * _BACKLOG_SHARE / self.stream_bytes), lent)

    def offer(self, rows: int) -> None:
        """Hand tuples over to a join whose tuples wait."""
        if rows:
            self._timed(self.op.offer, self.feed.take(rows))  # type: ignore[attr-defined]

    def step(self, rows: int) -> None:
        """Hand tuples over, and have one iteration, or one batch joined."""
        if self.batch:
            self._timed(self.op.join, self.feed.take(rows))
        else:
            self.offer(rows)
            self._timed(self.op.advance)  # type: ignore[attr-defined]

    def take_all(self) -> None:
        """A step with as many tuples as it wants."""
        if not self.batch and not self.feed.taken:
            self.offer(1)  # it chooses its sizes when it has seen a tuple
        self.step(min(self.wanted, self._allowed))

    @property
    def _allowed(self) -> int:
        """Tuples that may be handed over now, while it fills up."""
        if self.feed.taken >= self.fill:
            return self.wanted
        room: int = self.op.capacity  # type: ignore[attr-defined]
        return max(1, int(room * self.feed.taken / self.fill) - self.waiting)

    def _timed(self, work: Callable[..., Iterator[pa.RecordBatch] | None], *args: Any) -> None:
        begun = self.op.clock.now()
        for _ in work(*args) or ():
            pass
        self.seconds += self.op.clock.now() - begun

    def rest(self, seconds: float) -> None:
        """Let time pass without work."""
        self.op.clock.sleep(seconds)
        self.seconds += seconds


@dataclass
class _Mark:
    """Where a measurement began."""

    seconds: float
    left: int
    stats: JoinStats

    @classmethod
    def of(cls, run: _MeasuredJoin) -> _Mark:
        return cls(run.seconds, run.left, replace(run.op.stats))

    def rate(self, run: _MeasuredJoin) -> float:
        """Tuples that left since, a second."""
        return (run.left - self.left) / max(1e-12, run.seconds - self.seconds)

    def measured(self, run: _MeasuredJoin, method: Method, *, settled: bool) -> ServiceRate:
        """What was measured since."""
        now, then = run.op.stats, self.stats
        tuples = run.left - self.left

        def since(name: str) -> Any:
            return getattr(now, name) - getattr(then, name)

        peak = run.op.budget.peak + int(run.batch * run.stream_bytes)
        return ServiceRate(
            type(run.op).__name__,
            method,
            self.rate(run),
            tuples,
            run.seconds - self.seconds,
            since("results"),
            since("pages_read"),
            since("reads"),
            since("hits"),
            since("iterations"),
            since("waiting_seconds") / max(1, tuples),
            now.longest_wait,
            run.limit,
            peak,
            settled,
        )


# -- saturated -------------------------------------------------------------------------------------------------------------


def _saturated(run: _MeasuredJoin, measuring: Measuring) -> ServiceRate:
    if isinstance(run.op, MeshJoin | AMeshJoin) and run.op.relation.num_pages and measuring.warm is None:
        return _over_a_loop(run, measuring.loops)
    settled = _warm_up(run, measuring)
    mark = _Mark.of(run)
    _until(run, mark.left + _window(run, measuring))
    return mark.measured(run, "saturated", settled=settled)


def _over_a_loop(run: _MeasuredJoin, loops: int) -> ServiceRate:
    """The rate of the tuples of one round over R, after others. [MESH] §5.1"""
    pages = run.op.relation.num_pages

    def to_round(number: int) -> None:
        while run.op.stats.pages_read < number * pages:
            run.take_all()

    to_round(loops)
    mark = _Mark.of(run)
    to_round(loops + 1)
    return mark.measured(run, "saturated", settled=loops > 0)


def _window(run: _MeasuredJoin, measuring: Measuring) -> int:
    return measuring.tuples or max(_LEAST_WINDOW, 2 * run.waiting, 3 * getattr(run.op, "capacity", 0), 4 * run.batch)


def _until(run: _MeasuredJoin, left: int) -> None:
    """Until so many tuples have left; of a join that reads now and then, to the end of a join phase.

    Most of its time goes into its join phases: half of one more or less, and the rate is another.
    """
    most = left + max(0, left - run.left)
    while run.left < left:
        run.take_all()
    reads = run.op.stats.reads
    while isinstance(run.op, AdaptiveJoin | SSIJ) and run.op.stats.reads == reads and run.left < most:
        run.take_all()


def _warm_up(run: _MeasuredJoin, measuring: Measuring) -> bool:
    """Let tuples through until the rate stays; whether it does."""
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
    make: Callable[[], _MeasuredJoin], measuring: Measuring, schedule: Callable[[float], Schedule], first: ServiceRate
) -> ServiceRate:
    """Halve the distance between a rate that goes and one that does not."""
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
    run: _MeasuredJoin, measuring: Measuring, schedule: Schedule, rate: float, total: int
) -> ServiceRate | None:
    """Let so many tuples come at a rate; None if they wait where there is no room for them."""
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
            # Not enough for a step yet: time passes until there is.
            wanted = 1 if run.batch else run.wanted
            run.rest(max(0.0, schedule.when(run.feed.taken + wanted) - run.seconds))
            continue
        room = run.room(measuring)  # for what comes during the step, so as things are before it
        run.step(min(come, run.wanted) if run.batch else max(0, come))
    return replace(mark.measured(run, "sustained", settled=True), rate=rate, backlog=most)
