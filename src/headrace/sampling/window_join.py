"""WindowJoin: joins two streams over sliding windows, of which samples are kept. [PQP] ch. 9, Alg. 8 and 9"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Int32s, Int64s
from headrace.conditions import Condition, check_condition
from headrace.errors import BadInput, MemoryRefused, choice, shown
from headrace.memory import MemoryBudget
from headrace.progressive.grids.keys import HashPartitioning
from headrace.progressive.grids.partitioning import NO_DOUBLES, SIDES, CellEntries, JoinKeys, Partitioning
from headrace.progressive.grids.partitioning_for import partitioning_for
from headrace.progressive.output import BatchRows, Output, in_schema, left_and_right, plain_schema, side_name
from headrace.sampling.estimates import GROUPS, Asked, SampleTotals, asked_of, check_groups, column_names
from headrace.sampling.event_times import START, EventTimes, TimedRows
from headrace.sampling.everything import Everything
from headrace.sampling.expire import Expire
from headrace.sampling.fair import FairWindow
from headrace.sampling.fifo import Fifo
from headrace.sampling.join_totals import JoinTotals
from headrace.sampling.pending import Pending
from headrace.sampling.reservoir import Reservoir
from headrace.sampling.sampled_side import SampledRows, SampledSide
from headrace.sampling.sampler import ROWS_AT_ONCE, Sampler, check_rows, check_size
from headrace.sampling.snapshot import Parts, SnapshotReader, write_side, write_snapshot
from headrace.sampling.stats import WindowJoinStats
from headrace.sampling.winres import WinRes
from headrace.units import format_size
from headrace.windows import RowWindow, TimeWindow, Window, check_window

Divide = Callable[[Condition], tuple[Partitioning, Condition | None]]
Method = Literal["fair", "expire", "winres", "reservoir", "fifo", "all"]
METHODS = ("fair", "expire", "winres", "reservoir", "fifo", "all")
_SAMPLERS: dict[str, type[Sampler]] = {
    "fair": FairWindow,
    "expire": Expire,
    "winres": WinRes,
    "reservoir": Reservoir,
    "fifo": Fifo,
}
_LEAST_MEMORY = 1 << 15  # bytes: less holds no more than a few rows of each side
_WORK = 8  # 1/8 of the memory is working memory: results, and the cells that are probed
_PAIRS = 1 << 16  # pairs that are made at a time without a memory limit
_LEAST_PAIRS = 64  # pairs that are made at a time however small the memory is
_PAIR_WORK = 64  # bytes of what is computed about a pair, beside its rows
_RESULTS = 1 << 26  # bytes of results that are made at a time without a memory limit
_RESULT_SHARE = (
    4  # 1/4 of working memory is for results: rows of several chunks are there twice while they are put together
)
_LARGEST_ROW = 4  # a tuple takes at most 1/4 of the memory of its side: it would drive too many others out
_LEAST_ROWS = 64  # rows that are taken in at a time however small the memory is
_ROW_BYTES = 128  # of what is computed about a row while it is taken in, roughly
_CELLS = 1 << 20  # cells that are probed at a time


class WindowJoin:
    """Joins each arriving tuple with a sample of the other stream's window. Choose it where windows do not fit in memory.

        left batch --> probe the right sample --> results            right batch --> probe the left sample --> results
                   +-> left sampler: which tuples stay                           +-> right sampler

    A pair is made when the later of its tuples comes, if the earlier one is in the sample and live then. With method "all"
    nothing is left out: the result is the exact window join. With a fair sample of a part p of the window a pair is made with
    probability p, and `estimate` says what the whole window join counts and sums up to, with confidence intervals.

    In a window by rows a tuple is live while fewer than |W| tuples of its own stream have come after it. In one by time the
    tuples of a pair are less than the length of the window apart, whichever came first; now is the latest time of both
    streams.

    A batch of one side probes the other side's sample, which does not change meanwhile, and goes to its own sampler then:
    batches give the results that tuples one by one would give.

    Parameters
    ----------
    condition
        What pairs must satisfy: equal, intersects, within, or all_of with one of them and others.
    window
        hr.rows(...) or hr.time(...), for both sides.
    sample, size, memory
        How much is kept of each side, one of: a part of a window by rows, such as 0.2; a number of tuples; or bytes of both
        sides together. With method "all" everything is kept, and `memory` is the most that it may take.
    method
        "fair" (FairWindow), "expire", "winres", "reservoir", "fifo", or "all".
    seed
        Samples of different seeds are independent.
    suffix
        Added to the name of a right column that the left side has too; None refuses it.
    estimate
        Result columns whose sums and averages will be estimated, one or several; True for counts alone. Each tuple that is kept
        then has the sum of the pairs that it is the earlier tuple of.
    group_by
        A result column that estimates are grouped by.
    groups
        The most groups at a time; values beyond are estimated together.
    results
        Whether results are made. Estimates do without.
    divide
        Gives the partitioning for the condition, and what it leaves to be tested; that of a part of the cells, for a shard.

    Example
    -------
    >>> import headrace as hr, pyarrow as pa
    >>> from headrace.sampling import WindowJoin
    >>> op = WindowJoin(hr.equal("k"), window=hr.rows(3), method="all")
    >>> list(op.insert("left", pa.record_batch({"k": [1, 2, 3, 4], "a": [10, 20, 30, 40]})))
    []
    >>> [out.to_pylist() for out in op.insert("right", pa.record_batch({"k": [1, 4]}))]  # 1 has left the window
    [[{'k': 4, 'a': 40}]]

    Reference: [PQP] Alg. 8, 9.

    Deviations: the sample is indexed by key or cell, where the text scans it. Chain is refused: a tuple may be in its sample
    several times, and pairs would repeat. Windows by time are ours.
    """

    def __init__(
        self,
        condition: Condition,
        *,
        window: Window,
        sample: float | None = None,
        size: int | None = None,
        memory: int | str | None = None,
        method: Method = "fair",
        seed: int = 0,
        suffix: str | None = "_right",
        estimate: bool | str | Sequence[str] = False,
        group_by: str | None = None,
        groups: int = GROUPS,
        results: bool = True,
        divide: Divide = partitioning_for,
    ) -> None:
        check_condition(condition)
        check_window(window)
        if method == "chain":  # type: ignore[comparison-overlap]
            raise BadInput(
                "method='chain' would repeat pairs, since a tuple may be in its sample several times; choose one of"
                f" {', '.join(METHODS)}"
            )
        choice("method", method, METHODS)
        self.condition, self.window, self.method, self.seed, self.suffix = condition, window, method, seed, suffix
        self.memory = memory
        self.size = _size_of(window, sample, size, memory, method)
        self.stats = WindowJoinStats(memory_limit=0 if memory is None else MemoryBudget(memory).limit)
        if 0 < self.stats.memory_limit < _LEAST_MEMORY:
            raise MemoryRefused(
                f"memory={shown(memory)} is too small for two windows; give at least {format_size(_LEAST_MEMORY)}"
            )
        self._results, self._divide = results, divide
        self.partitioning, self._ask = divide(condition)
        self._times = EventTimes(window) if isinstance(window, TimeWindow) else None
        self._sides: list[SampledSide | None] = [None, None]
        self._output: Output | None = None
        self._totals = self._totals_for(estimate, group_by, groups)
        self._pending = Pending()
        self._finished = False

    # -- what a user calls -----------------------------------------------------------------------------------------------

    def insert(self, side: Literal["left", "right"], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take in tuples of one side, and give the results with the other side's sample.

        The batch is taken in while results are read; what is not read comes with the results of the next call.
        """
        number = SIDES.index(choice("side", side, SIDES))
        self._pending.check_whole()
        if self._finished:
            raise BadInput("this join has been finished; make another")
        batch = self._accept(number, batch)
        self._pending.add(self._take_all(number, batch))
        return self._pending.drain()

    def count(self, side: Literal["left", "right"], batch: pa.RecordBatch) -> Int64s:
        """Take in tuples of one side, and say how many results each has, in the place of the results.

        Tuples with equal keys meet the same tuples of the other side, which are looked up once: counting takes a fraction of
        the time that making the results takes. It is for windows by rows, and for keys that are compared by their codes.
        """
        number = SIDES.index(choice("side", side, SIDES))
        self._pending.check_none("count")
        if self._finished:
            raise BadInput("this join has been finished; make another")
        batch = self._accept(number, batch)
        by_key = isinstance(self.partitioning, HashPartitioning) and self.partitioning.exact and self._ask is None
        if not by_key or self._times is not None or self._totals is not None:
            raise BadInput(
                f"{self!r} looks at every pair, so that results cannot be counted without making them; use insert, or one equal"
                " key of integers, a window by rows and no estimate="
            )
        out = np.zeros(batch.num_rows, np.int64)
        for _ in self._take_all(number, batch, out):
            raise AssertionError("pairs are counted, not made")
        self.stats.results += int(out.sum())
        return out

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Give the results that were not read. A window join owes no others."""
        self._pending.check_whole()
        self._finished = True
        return self._pending.drain()

    def estimate(
        self,
        *,
        count: bool = False,
        sum: str | Sequence[str] | None = None,
        avg: str | Sequence[str] | None = None,
        group_by: str | None = None,
        confidence: float = 0.95,
    ) -> pa.Table:
        """Estimate what the exact join of the windows as they are now counts, sums up to or averages to.

        It is about the pairs that were or would have been made, of which the earlier tuple is live now. Estimates of counts
        and sums are unbiased; intervals are those of simple random sampling without replacement, with both sides' variances
        added.

        Parameters
        ----------
        count, sum, avg
            The quantities: of pairs, and of result columns that were named when the join was made.
        group_by
            The column that was named when the join was made; None for all groups together.
        confidence
            The part of all intervals that is to cover the truth.

        Returns a table with a row for each group and quantity: `quantity`, `estimate`, `low`, `high`, `rows` in the windows,
        and rows `kept` in the samples; with a group its value, and `other` for values beyond the most groups.
        """
        asked = asked_of(count, sum, avg, confidence)
        self._pending.check_none("estimate")
        if self._totals is None:
            raise BadInput(f"this join was made without estimate=...; make it with {_declaration(asked, group_by)}")
        return self._totals.answer(asked, group_by, self._sides, self._times)

    def totals(self, *, grouped: bool) -> list[SampleTotals]:
        """What is known from the samples of the sides, for estimates of several joins together: see `estimates.answer`."""
        self._pending.check_none("totals")
        assert self._totals is not None, "the join was made without estimate="
        return self._totals.of_sides(self._sides, self._times, grouped=grouped)

    @property
    def now(self) -> int:
        """The latest time of both sides, in a window by time."""
        return START if self._times is None else self._times.now

    @property
    def output(self) -> Output:
        """The columns of results. A batch of both sides must have come, which may be empty."""
        return self._made_output()

    def snapshot(self) -> Parts:
        """The state, as record batches for `restore`; they are made as they are read, before the next batch is inserted."""
        self._pending.check_none("snapshot")
        return self._snapshot()

    def _snapshot(self) -> Parts:
        s = self.stats
        now = START if self._times is None else self._times.now
        counters = np.array([now, s.results, *s.tuples_in, *s.skipped, *s.late, *s.untimed], np.int64)
        groups = None if self._totals is None else self._totals.group_values()
        yield from write_snapshot(repr(self), {"_counters": counters}, [] if groups is None else [groups])
        for name, side in zip(SIDES, self._sides, strict=True):
            if side is not None:
                yield from write_side(name, side.snapshot())

    def restore(self, snapshot: Iterable[pa.RecordBatch]) -> None:
        """Go on from a snapshot of a join that was made with the same arguments."""
        reader = SnapshotReader(snapshot)
        reader.check(repr(self))
        counters = reader.arrays()["_counters"].tolist()
        s = self.stats
        if self._times is not None:
            self._times.now = counters[0]
        s.results = counters[1]
        s.tuples_in, s.skipped, s.late, s.untimed = (counters[i : i + 2] for i in range(2, 10, 2))
        self._sides, self._output, self._pending = [None, None], None, Pending()
        self._finished = False
        self.partitioning, self._ask = self._divide(self.condition)
        for groups in reader.rows():
            assert self._totals is not None
            self._totals.restore_groups(groups)
        while (name := reader.side()) is not None:
            number = SIDES.index(name)
            sums, rows = SampledSide.begin(reader)
            self._make_side(number, rows.schema, rows)
            self._side(number).restore(sums, reader)
        self._count()

    def __repr__(self) -> str:
        size = f"memory={self.memory!r}" if self.memory is not None else f"size={self.size}"
        declared = "" if self._totals is None else f", {self._totals!r}"
        return (
            f"WindowJoin({self.condition!r}, window={self.window!r}, {size}, method={self.method!r}, seed={self.seed},"
            f" suffix={self.suffix!r}{declared})"
        )

    # -- a batch ---------------------------------------------------------------------------------------------------------

    def _take_all(self, number: int, batch: pa.RecordBatch, counts: Int64s | None = None) -> Iterator[pa.RecordBatch]:
        """Take in a batch, as many rows at a time as working memory has room for; results are counted if `counts` is given."""
        step = ROWS_AT_ONCE
        if self.memory is not None:
            step = max(_LEAST_ROWS, min(step, self.stats.memory_limit // _WORK // _ROW_BYTES))
        for at in range(0, batch.num_rows, step):
            yield from self._take_in(number, batch.slice(at, step), None if counts is None else counts[at : at + step])

    def _take_in(self, number: int, batch: pa.RecordBatch, counts: Int64s | None) -> Iterator[pa.RecordBatch]:
        """Probe the other side's sample with tuples, then give them to their own sampler."""
        stats, side, other = self.stats, self._side(number), self._sides[1 - number]
        stats.tuples_in[number] += batch.num_rows
        timed: TimedRows | None = None
        gone = None
        if self._times is not None:
            timed, untimed, late = self._times.read(batch)
            stats.untimed[number] += untimed
            stats.late[number] += late
            batch = timed.batch
            if other is not None:
                # What expires or enters the sample while these tuples come is known beforehand; _met asks for each of them.
                gone = other.sampler.advance(self._times.now)
        keys = self.partitioning.read(number, batch)
        stats.skipped[number] += int(batch.num_rows - keys.valid.sum())
        home = self.partitioning.home(number, keys)
        if other is not None:
            if counts is not None:
                self._count_matches(other, home, counts)
            else:
                for out in self._probe(number, batch, keys, home, timed):
                    stats.results += out.num_rows
                    yield out
            if gone is not None:
                other.forget(gone)
        side.take_in(batch, keys, home, timed)
        self._count()

    def _probe(
        self, number: int, batch: pa.RecordBatch, keys: JoinKeys, home: CellEntries, timed: TimedRows | None
    ) -> Iterator[pa.RecordBatch]:
        """Join arriving tuples with the other side's sample."""
        other, output, totals = self._side(1 - number), self._made_output(), self._totals
        for reach in [home] if self.partitioning.identity else self.partitioning.reach_in_steps(number, keys, _CELLS):
            for entries, owners in other.index.match(reach.cell, reach.row, keys.values, self._pairs_at_once):
                rows = reach.row[entries]
                live, chosen = self._met(other, rows, owners, timed)
                if totals is None:
                    live &= chosen
                rows, owners, chosen = rows[live], owners[live], chosen[live]
                if not rows.size:
                    continue
                held = other.sampler.rows
                order = held.by_chunk(owners)
                rows, owners, chosen = rows[order], owners[order], chosen[order]
                for some in held.pairs_that_fit(batch, rows, owners, self._result_bytes):
                    mine, theirs = BatchRows(batch, rows[some]), SampledRows(held, owners[some])
                    left, right = left_and_right(number, mine, theirs)
                    which = output.test(left, right)
                    if totals is not None:
                        totals.add(self._sides, other, owners[some], left, right, which)
                        if not self._results:
                            continue
                        which = chosen[some] if which is None else which & chosen[some]
                    if which is None or which.any():
                        yield output.results(left, right, which)

    def _count_matches(self, other: SampledSide, home: CellEntries, counts: Int64s) -> None:
        """Count the tuples of the other side's sample that have the key of each arriving tuple, and are live."""
        cells, which = np.unique(home.cell, return_inverse=True)
        rows, found = np.arange(cells.size, dtype=np.int32), np.zeros(cells.size, np.int64)
        for entries, owners in other.index.match(cells, rows, NO_DOUBLES, self._pairs_at_once):
            live, chosen = self._met(other, entries, owners, None)
            found += np.bincount(entries[live & chosen], minlength=cells.size)
        counts[home.row] = found[which]

    def _met(self, other: SampledSide, rows: Int32s, owners: Int32s, timed: TimedRows | None) -> tuple[Bools, Bools]:
        """Whether kept tuples are live when arriving ones come, and whether they are in the sample then."""
        clock: Int64s
        if timed is None:
            clock = np.full(1, other.sampler.clock)
            live = other.sampler.until[owners] > clock
        else:
            assert self._times is not None
            apart = timed.times[rows] - other.times(owners)
            clock, live = timed.now[rows], np.abs(apart) < self._times.length
        if isinstance(other.sampler, FairWindow):
            return live, other.sampler.since[owners] <= clock
        return live, np.ones(owners.size, np.bool_)

    @property
    def _pairs_at_once(self) -> int:
        if self.memory is None:
            return _PAIRS
        return max(_LEAST_PAIRS, min(_PAIRS, self.stats.memory_limit // _WORK // _PAIR_WORK))

    @property
    def _result_bytes(self) -> int:
        """Bytes of results that are made at a time."""
        return _RESULTS if self.memory is None else self.stats.memory_limit // _WORK // _RESULT_SHARE

    # -- sides -----------------------------------------------------------------------------------------------------------

    def _side(self, number: int) -> SampledSide:
        side = self._sides[number]
        assert side is not None
        return side

    @property
    def _share(self) -> int:
        """Bytes of one side's sample."""
        return (self.stats.memory_limit - self.stats.memory_limit // _WORK) // 2

    def _made_output(self) -> Output:
        if self._output is None:
            self._output = self._make_output(self._side(0).schema, self._side(1).schema)
        return self._output

    def _make_output(self, left: pa.Schema, right: pa.Schema) -> Output:
        ask = self._ask if self.partitioning.exact else self.condition
        output = Output(self.condition, left, right, ask, self.suffix)
        if self._totals is not None:
            self._totals.bind(output, left)
        return output

    def _accept(self, number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return an arriving batch in the types that are kept. Whatever may be refused is looked at before anything changes."""
        whose = side_name(number)
        if not isinstance(batch, pa.RecordBatch):
            raise BadInput(
                f"{type(batch).__name__} is no batch of {whose}; give a pyarrow.RecordBatch, such as those of Table.to_batches()"
            )
        known = self._sides[number]
        schema = plain_schema(batch.schema, whose) if known is None else known.schema
        batch = in_schema(batch, schema, whose)
        if self.memory is not None:
            check_rows(batch, self._share, _LARGEST_ROW, self.memory, self.stats.memory_limit)
        if known is not None:
            self.partitioning.check(number, batch)
            return batch
        partitioning = deepcopy(self.partitioning)  # a batch that is refused must leave no trace
        partitioning.bind(number, schema)
        partitioning.check(number, batch)
        if self._times is not None:
            deepcopy(self._times).bind(schema, whose)
        other = self._sides[1 - number]
        if other is not None:
            self._make_output(*((schema, other.schema) if number == 0 else (other.schema, schema)))
        self._make_side(number, schema, batch)
        return batch

    def _make_side(self, number: int, schema: pa.Schema, batch: pa.RecordBatch) -> None:
        window: Window = self.window
        if isinstance(window, TimeWindow):
            # Tuples that come late find partners that would have left the window by now.
            window = TimeWindow(window.length + window.late, window.on, window.late)
        share = None if self.memory is None else self._share
        arguments: dict[str, Any] = {"window": window, "seed": self.seed, "stream": number}
        if self.method == "all":
            sampler: Sampler = Everything(memory=share, **arguments)
        else:
            sampler = _SAMPLERS[self.method](self.size, memory=share, **arguments)
        self.partitioning.bind(number, schema)
        if self._times is not None:
            self._times.bind(schema, side_name(number))
        cells = self.partitioning.home(number, self.partitioning.read(number, batch)).row.size / max(1, batch.num_rows)
        shape = (0, 0) if self._totals is None else self._totals.shape
        self._sides[number] = SampledSide(number, schema, batch, sampler, self.partitioning, cells, shape)

    def _totals_for(self, estimate: bool | str | Sequence[str], group_by: str | None, groups: int) -> JoinTotals | None:
        """What estimates are made from, if any are wanted."""
        if estimate is False:
            if group_by is not None:
                raise BadInput(
                    f"group_by={shown(group_by)} without estimate=; give estimate=True for counts, or columns to sum"
                )
            return None
        check_groups(groups)
        by_rows = isinstance(self.window, RowWindow)
        if not (self.method in ("fair", "all") or (self.method == "expire" and by_rows)):
            raise BadInput(
                f"estimate= needs a simple random sample, which method={self.method!r}"
                f" {'is not' if by_rows else 'is not in a window by time'}; use method='fair'"
            )
        columns = () if estimate is True else column_names("estimate", estimate)
        return JoinTotals(columns, group_by, groups)

    def _count(self) -> None:
        """Bring the counters of memory up to date."""
        sides = [side for side in self._sides if side is not None]
        self.stats.memory = {
            f"{SIDES[side.number]} {part}": n for side in sides for part, n in side.sampler.budget.held().items()
        }
        self.stats.memory_peak = sum(side.sampler.budget.peak for side in sides)
        self.stats.kept = [0 if side is None else side.sampler.stats.held for side in self._sides]


def _size_of(
    window: Window, sample: float | None, size: int | None, memory: int | str | None, method: str
) -> int | None:
    """The number of tuples of a sample; None if memory decides, or everything is kept."""
    given = [name for name, value in (("sample", sample), ("size", size), ("memory", memory)) if value is not None]
    if method == "all":
        if sample is not None or size is not None:
            raise BadInput(
                f"method='all' keeps everything, so that {given[0]}= says nothing; leave it out, or choose a method"
            )
        return None
    if len(given) != 1:
        raise BadInput(
            f"a window join takes one of sample=, size= and memory=, and {' and '.join(given) or 'none'} was given; sample=0.1"
            " keeps a tenth of a window by rows"
        )
    if size is not None:
        check_size("size", size, window)
        return size
    if sample is None:
        return None
    if not isinstance(window, RowWindow):
        raise BadInput(
            f"sample={shown(sample)} is a part of a window by rows; give size= or memory= with a window by time"
        )
    if isinstance(sample, bool) or not isinstance(sample, int | float) or not 0 < sample <= 1:
        raise BadInput(f"sample={shown(sample)} is not a part of a window; give more than 0, and 1 at most")
    return max(1, round(sample * window.size))


def _declaration(asked: Asked, group_by: str | None) -> str:
    """How a join must be made for what is asked."""
    columns = list(asked.columns)
    by = "" if group_by is None else f", group_by={group_by!r}"
    return f"estimate={columns or True}{by}"
