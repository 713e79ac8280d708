"""MultiWaySpec: the settings of a join of several streams on one key, across micro-batches. [PQP] §7.1.3, Alg. 5; DESIGN D7"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s
from headrace.metrics import JoinStats
from headrace.progressive.grids.keys import HashPartitioning
from headrace.progressive.logged.join_spec import TimeBound
from headrace.progressive.logged.multiway_catch_up import MultiWayCatchUp
from headrace.progressive.logged.rows import LoggedRows
from headrace.progressive.logged.sharding import ShardedRows, Sharding
from headrace.progressive.memory.side_memory import SideMemory
from headrace.progressive.multiway_output import MultiWayOutput, ScatteredRows
from headrace.progressive.output import BatchRows
from headrace.progressive.probing import Prober

_RESULT_BYTES = 16  # of a result for each stream beside its rows: its slot there, and its place in order


@dataclass(frozen=True, kw_only=True)
class MultiWaySpec:
    """A join of several streams, of which a result has a row each. LoggedJoin runs it.

    Parameters
    ----------
    on
        The key's column in each stream.
    schemas
        The columns of each stream.
    partitions
        Of each stream.
    probing, selectivity, fade, suffix
        See MultiWayJoin.
    capacity
        Tuples in memory at most, beside the limit of bytes; None: no such limit.
    static
        Streams that are read once, and are none in truth.
    """

    on: tuple[str, ...]
    schemas: tuple[pa.Schema, ...]
    partitions: int
    probing: str = "rop"
    selectivity: tuple[float, ...] | None = None
    fade: int | None = None
    suffix: str | None = "_"
    capacity: int | None = None
    static: tuple[bool, ...]
    partitioning: HashPartitioning = field(init=False)
    output: MultiWayOutput = field(init=False)
    probes: Int64s = field(init=False)
    """probes of each stream's memory in this process"""
    results: None = field(init=False, default=None)
    """all results are of rows of all streams"""
    prober: Prober = field(init=False)
    """what was learnt in this process about the order of probes; it changes no result"""

    def __post_init__(self) -> None:
        partitioning = HashPartitioning.of_streams(self.on, self.partitions)
        for number, schema in enumerate(self.schemas):
            partitioning.bind(number, schema)
        n = len(self.schemas)
        probes: Int64s = np.zeros(n, np.int64)
        prober = Prober(self.probing, n, self.selectivity, self.fade, probes, np.zeros(n, np.int64))
        output = MultiWayOutput(self.schemas, self.on, self.suffix, ask=not partitioning.exact)
        made = {"partitioning": partitioning, "output": output, "probes": probes, "prober": prober}
        for name, part in made.items():
            object.__setattr__(self, name, part)

    @property
    def bound(self) -> TimeBound | None:
        """None: rows do not expire."""
        return None

    def parts(
        self, sharding: Sharding, rows: Sequence[LoggedRows], stats: JoinStats, batch: int, chunk: int
    ) -> tuple[MultiWayMatcher, MultiWayCatchUp]:
        """What joins rows with memory, and what catches up, in one micro-batch."""
        return MultiWayMatcher(self, stats, chunk), MultiWayCatchUp(self.output, sharding, rows, stats, batch, chunk)


class MultiWayMatcher:
    """Probes the memory of all other streams with rows that come.

    Parameters
    ----------
    spec
        The join.
    stats
        Counts probes and results.
    chunk
        Bytes of results that are made at a time.
    """

    def __init__(self, spec: MultiWaySpec, stats: JoinStats, chunk: int) -> None:
        self.spec, self.stats, self.chunk = spec, stats, chunk

    def meet(
        self, number: int, rows: ShardedRows, sides: Sequence[SideMemory]
    ) -> Iterator[tuple[pa.RecordBatch, list[tuple[int, Int32s]]]]:
        """Give the results of a stream's rows with the memory of all others, and the slots of each that they are of."""
        spec, entries = self.spec, rows.entries
        before = int(spec.probes.sum())
        matches = spec.prober.probe(number, entries.cell, sides)
        self.stats.probes += int(spec.probes.sum()) - before
        if matches is None:
            return
        others = [side for side in sides if side.number != number]
        each = sum(side.row_bytes for side in others) + rows.rows.nbytes // max(1, rows.rows.num_rows) + 1
        for picked, slots in matches.products(max(1, self.chunk // (2 * each + _RESULT_BYTES * len(sides)))):
            mine = BatchRows(rows.rows, entries.row[picked])
            out, which = spec.output.make(
                [mine if side.number == number else ScatteredRows(side, slots[side.number]) for side in sides]
            )
            if out.num_rows:
                self.stats.results += out.num_rows
                probed = [(side.number, slots[side.number]) for side in others]
                yield out, probed if which is None else [(other, some[which]) for other, some in probed]
