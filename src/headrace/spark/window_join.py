"""`window_join` and `approximate_join`: two streams joined in part, the same part in every attempt. (DESIGN D7)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.conditions import Condition, check_condition
from headrace.progressive.grids.partitioning import SIDES
from headrace.progressive.output import Output
from headrace.sampling.approximate_join import PARTITIONS, ApproximateJoin, ApproximateMethod
from headrace.sampling.dropping import Allocation, Replacement
from headrace.sampling.shard_operators import Quantities, ShardEstimate, ShardJoin
from headrace.sampling.window_join import Method, WindowJoin
from headrace.spark.dataframes import check_dataframe
from headrace.spark.pair_rows import result_fields
from headrace.spark.sample_plan import SampledSides, ShardDivision, sampled_sides, shard_seed
from headrace.windows import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class WindowJoinSpec:
    """A window join as it travels to the executors."""

    condition: Condition
    seed: int
    shards: int
    cell: Any
    arguments: dict[str, Any]
    quantities: Quantities | None = None
    """what is estimated, in the place of results"""

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"window join, {self.arguments['method']}"

    def join(self, shard: int) -> WindowJoin:
        """The join of a shard."""
        divide = ShardDivision(self.cell, self.shards, shard)
        return WindowJoin(self.condition, seed=shard_seed(self.seed, shard), divide=divide, **self.arguments)

    def open(self, shard: int) -> ShardJoin | ShardEstimate:
        """The operator of a shard."""
        join = self.join(shard)
        return ShardJoin(join) if self.quantities is None else ShardEstimate(join, self.quantities)


@dataclass(frozen=True, kw_only=True)
class ApproximateJoinSpec:
    """An approximate join as it travels to the executors."""

    condition: Condition
    seed: int
    arguments: dict[str, Any]

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"approximate join, {self.arguments['method']}"

    def join(self, shard: int) -> ApproximateJoin:
        """The join of a shard."""
        return ApproximateJoin(self.condition, seed=shard_seed(self.seed, shard), **self.arguments)

    def open(self, shard: int) -> ShardJoin:
        """The operator of a shard."""
        return ShardJoin(self.join(shard))


def window_join(
    left: DataFrame,
    right: DataFrame,
    condition: Condition,
    *,
    window: Window,
    sample: float | None = None,
    size: int | None = None,
    memory: int | str | None = None,
    method: Method = "fair",
    seed: int = 0,
    suffix: str | None = "_right",
    cell: float | Sequence[float] | None = None,
    state: str | Path | None = None,
    shards: int | None = None,
    workers: int | None = None,
) -> DataFrame:
    """Join each row with a sample of the other side's window. Lazy; append mode.

    A pair comes with the later of its rows, if the earlier one is in the sample then. With method="all" every pair of the
    windows comes. A micro-batch that is run again gives the same pairs: draws follow from the seed, the shard and the row.

    Parameters
    ----------
    left, right
        The two sides, streams or not. A batch DataFrame beside a stream is read once, in the first micro-batch.
    condition
        hr.equal, hr.intersects, hr.within, or hr.all_of with one of them beside other conditions.
    window
        hr.rows(...) or hr.time(...). A window by time needs withWatermark on its column, of each side that is a stream: rows that
        come after the watermark has passed them are left out, and counted as late.
    sample, size, memory
        How much is kept, one of: a part of a window by rows, such as 0.1; rows of each side, of all shards together; or bytes of
        an executor. With method="all" everything is kept, and `memory` is the most that it may take.
    method
        "fair", "expire", "winres", "reservoir", "fifo", or "all".
    seed
        Samples of different seeds are independent.
    suffix
        Added to the name of a right column that the left side has too; None refuses it. Equal keys appear once.
    cell
        Of boxes, needed: the width of a grid's cell, about that of the larger boxes; one number or one for each dimension. Of
        vectors: at least twice eps, 4 times eps by default.
    state
        Where the run log is kept: a directory that driver and executors see under the same path. By default `headrace` in
        spark.sql.streaming.checkpointLocation.
    shards
        Parts of both streams by key or cell, each a task; as many as there are cores by default, and 1 for a window by rows: with
        more, each shard has its part of the window, the latest of its own rows.
    workers
        Tasks that an executor runs at the same time; found out by default.
    """
    check_dataframe(left, "left")
    check_dataframe(right, "right")
    check_condition(condition)
    sides = sampled_sides((left, right), window, shards, workers, condition, cell, suffix)
    spec = window_join_spec(sides, sample=sample, size=size, memory=memory, method=method, seed=seed)
    output = output_of(spec.join(0), sides)
    fields = result_fields(left.schema, right.schema, output.right, output.schema.names)
    log = f"window join by {', '.join(spec.condition.left_columns)}"
    return sides.then(spec, fields, log=log, memory=memory, state=state)


def window_join_spec(
    sides: SampledSides,
    *,
    sample: float | None,
    size: int | None,
    memory: int | str | None,
    method: Method,
    seed: int,
    quantities: Quantities | None = None,
    **more: Any,
) -> WindowJoinSpec:
    """What is kept of the sides, by shard."""
    assert sides.condition is not None
    return WindowJoinSpec(
        condition=sides.condition,
        seed=seed,
        shards=sides.shards,
        cell=sides.cell,
        arguments={
            "window": sides.shard_window,
            "sample": sample,
            "size": sides.of_shard(size),
            "memory": sides.worker_bytes(memory),
            "method": method,
            "suffix": sides.suffix,
            **more,
        },
        quantities=quantities,
    )


def approximate_join(
    left: DataFrame,
    right: DataFrame,
    condition: Condition,
    *,
    memory: int | str | None = "64MiB",
    tuples: int | None = None,
    method: ApproximateMethod = "rajhash",
    seed: int = 0,
    allocation: Allocation = "fixed",
    replacement: Replacement = "stratum",
    quality: float | None = None,
    partitions: int = PARTITIONS,
    share: float = 0.1,
    counters: int | str | None = None,
    suffix: str | None = "_right",
    state: str | Path | None = None,
    shards: int | None = None,
    workers: int | None = None,
) -> DataFrame:
    """Join two streams on equal keys in limited memory, and drop what does not fit: results are a part of all. Lazy; append mode.

    A micro-batch that is run again gives the same results: draws follow from the seed, the shard and the row.

    Parameters
    ----------
    left, right
        The two sides, streams or not. A batch DataFrame beside a stream is read once, in the first micro-batch.
    condition
        hr.equal, or hr.all_of with an equal beside others.
    memory, tuples
        One of: the budget of each executor; or the rows of both sides together, in all shards.
    method
        "rrpj", "prob", "probhash": many results; "raj", "rajhash": results with the distribution of all; "mixture": see quality;
        "exact": all, and `memory` is the most that it may take.
    allocation, replacement, quality, partitions, share, counters
        See `headrace.sampling.ApproximateJoin`.
    seed, suffix, state, shards, workers
        See `window_join`.
    """
    check_dataframe(left, "left")
    check_dataframe(right, "right")
    check_condition(condition)
    sides = sampled_sides((left, right), None, shards, workers, condition, None, suffix)
    assert sides.condition is not None
    if tuples is not None:
        memory = None
    spec = ApproximateJoinSpec(
        condition=sides.condition,
        seed=seed,
        arguments={
            "memory": sides.worker_bytes(memory),
            "tuples": sides.of_shard(tuples),
            "method": method,
            "allocation": allocation,
            "replacement": replacement,
            "quality": quality,
            "partitions": partitions,
            "share": share,
            "counters": counters,
            "suffix": suffix,
        },
    )
    output = output_of(spec.join(0), sides)
    fields = result_fields(left.schema, right.schema, output.right, output.schema.names)
    log = f"approximate join by {', '.join(spec.condition.left_columns)}"
    return sides.then(spec, fields, log=log, memory=memory, state=state)


def output_of(join: WindowJoin | ApproximateJoin, sides: SampledSides) -> Output:
    """The columns of the results of a join of two sides. What can be refused is refused now."""
    for side, schema in enumerate(sides.schemas):
        for _ in join.insert(SIDES[side], pa.RecordBatch.from_pylist([], schema)):
            raise AssertionError("nothing came")
    return join.output
