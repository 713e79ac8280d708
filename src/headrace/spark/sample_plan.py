"""What window joins, approximate joins, samples and estimates have in common on the driver: sides, shards, times and memory."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.functions import col, lit, pmod, spark_partition_id, struct, xxhash64
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from headrace.conditions import Condition
from headrace.errors import BadInput, shown
from headrace.progressive.grids.keys import HashPartitioning
from headrace.progressive.grids.partitioning import SIDES, Partitioning
from headrace.progressive.grids.partitioning_for import CellWidth, unbounded_partitioning_for
from headrace.progressive.output import plain_schema, side_name
from headrace.sampling.arrival_order import FROM, window_within
from headrace.sampling.cell_shard import CellShard
from headrace.spark.column_names import ColumnNames
from headrace.spark.executors import workers_of
from headrace.spark.pair_rows import numbered_struct, pairs_by_shard
from headrace.spark.pair_step import Sides
from headrace.spark.plan import Plan
from headrace.spark.sample_step import OperatorSpec, SampleStep
from headrace.spark.sampling_memory import sampling_memory
from headrace.spark.schemas import stream_schema
from headrace.spark.state.stateful import BEAT, SHARD, state_path
from headrace.spark.steps import StateKeeping
from headrace.spark.watermarks import watermark_delay
from headrace.splitmix import draw
from headrace.units import parse_size
from headrace.windows import RowWindow, TimeWindow, Window, check_window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PARTITIONS = 64  # of a grid, which has them for joins that flush
_SEEDS = 1 << 20  # the stream of random words that the seeds of shards are of


@dataclass(frozen=True)
class SampledSides:
    """The sides of an operator that samples, one or two, and what follows from them."""

    dfs: tuple[DataFrame, ...]
    window: Window | None
    shards: int
    workers: int
    condition: Condition | None = None
    cell: CellWidth | None = None
    suffix: str | None = None

    @property
    def names(self) -> ColumnNames:
        """How the session compares names."""
        return ColumnNames.of(self.dfs[0].sparkSession)

    @property
    def streaming(self) -> bool:
        """Whether a side is a stream."""
        return any(df.isStreaming for df in self.dfs)

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The columns of each side as operators have them."""
        return tuple(plain_schema(stream_schema(df.schema), side_name(i)) for i, df in enumerate(self.dfs))

    @property
    def delays(self) -> tuple[float | None, ...]:
        """The seconds that rows of each side may be late in a window by time; None: they never are."""
        if not isinstance(self.window, TimeWindow):
            return (None,) * len(self.dfs)
        return tuple(watermark_delay(side, df, self.window.on) for side, df in enumerate(self.dfs))

    @property
    def shard_window(self) -> Window | None:
        """The window of a shard's operator."""
        if isinstance(self.window, RowWindow):
            return RowWindow(-(-self.window.size // self.shards))
        return None if self.window is None else window_within(self.window, self.delays)

    def of_shard(self, number: int | None) -> int | None:
        """A shard's part of a number of tuples."""
        if number is None or isinstance(number, bool) or not isinstance(number, int) or number < 1:
            return number  # refused by the operator, by name
        return -(-number // self.shards)

    def worker_bytes(self, memory: int | str | None) -> int | None:
        """The bytes of an operator, of an executor's memory."""
        return sampling_memory(memory, self.workers)

    def rows(self, *, marked: bool = False) -> DataFrame:
        """All rows by shard: a struct for each side, the number of the task, the shard, and whether it is a mark.

        With `marked`, each micro-batch has a mark for every shard, so that a shard to which nothing comes has a task too.
        """
        if len(self.dfs) == 2:
            assert self.condition is not None
            sides = Sides(
                condition=self.condition,
                schemas=(self.schemas[0], self.schemas[1]),
                suffix=self.suffix,
                partitions=_PARTITIONS,
                cell=self.cell,
                bound=None,
                static=(False, False),
            )
            rows = pairs_by_shard((self.dfs[0], self.dfs[1]), sides, self.shards, sides.pairing().partitioning)
        else:
            names = [f"c{i}" for i in range(len(self.dfs[0].columns))]
            shard = pmod(xxhash64(*names), lit(self.shards)).cast("int")
            mine = struct(*(col(name) for name in names)).alias("c0")
            rows = self.dfs[0].toDF(*names).select(mine, shard.alias(SHARD), lit(False).alias(BEAT))
        structs = [col(f"c{i}") for i in range(len(self.dfs))]
        task = spark_partition_id().alias(f"c{len(self.dfs)}")
        rows = rows.select(*structs, task, col(SHARD), col(BEAT))
        if marked and self.shards > 1:
            rows = _marked(rows, self.shards)
        return rows.repartitionById(self.shards, SHARD)

    @property
    def shape(self) -> StructType:
        """The schema of the structs, and of the number of the task that rows come from."""
        sides = [StructField(name, numbered_struct(df.schema)) for name, df in zip(SIDES, self.dfs, strict=False)]
        return StructType([*sides, StructField(FROM, IntegerType())])

    def then(
        self,
        operator: OperatorSpec,
        fields: StructType,
        *,
        log: str,
        memory: int | str | None,
        state: str | Path | None,
        batch_column: str | None = None,
        marked: bool = False,
    ) -> DataFrame:
        """The DataFrame that the operator gives."""
        session = self.dfs[0].sparkSession
        if batch_column is not None:
            if self.names.taken(batch_column, fields.names):
                raise BadInput(
                    f"batch_column={shown(batch_column)} is the name of another column; choose another, or None"
                )
            fields = StructType([*fields.fields, StructField(batch_column, LongType())])
        where = state_path(session, state, "state=DIRECTORY") if self.streaming else ""
        earlier = tuple(name for df in self.dfs for name in Plan.of(df).logs)
        number = 1 + sum(name == log or name.startswith(f"{log} ") for name in earlier)
        step = SampleStep(
            id=uuid.uuid4().hex,
            operator=operator,
            stream=stream_schema(self.shape),
            schemas=self.schemas,
            window=self.window,
            delays=self.delays,
            static=tuple(not df.isStreaming for df in self.dfs),
            memory=0 if memory is None else parse_size(memory, name="memory"),
            workers=self.workers,
            batch_column=batch_column,
            remembers=StateKeeping(where, log if number == 1 else f"{log} {number}", self.shards),
        )
        return Plan(self.rows(marked=marked), (), (), fields, self.shape, earlier).then(step, None, fields)


def sampled_sides(
    dfs: tuple[DataFrame, ...],
    window: Window | None,
    shards: int | None,
    workers: int | None,
    condition: Condition | None = None,
    cell: CellWidth | None = None,
    suffix: str | None = None,
) -> SampledSides:
    """Look at the sides. Names are those that the sides have, whatever case they were given in.

    By default there is one shard where the window is by rows, or where there is no join, and as many as cores otherwise.
    """
    session = dfs[0].sparkSession
    names = ColumnNames.of(session)
    if condition is not None:
        condition = names.resolve_condition(condition, dfs[0].columns, dfs[1].columns)
    if window is not None:
        check_window(window)
    if isinstance(window, TimeWindow):
        window = _time_window(window, dfs, names)
    if shards is None:
        by_rows = isinstance(window, RowWindow) or condition is None
        shards = 1 if by_rows else int(session.sparkContext.defaultParallelism)
    tasks = workers_of(session) if workers is None else _count("workers", workers)
    return SampledSides(dfs, window, _count("shards", shards), tasks, condition, cell, suffix)


def _marked(rows: DataFrame, shards: int) -> DataFrame:
    """Rows by shard, and a row of nulls for each shard from the first partition."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _with_marks(batches, schema, shards)

    schema = stream_schema(rows.schema)
    nullable = StructType([StructField(f.name, f.dataType) for f in rows.schema.fields])
    return rows.mapInArrow(run, nullable)


def _with_marks(batches: Iterator[pa.RecordBatch], schema: pa.Schema, shards: int) -> Iterator[pa.RecordBatch]:
    """Runs in an executor's Python worker."""
    first, context = next(batches, None), TaskContext.get()
    if first is not None:
        # Batches of a task must have one schema. Those of Spark say which columns are never null, and marks have nulls there.
        schema = pa.schema([field.with_nullable(True) for field in first.schema])
    if context is not None and context.partitionId() == 0:
        nulls = [pa.nulls(shards, field.type) for field in schema][:-2]
        columns = [*nulls, pa.array(range(shards), pa.int32()), pa.array([True] * shards)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
    for batch in chain(() if first is None else (first,), batches):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def shard_seed(seed: int, shard: int) -> int:
    """The seed of a shard's draws."""
    return int(draw(seed, _SEEDS, np.array([shard]))[0])


@dataclass(frozen=True)
class ShardDivision:
    """Gives the partitioning of a condition in a shard: keys come by their hash, and cells are divided among shards."""

    cell: Any
    shards: int
    shard: int

    def __call__(self, condition: Condition) -> tuple[Partitioning, Condition | None]:
        """The partitioning, and what it leaves to be tested."""
        whole, ask = unbounded_partitioning_for(condition, _PARTITIONS, self.cell)
        return (whole if isinstance(whole, HashPartitioning) else CellShard(whole, self.shards, self.shard)), ask


def _time_window(window: TimeWindow, dfs: tuple[DataFrame, ...], names: ColumnNames) -> TimeWindow:
    """The window on the column as the sides have it."""
    if window.late and any(df.isStreaming for df in dfs):
        raise BadInput(
            f"late={window.late!r} of a window is for batches in one process; on Spark withWatermark({window.on!r}, ...) says how"
            " late rows may be"
        )
    on = names.resolve(window.on, dfs[0].columns)
    for side, df in enumerate(dfs):
        if on not in df.columns:
            raise BadInput(
                f"{side_name(side)} has no column {on!r}, which the window is on; it has {', '.join(df.columns)}"
            )
    return TimeWindow(window.length, on)


def _count(name: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadInput(f"{name}={value!r} is not a number of {name}; give 1 or more")
    return value
