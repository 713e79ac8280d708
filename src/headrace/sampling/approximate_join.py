"""ApproximateJoin: joins two streams in limited memory, and drops what does not fit. [PQP] ch. 8, Alg. 6 and 7, §10.1"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Literal

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, Int32s, Int64s, UInt64s
from headrace.conditions import Condition, check_condition
from headrace.errors import BadInput, MemoryRefused, choice, shown
from headrace.kernels import approximate_join as kernels
from headrace.kernels import join_values as fields
from headrace.memory import MemoryBudget
from headrace.progressive.grids.keys import HashPartitioning
from headrace.progressive.grids.partitioning import SIDES
from headrace.progressive.grids.partitioning_for import partitioning_for
from headrace.progressive.output import BatchRows, Output, in_schema, left_and_right, plain_schema, side_name
from headrace.row_copies import copied_bytes
from headrace.sampling.dropping import Allocation, Replacement, dropping_for
from headrace.sampling.held_rows import WASTE, HeldRows
from headrace.sampling.join_memory import ENTRY_BYTES, SLOT_BYTES, ArrivingTuples, JoinMemory
from headrace.sampling.pending import Pending
from headrace.sampling.sampled_side import SampledRows
from headrace.sampling.sampler import MAX_SLOTS, ROWS_AT_ONCE, check_rows
from headrace.sampling.snapshot import Parts, SnapshotReader, write_side, write_snapshot
from headrace.sampling.stats import ApproximateJoinStats
from headrace.splitmix import draw, uniform_floats
from headrace.units import format_size, parse_size

ApproximateMethod = Literal["rrpj", "prob", "probhash", "raj", "rajhash", "mixture", "exact"]
METHODS = ("rrpj", "prob", "probhash", "raj", "rajhash", "mixture", "exact")
PARTITIONS = 50  # k: the text does not give it; its values are 1 to 50
COUNTERS = 1 << 20  # bytes for counts without a memory limit: about 4,800 values exactly, more in a sketch
_NO_LIMIT = 1 << 62  # bytes of a budget that only counts
_LEAST_MEMORY = 1 << 15  # bytes: less holds no more than a few tuples of each side
_LEAST_COUNTERS = 1 << 10  # bytes: less counts a few values, and makes of others a sketch that tells none apart
_WORK = 8  # 1/8 of the memory is working memory: results, and what is computed about a batch
_SPARE = 8  # 1/8 of the memory is left for rows that are longer than the first ones, or wait to be compacted
_SHRINK = 4  # a memory of tuples that has outgrown its bytes loses 1/4 of its tuples at a time
_PAIRS = 1 << 16  # pairs that are made at a time without a memory limit
_LEAST_PAIRS = 64  # pairs that are made at a time however small the memory is
_PAIR_WORK = 64  # bytes of what is computed about a pair, beside its rows
_RESULTS = 1 << 26  # bytes of results that are made at a time without a memory limit
_RESULT_SHARE = (
    4  # 1/4 of working memory is for results: rows of several chunks are there twice while they are put together
)
_LARGEST_ROW = 8  # a tuple takes at most 1/8 of the memory: it would drive too many others out
_LEAST_ROWS = 64  # rows that are taken in at a time however small the memory is
_ROW_WORK = 128  # bytes of what is computed about a row while it is taken in, roughly
_CHUNKS = 32  # a chunk of rows takes at most this part of the budget, so that merging two takes little memory
_LARGEST_CHUNK, _LEAST_CHUNK = 1 << 24, 1 << 16  # bytes of a chunk at most without a budget, and with any


class ApproximateJoin:
    """Joins two streams on equal keys in limited memory. What does not fit is dropped for good: results are a part of all.

        left batch --> probe the right tuples in memory --> results      right batch --> probe the left tuples --> results
                   +-> memory full: who is dropped?                                  +-> memory full: who is dropped?

    Choose by what the part is for: many results, or results with the same distribution over join values as all of them.

    =========== ================================================================ ======================
    method      who is dropped when memory is full                               favours
    =========== ================================================================ ======================
    "rrpj"      a tenth of memory: the partitions with the fewest results        quantity
    "prob"      the tuple whose value has come least on the other side           quantity
    "probhash"  the same; the text's algorithm scans one of k partitions         quantity
    "raj"       by reservoir sampling of each side                               quality
    "rajhash"   by reservoir sampling of each side, in k strata by value         quality
    "mixture"   each time as "raj" with probability `quality`, else as "prob"    as `quality` says
    "exact"     nobody                                                           all results: a yardstick
    =========== ================================================================ ======================

    Draws depend on the seed and the number of the tuple: any division into batches gives the same results, as long as the
    tuples of both sides come in the same order, and so does a join that goes on from a snapshot. (With `memory` the number of
    tuples that fit follows from the first batch.)

    Parameters
    ----------
    condition
        equal, or all_of with an equal beside others.
    tuples, memory
        One of: the number M of tuples of both sides together; or bytes, of which the first batch tells how many tuples fit. If
        later rows are longer, M is made smaller. "exact" takes `memory` as the most that it may hold, or neither.
    method
        See above.
    seed
        The seed of samples and of draws among equals.
    allocation
        Of "prob" and "probhash": half of M for each side ("fixed"), or one pool, of which either side may lose a tuple
        ("variable").
    replacement
        Of "rajhash": a tuple that enters takes the place of one of its stratum, as in Alg. 7 ("stratum"), so that strata keep
        the sizes that they had when memory was filled; or of any tuple ("anywhere"), which is a simple random sample.
    literal
        Of "rajhash" with "stratum": a tuple whose stratum is empty is dropped. Otherwise it takes the place of any tuple.
    quality
        Of "mixture": 0 is "prob", 1 is "raj".
    partitions
        The number k of partitions of each side: strata of "rajhash", partitions that "rrpj" drops.
    share
        Of "rrpj": the part of M that is dropped at a time.
    counters
        Bytes in which "prob", "probhash" and "mixture" count the arrivals of values; 1 MiB, or an eighth of `memory`, by
        default. Values are counted exactly until there are too many, and then in a count-min sketch.
    suffix
        Added to the name of a right column that the left side has too; None refuses it.

    Example
    -------
    >>> import headrace as hr, pyarrow as pa
    >>> from headrace.sampling import ApproximateJoin
    >>> op = ApproximateJoin(hr.equal("k"), tuples=4, method="prob")
    >>> list(op.insert("left", pa.record_batch({"k": [1, 2, 3], "a": [10, 20, 30]})))  # there is room for two left tuples
    []
    >>> sum(out.num_rows for out in op.insert("right", pa.record_batch({"k": [1, 2, 3]})))
    2

    Reference: [PQP] §8.3, Alg. 6, 7; §10.1 for the mixture.

    Deviations: memory is indexed by value, not scanned (`stats.scanned` counts what a scan would have read). Algorithms 6 and 7
    compare with < where <= is meant. A stratum that is empty when memory is full is a division by zero in Alg. 7: see
    `literal`. Prob's priorities are those of the counts now. Of tuples of one value the oldest is dropped first.
    """

    def __init__(
        self,
        condition: Condition,
        *,
        tuples: int | None = None,
        memory: int | str | None = None,
        method: ApproximateMethod = "rajhash",
        seed: int = 0,
        allocation: Allocation = "fixed",
        replacement: Replacement = "stratum",
        literal: bool = False,
        quality: float | None = None,
        partitions: int = PARTITIONS,
        share: float = 0.1,
        counters: int | str | None = None,
        suffix: str | None = "_right",
    ) -> None:
        check_condition(condition)
        choice("method", method, METHODS)
        self._dropping = dropping_for(method, allocation, replacement, literal, quality, share)
        _check_size(method, tuples, memory)
        if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
            raise BadInput(f"partitions={shown(partitions)} is not a number of partitions; give 1 or more")
        self.condition, self.method, self.seed, self.suffix = condition, method, seed, suffix
        self.tuples, self.memory, self.partitions = tuples, memory, partitions
        self.budget = MemoryBudget(_NO_LIMIT if memory is None else memory)
        self.stats = ApproximateJoinStats(memory_limit=0 if memory is None else self.budget.limit)
        if memory is not None and self.budget.limit < _LEAST_MEMORY:
            raise MemoryRefused(
                f"memory={shown(memory)} is too small for two streams; give at least {format_size(_LEAST_MEMORY)}"
            )
        self._counters = self._counter_bytes(counters)
        self._partitioning, self._ask = _by_key(condition)
        self._held: JoinMemory | None = None
        self._slots = 0  # of each side, that there is room for rows of
        self._rows: list[HeldRows | None] = [None, None]
        self._rows_parts = [self.budget.reserve(f"{side} rows", 0) for side in SIDES]
        self._output: Output | None = None
        self._pending = Pending()
        self._finished = False

    # -- what a user calls -----------------------------------------------------------------------------------------------

    def insert(self, side: Literal["left", "right"], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take in tuples of one side, and give the results with the tuples of the other side in memory.

        The batch is taken in while results are read; what is not read comes with the results of the next call.
        """
        number = SIDES.index(choice("side", side, SIDES))
        self._pending.check_whole()
        if self._finished:
            raise BadInput("this join has been finished; make another")
        self._pending.add(self._take_all(number, self._accept(number, batch)))
        return self._pending.drain()

    def count(self, side: Literal["left", "right"], batch: pa.RecordBatch) -> Int64s:
        """Take in tuples of one side, and say how many results each has, in the place of the results."""
        number = SIDES.index(choice("side", side, SIDES))
        self._pending.check_none("count")
        if self._finished:
            raise BadInput("this join has been finished; make another")
        batch = self._accept(number, batch)
        if not self._partitioning.exact or self._ask is not None:
            raise BadInput(
                f"{self.condition!r} is tested on every pair, so that results cannot be counted without making them; use insert"
            )
        out = np.zeros(batch.num_rows, np.int64)
        step = self._at_once(ROWS_AT_ONCE, _LEAST_ROWS, _ROW_WORK)
        for at in range(0, batch.num_rows, step):
            piece = batch.slice(at, step)
            rows, arriving = self._arriving(number, piece, counted=True)
            assert self._held is not None
            for _ in self._held.take_in(number, arriving, 1):
                raise AssertionError("pairs are counted, not made")
            out[at + rows] = arriving.matches
            self._keep(number, piece, rows, arriving.taken)
        self.stats.results += int(out.sum())
        self._count()
        return out

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Give the results that were not read. An approximate join owes no others."""
        self._pending.check_whole()
        self._finished = True
        return self._pending.drain()

    def kept(self, side: Literal["left", "right"]) -> pa.RecordBatch:
        """The tuples of a side that are in memory, in no particular order."""
        number = SIDES.index(choice("side", side, SIDES))
        self._pending.check_none("kept")
        rows = self._rows[number]
        if rows is None or self._held is None:
            raise BadInput(f"nothing of {side_name(number)} has come yet, so that its columns are not known")
        return rows.rows(self._held.in_use(number))

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
        arrays = {"_counters": np.array([s.results, *s.tuples_in, *s.skipped], np.int64)}
        if self._held is not None:
            arrays |= {"_size": np.array([self._held.tuples]), **self._held.arrays()}
        yield from write_snapshot(repr(self), arrays)
        for number, rows in enumerate(self._rows):
            if rows is not None and self._held is not None:
                yield from write_side(SIDES[number], write_snapshot("rows", {}, rows.pieces(self._held.in_use(number))))

    def restore(self, snapshot: Iterable[pa.RecordBatch]) -> None:
        """Go on from a snapshot of a join that was made with the same arguments."""
        reader = SnapshotReader(snapshot)
        reader.check(repr(self))
        arrays = reader.arrays()
        counters = arrays.pop("_counters").tolist()
        s = self.stats
        s.results, s.tuples_in, s.skipped = counters[0], counters[1:3], counters[3:5]
        self._partitioning, self._ask = _by_key(self.condition)
        self._output, self._pending, self._finished = None, Pending(), False
        self._rows = [None, None]
        for part in self._rows_parts:
            part.resize(0)
        if "_size" in arrays:
            self._make_memory(int(arrays.pop("_size")[0]))
            assert self._held is not None
            self._held.restore(arrays)
            self._slots = self._held.slots
        while (name := reader.side()) is not None:
            reader.check("rows")
            self._restore_rows(SIDES.index(name), reader.rows())
        self._count()

    def _restore_rows(self, number: int, rows: Iterator[pa.RecordBatch]) -> None:
        assert self._held is not None
        slots, at = self._held.in_use(number), 0
        for batch in rows:
            if not at:
                self._make_side(number, batch.schema)
            mine = slots[at : at + batch.num_rows]
            self._rows_of(number).write(batch, np.arange(mine.size, dtype=np.int32), mine, slots.size)
            at += batch.num_rows

    def __repr__(self) -> str:
        size = "" if self.tuples is None else f" tuples={self.tuples},"
        size += "" if self.memory is None else f" memory={self.memory!r},"
        return (
            f"ApproximateJoin({self.condition!r},{size} method={self.method!r}, seed={self.seed},"
            f" partitions={self.partitions}, counters={self._counters}, suffix={self.suffix!r}, {self._dropping})"
        )

    # -- a batch ---------------------------------------------------------------------------------------------------------

    def _take_all(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take in a batch, as many rows at a time as working memory has room for."""
        step = self._at_once(ROWS_AT_ONCE, _LEAST_ROWS, _ROW_WORK)
        for at in range(0, batch.num_rows, step):
            for out in self._take_in(number, batch.slice(at, step)):
                self.stats.results += out.num_rows
                yield out
            self._count()

    def _take_in(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join tuples with the other side's memory, each as it comes, and keep those that find a place."""
        assert self._held is not None
        rows, arriving = self._arriving(number, batch, counted=False)
        most = self._at_once(_PAIRS, _LEAST_PAIRS, _PAIR_WORK)
        for tuples, slots in self._held.take_in(number, arriving, most):
            yield from self._results(number, batch, rows[tuples], slots)
        self._keep(number, batch, rows, arriving.taken)

    def _arriving(self, number: int, batch: pa.RecordBatch, counted: bool) -> tuple[Int32s, ArrivingTuples]:
        """The tuples of a batch that have a key: their rows, and what decides about them."""
        assert self._held is not None
        home = self._partitioning.home(number, self._partitioning.read(number, batch))
        n = home.row.size
        self.stats.tuples_in[number] += batch.num_rows
        self.stats.skipped[number] += batch.num_rows - n
        first = self._held.number(fields.ARRIVED)[number]
        arrivals = np.arange(first, first + n)
        coins = uniform_floats(draw(self.seed, 2 + number, arrivals))
        return home.row, ArrivingTuples(
            home.cell,
            self._partitions_of(number, batch, home.row, home.cell),
            draw(self.seed, number, arrivals),
            (coins < self._dropping.sampled).view(np.uint8),
            np.full(n, -1, np.int32),
            np.zeros(n if counted else 0, np.int64),
        )

    def _results(self, number: int, batch: pa.RecordBatch, rows: Int32s, slots: Int32s) -> Iterator[pa.RecordBatch]:
        """The results of arriving rows with slots of the other side."""
        other, output = self._rows_of(1 - number), self._made_output()
        order = other.by_chunk(slots)
        rows, slots = rows[order], slots[order]
        for some in other.pairs_that_fit(batch, rows, slots, self._at_once(_RESULTS, 1, _RESULT_SHARE)):
            mine, theirs = BatchRows(batch, rows[some]), SampledRows(other, slots[some])
            left, right = left_and_right(number, mine, theirs)
            which = output.test(left, right)
            if which is None or which.any():
                yield output.results(left, right, which)

    def _keep(self, number: int, batch: pa.RecordBatch, rows: Int32s, taken: Int32s) -> None:
        """Copy the rows of arriving tuples that are held, and forget those of tuples that were dropped."""
        assert self._held is not None
        held = self._held
        for side, of_side in enumerate(self._rows):
            if of_side is not None:
                of_side.forget(held.freed(side))
        if held.slots != self._slots:
            self._grow(held.slots)
        own = self._rows_of(number)
        entered = held.entered(number, taken)
        if self.memory is not None:
            own.forget(taken[entered])  # what these slots held before will be overwritten
            entered = self._fit(number, batch, rows, taken, entered)
        own.write(batch, rows[entered], taken[entered], held.number(fields.HELD)[number])

    def _fit(self, number: int, batch: pa.RecordBatch, arrived: Int32s, taken: Int32s, entered: Int32s) -> Int32s:
        """Make memory smaller until new rows fit its bytes. Returns those that are still held."""
        assert self._held is not None
        held = self._held
        while (needed := copied_bytes(batch, arrived[entered])) > self.budget.left:
            kept = held.number(fields.HELD)
            for side, rows in enumerate(self._rows):
                if rows is not None:
                    rows.compact(kept[side] - (entered.size if side == number else 0))
            if needed <= self.budget.left:
                break
            smaller = held.size - max(2, held.size // _SHRINK)
            if self._dropping.placing == kernels.KEEP_ALL or smaller < 2:
                raise MemoryRefused(
                    f"{entered.size:,} tuples of {format_size(needed)} do not fit memory={shown(self.memory)}; give more, or"
                    " choose a method that drops tuples"
                )
            for side, slots in enumerate(held.shrink(smaller)):
                self._forget(side, slots)
            entered = held.entered(number, taken)
        return entered

    def _forget(self, side: int, slots: Int32s) -> None:
        rows = self._rows[side]
        if rows is not None and slots.size:
            rows.forget(slots)

    def _partitions_of(self, number: int, batch: pa.RecordBatch, rows: Int32s, codes: UInt64s) -> Int32s:
        """The partition of each row: its value modulo k, or the hash of its key if that is no single integer."""
        values: AnyArray = codes
        columns = self._partitioning.columns[number]
        if len(columns) == 1 and pa.types.is_integer(batch.schema.field(columns[0]).type):
            values = batch.column(columns[0]).fill_null(0).to_numpy(zero_copy_only=False)[rows]
            if values.dtype != np.uint64:
                values = values.astype(np.int64)  # k may be larger than a narrow type
        out: Int32s = np.mod(values, values.dtype.type(self.partitions)).astype(np.int32)
        return out

    def _at_once(self, most: int, least: int, each: int) -> int:
        """How many items of so many bytes are handled at a time."""
        return most if self.memory is None else max(least, min(most, self.budget.limit // _WORK // each))

    # -- memory ----------------------------------------------------------------------------------------------------------

    def _counter_bytes(self, counters: int | str | None) -> int:
        """The bytes in which arrivals of values are counted; 0 if they are not."""
        if not self._dropping.counts:
            if counters is not None:
                raise BadInput(
                    f"counters={shown(counters)} is for prob, probhash and mixture; {self.method} counts no values"
                )
            return 0
        if counters is None:
            return COUNTERS if self.memory is None else self.budget.limit // _WORK
        nbytes = parse_size(counters, name="counters")
        if nbytes < _LEAST_COUNTERS or nbytes > self.budget.limit // 2:
            raise BadInput(
                f"counters={shown(counters)} is out of range; give at least {format_size(_LEAST_COUNTERS)}, and half of memory"
                " at most"
            )
        return nbytes

    def _size_for(self, batch: pa.RecordBatch) -> int:
        """The number of tuples of both sides like those of a batch that fit; 0 for no limit."""
        if self._dropping.placing == kernels.KEEP_ALL:
            return 0
        if self.tuples is not None:
            return self.tuples
        each = WASTE * copied_bytes(batch) / max(1, batch.num_rows)
        each += ENTRY_BYTES + SLOT_BYTES * (2 if self._dropping.pool else 1)
        limit = self.budget.limit
        size = min(MAX_SLOTS, int((limit - limit // _WORK - limit // _SPARE - self._counters) / each))
        if size < 2:
            raise MemoryRefused(
                f"memory={shown(self.memory)} is too small for two tuples of {format_size(int(each))} with what they need; give"
                f" at least {format_size(int(4 * each))}"
            )
        return size

    def _make_memory(self, size: int) -> None:
        arguments = self._dropping, size, self.partitions, self._counters, self.seed, self.budget
        if self._held is not None:
            self._held.release()
        self._held = JoinMemory(*arguments)
        self._slots = self._held.slots

    def _make_side(self, number: int, schema: pa.Schema) -> None:
        assert self._held is not None
        self._partitioning.bind(number, schema)
        most = _LARGEST_CHUNK if self.memory is None else max(_LEAST_CHUNK, self.budget.limit // _CHUNKS)
        self._rows[number] = HeldRows(schema, self._held.slots, self._rows_parts[number], most)

    def _grow(self, slots: int) -> None:
        """Follow memory, which has got more slots."""
        self._slots = slots
        for rows in self._rows:
            if rows is not None:
                rows.grow(slots)

    def _rows_of(self, number: int) -> HeldRows:
        rows = self._rows[number]
        assert rows is not None
        return rows

    def _made_output(self) -> Output:
        if self._output is None:
            self._output = self._make_output(self._rows_of(0).schema, self._rows_of(1).schema)
        return self._output

    def _make_output(self, left: pa.Schema, right: pa.Schema) -> Output:
        return Output(
            self.condition, left, right, self._ask if self._partitioning.exact else self.condition, self.suffix
        )

    def _accept(self, number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return an arriving batch in the types that are kept. Whatever may be refused is looked at before anything changes."""
        whose, known = side_name(number), self._rows[number]
        if not isinstance(batch, pa.RecordBatch):
            raise BadInput(
                f"{type(batch).__name__} is no batch of {whose}; give a pyarrow.RecordBatch, such as those of Table.to_batches()"
            )
        schema = plain_schema(batch.schema, whose) if known is None else known.schema
        batch = in_schema(batch, schema, whose)
        if self.memory is not None:
            check_rows(batch, self.budget.limit, _LARGEST_ROW, self.memory, self.budget.limit)
        if known is not None:
            return batch
        deepcopy(self._partitioning).bind(number, schema)  # a batch that is refused must leave no trace
        other = self._rows[1 - number]
        if other is not None:
            self._make_output(*((schema, other.schema) if number == 0 else (other.schema, schema)))
        if self._held is None:
            self._make_memory(self._size_for(batch))
        self._make_side(number, schema)
        return batch

    def _count(self) -> None:
        """Bring the counters up to date."""
        s, budget = self.stats, self.budget
        s.memory, s.memory_peak = budget.held(), budget.peak
        if self._held is not None:
            s.kept, s.scanned = self._held.number(fields.HELD), self._held.number(fields.SCANNED)
            s.flushes = int(self._held.values.numbers[fields.FLUSHES])
            s.sketched, s.size = self._held.sketched, self._held.size


def _check_size(method: str, tuples: int | None, memory: int | str | None) -> None:
    """Refuse a size that no memory can have."""
    if method == "exact":
        if tuples is not None:
            raise BadInput(
                f"method='exact' keeps everything, so that tuples={shown(tuples)} says nothing; leave it out"
            )
        return
    if (tuples is None) == (memory is None):
        raise BadInput(
            "an approximate join needs its size: give either tuples=, of both sides together, or memory=, in bytes"
        )
    if tuples is not None and (isinstance(tuples, bool) or not isinstance(tuples, int) or not 2 <= tuples <= MAX_SLOTS):
        raise BadInput(f"tuples={shown(tuples)} is not a number of tuples of two sides; give 2 or more")


def _by_key(condition: Condition) -> tuple[HashPartitioning, Condition | None]:
    """The partitioning by the key of a condition, and what is still to be tested on pairs."""
    partitioning, ask = partitioning_for(condition)
    if not isinstance(partitioning, HashPartitioning):
        raise BadInput(
            f"{condition!r} has no equal key, by which approximate joins count and drop; use equal, or all_of with one of them"
        )
    return partitioning, ask
