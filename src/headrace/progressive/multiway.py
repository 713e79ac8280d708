"""MultiWayJoin: n streams on one key, with probes in the order of fewest results first. [PQP] §7.1.3, Alg. 5"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s
from headrace.errors import BadInput, MemoryRefused
from headrace.memory import MemoryBudget
from headrace.progressive.arrival import Arrival, Piece
from headrace.progressive.calls import Calls
from headrace.progressive.grids.partitioning import CellEntries
from headrace.progressive.memory.evict import Evictor
from headrace.progressive.memory.streams import Streams
from headrace.progressive.multiway_cleanup import MultiWayCleanup
from headrace.progressive.multiway_output import ScatteredRows
from headrace.progressive.output import BatchRows
from headrace.progressive.policies import FlushPolicy, PartitionStats, policy_of
from headrace.progressive.probing import Prober
from headrace.progressive.stats import ProgressiveStats
from headrace.relation.disk import Disk
from headrace.units import format_size

LEAST_MEMORY = 1 << 17  # bytes a stream: as ProgressiveJoin, which has 256 KiB for two
FADE = 1000  # probes: the rate of a stream is known to within 3% by then, and a change shows soon


@dataclass(slots=True, kw_only=True)
class MultiWayStats(ProgressiveStats):
    """Counts what a multi-way join has done so far. Lists and arrays have an item for each stream.

    `in_memory` counts results of arriving tuples, and `disk_disk` those of the clean-up; the other phases do not occur.
    """

    probes: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    """probes of each stream's memory"""
    partial: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    """probes that found a match and left some stream to be probed: partial results"""
    complete: int = 0
    """arriving tuples that found a match in every other stream"""

    @classmethod
    def empty(cls, streams: int, memory_limit: int) -> MultiWayStats:
        """Counters of a join that has seen no tuple yet."""
        tuples_in, skipped, outside = ([0] * streams for _ in range(3))
        probes, partial = (np.zeros(streams, np.int64) for _ in range(2))
        return cls(
            tuples_in=tuples_in,
            skipped=skipped,
            outside=outside,
            probes=probes,
            partial=partial,
            memory_limit=memory_limit,
        )


class MultiWayJoin:
    """Joins n streams on one key: a result has a tuple of each, all with the same key.

        batch of stream 1 --> probe 0, 2, 3 in the order of fewest matches; the first without a match ends the tuple
                          |     all have one --> the product of the matches, some at a time
                          +-> insert into the memory of stream 1 -- full --> policy: the least productive --> disk

    Choose it when three or more streams have one key, and results are wanted before they end. A chain of two-way joins would
    keep intermediate results in memory; here only tuples of the streams are kept. `insert` and `finish` are iterators of record
    batches that must be read to their ends. Products are enumerated as they are read: a frequent key takes time and no memory.

    No n-tuple twice, none missed. A counter gives stamps: every piece of a batch that is taken in has one, and every flush. A
    tuple has its arrival A, the stamp of its piece, and its departure D, the stamp of the flush that wrote it (in memory:
    infinite). A piece has tuples of one stream, so the tuples of an n-tuple have n different arrivals. Let A* be the latest of
    them.

    - When the last tuple comes, at A*, it is joined with all that is in memory. Each of the others had come before; it was in
      memory then if and only if D > A*. So the n-tuple is sent at A* if every D is above A*, and not otherwise: the last tuple
      itself departs after it has come. It is not sent at another time, since only an arriving tuple is joined with memory.
    - `finish` writes what is still in memory to disk, partition by partition, with a departure after all arrivals, and joins
      all tuples of a partition that have equal keys. It sends those n-tuples of which some D is below A*.

    D and A* are never equal, since stamps are given once. So each n-tuple is sent in one of both ways, once. A partition of
    which nothing was ever flushed has nothing to send in `finish`, and is not written. Tuples with equal keys are in partitions
    of the same number, so none is missed. The work of the clean-up is bounded by the number of all results of its partitions.

    A batch that is refused (BadInput, UnsupportedType, MemoryRefused) leaves the join as it was. If a flush fails, as it does
    on a full disk, nothing is lost: the next call goes on where the last one stopped. So it does if the iterator of `insert` or
    `finish` was dropped before its end. After any other error in the middle of a step every call is refused.

    Parameters
    ----------
    on
        The key's column: one name, or one for each stream. Tuples without a key join nothing.
    streams
        The number of streams, 2 or more.
    memory
        The budget of all streams together, in bytes or as "64MiB".
    probing
        In which order an arriving tuple probes the other streams: "rop" by hits a probe, the fewest first; "rop-literal" by
        partial results, as the text has it; "sequential" by number; "apriori" by `selectivity`.
    selectivity
        For "apriori", a number for each stream: the part of probes that find a match. The lowest is probed first.
    fade
        How long probing remembers: with "rop" what a stream was found to be so many probes of it ago counts 1/e, with
        "rop-literal" so many arrivals ago. None forgets nothing.
    flush
        The flush policy, by name or as an object; not one that decides between two sides (la, foresight), if there are more.
    partitions
        The number of partitions of each stream; fewer if a list of them would take too much of the memory.
    capacity
        The number of tuples in memory at most, in addition to the budget; no such limit if None.
    suffix
        Added, with the stream's number, to the name of a column that an earlier stream has too; None refuses it.
    disk
        A simulated disk charges reads and writes to its clock.
    spill
        The directory of the files that tuples are flushed to; the system's for temporary files if None.

    Example
    -------
    >>> import pyarrow as pa
    >>> from headrace.progressive import MultiWayJoin
    >>> op = MultiWayJoin(on="k", streams=3, memory="8MiB")
    >>> list(op.insert(0, pa.record_batch({"k": [1, 2], "a": ["x", "y"]})))
    []
    >>> list(op.insert(1, pa.record_batch({"k": [2, 2], "b": [10, 20]})))
    []
    >>> [out.to_pylist() for out in op.insert(2, pa.record_batch({"k": [2], "c": [True]}))]
    [[{'k': 2, 'a': 'y', 'b': 20, 'c': True}, {'k': 2, 'a': 'y', 'b': 10, 'c': True}]]
    >>> list(op.finish())
    []

    Reference: [PQP] §7.1.3, Alg. 5.

    Deviations: results are n-tuples, the products of all matches, where the text sends the tuple that found them. The text
    counts partial results, which a stream that is probed last never has, so that its turn comes again and again; "rop" counts
    hits and probes. Counters fade, since the text asks for an order that follows a change. The text measures memory alone, and
    has no clean-up for more than two streams. Nothing is joined with disk before `finish`.
    """

    def __init__(
        self,
        on: str | Sequence[str],
        streams: int,
        memory: int | str = "64MiB",
        probing: Literal["rop", "rop-literal", "sequential", "apriori"] = "rop",
        flush: str | FlushPolicy = "rrpj",
        *,
        selectivity: Sequence[float] | None = None,
        fade: int | None = FADE,
        partitions: int = 64,
        capacity: int | None = None,
        suffix: str | None = "_",
        disk: Disk | None = None,
        spill: Path | None = None,
    ) -> None:
        self.streams = _number_of_streams(streams)
        self.on = key_columns(on, streams)
        self.budget = MemoryBudget(memory)
        self.policy = policy_of(flush)
        if self.policy.two_sided and streams > 2:
            raise BadInput(
                f"flush={flush!r} decides between two sides, and there are {streams} streams; take rrpj, rpj or another"
            )
        least = LEAST_MEMORY * streams + self.policy.nbytes
        if self.budget.limit < least:
            raise MemoryRefused(
                f"memory={memory!r} is too small for {streams} streams with {type(self.policy).__name__}; give at least"
                f" {format_size(least)}"
            )
        self.budget.reserve("flush policy", self.policy.nbytes)
        if capacity is not None and capacity < 1:
            raise BadInput(f"capacity={capacity!r} is not a number of tuples; give 1 or more, or None")
        self.capacity = capacity
        self.stats = MultiWayStats.empty(streams, self.budget.limit)
        self.probing, self.selectivity, self.fade = probing, selectivity, fade
        self._prober = Prober(probing, streams, selectivity, fade, self.stats.probes, self.stats.partial)
        self._streams = Streams(
            self.on,
            partitions,
            suffix,
            self.budget,
            counted=self.policy.per_tuple,
            disk=disk or Disk(),
            directory=spill,
            stats=self.stats,
        )
        self.partitioning = self._streams.partitioning
        self.partition_stats = PartitionStats.empty(self.partitioning.partitions, streams)
        self._stamp = 0
        self._arrivals: list[Arrival] = []  # the batch that is being taken in, and one that came after an error, if any
        self._calls = Calls(self.stats, self.budget)
        self._evictor = Evictor(
            self.policy, self._streams, self.partition_stats, self.stats, capacity=capacity, tick=self._tick
        )
        self._cleanup = MultiWayCleanup(self._streams, self._evictor, self.partition_stats, self.stats)

    # -- the public steps ------------------------------------------------------------------------------------------------

    def insert(self, stream: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take in tuples of a stream: join them with the memory of all others, send the results, and keep the tuples."""
        if isinstance(stream, bool) or not isinstance(stream, int) or not 0 <= stream < self.streams:
            raise BadInput(f"stream={stream!r} is not a stream; give a number from 0 to {self.streams - 1}")
        self._calls.may_begin("insert")
        batch = self._streams.accept(stream, batch)
        self._arrivals.append(Arrival(stream, batch, self._streams.rows_at_once(batch)))
        return self._calls.until_read("insert", self._take_in())

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Join everything that is left, after all streams have ended."""
        self._calls.may_begin("finish")
        return self._calls.until_read("finish", chain(self._take_in(), self._calls.steady(self._cleanup.run())))

    @property
    def order(self) -> list[int]:
        """The streams in the order of the last tuple's probes."""
        return [int(stream) for stream in self._prober.order]

    # -- the in-memory phase ---------------------------------------------------------------------------------------------

    def _take_in(self) -> Iterator[pa.RecordBatch]:
        """Take in the batch that has arrived, or the rest of it: pieces that fit working memory probe, then are kept."""
        while self._arrivals:
            arrival = self._arrivals[0]
            while arrival.at < arrival.batch.num_rows:
                if arrival.piece is None:
                    arrival.piece = self._next_piece(arrival)
                yield from self._calls.steady(arrival.piece.results)
                self._keep(arrival.number, arrival.piece)
                arrival.at, arrival.piece = arrival.at + arrival.piece.batch.num_rows, None
            self.stats.tuples_in[arrival.number] += arrival.batch.num_rows
            self._arrivals.pop(0)

    def _next_piece(self, arrival: Arrival) -> Piece:
        """The next rows of a batch, as many as fit working memory, with their hashes."""
        streams, number = self._streams, arrival.number
        if self.capacity is not None:
            # No more than a flush removes; the largest partition has at least its share of the tuples in memory.
            of_partition = self.capacity // (self.streams * self.partitioning.partitions) if self.policy.whole else 0
            arrival.step = min(arrival.step, max(1, of_partition, self.policy.wanted(self.capacity)))
        while True:
            batch = arrival.batch.slice(arrival.at, arrival.step)
            # A few rows may be much longer than most, so that fewer fit than expected.
            taken = batch.nbytes + batch.num_rows * streams.memory(number).slot_bytes
            if batch.num_rows == 1 or taken <= streams.largest_row:
                break
            arrival.step = batch.num_rows // 2
        keys = self.partitioning.read(number, batch)
        home = self.partitioning.home(number, keys)
        self.stats.skipped[number] += batch.num_rows - home.row.size
        return Piece(batch, keys, home, self._tick(), self._probe(number, batch, home))

    def _probe(self, number: int, batch: pa.RecordBatch, home: CellEntries) -> Iterator[pa.RecordBatch]:
        """Join arriving tuples with the memory of all other streams."""
        streams = self._streams
        matches = self._prober.probe(number, home.cell, streams.memories)
        if matches is None:
            return
        self.stats.complete += matches.rows.size
        each = [memory.row_bytes for memory in matches.memories]
        each[number] = batch.nbytes // batch.num_rows + 1
        for rows, slots in matches.products(streams.results_at_once(each)):
            mine = BatchRows(batch, home.row[rows])
            out, which = streams.output.make(
                [
                    mine if memory.number == number else ScatteredRows(memory, slots[memory.number])
                    for memory in matches.memories
                ]
            )
            for memory in matches.memories:
                if memory.number != number:
                    made = slots[memory.number] if which is None else slots[memory.number][which]
                    self.partition_stats.made_results(memory.number, memory.partition[made])
                    if memory.results.size:
                        np.add.at(memory.results, made, np.int32(1))
            self.stats.in_memory += out.num_rows
            yield out

    def _keep(self, number: int, piece: Piece) -> None:
        """Put rows that have probed into memory. If there is no room and none can be made, nothing has changed."""
        home = piece.home
        if home.row.size:
            partitions = self.partitioning.partition_of(home.cell)
            if not piece.announced:
                self.policy.arrive(number, home.cell, partitions)
                piece.announced = True
            self._evictor.make_room(number, piece.batch, home.row.size)
            self._streams.memory(number).insert(piece.batch, home, piece.keys.values, partitions, piece.stamp)
            self.partition_stats.arrived_tuples(number, partitions)

    def _tick(self) -> int:
        """Give the next stamp."""
        self._stamp += 1
        return self._stamp


def _number_of_streams(streams: int) -> int:
    if isinstance(streams, bool) or not isinstance(streams, int) or streams < 2:
        raise BadInput(f"streams={streams!r} is not a number of streams to join; give 2 or more")
    return streams


def key_columns(on: str | Sequence[str], streams: int) -> tuple[str, ...]:
    """The key's column in each stream; refuses what is neither one name nor one for each."""
    names = (on,) * streams if isinstance(on, str) else tuple(on)
    if len(names) != streams or not all(isinstance(name, str) and name for name in names):
        raise BadInput(
            f"on={on!r} is not a key of {streams} streams; give the name of a column, or one for each stream"
        )
    return names
