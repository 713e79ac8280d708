"""`estimate`: what a window, or the join of two, counts and sums up to, with confidence intervals, in each micro-batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from headrace.conditions import Condition
from headrace.errors import BadInput, shown
from headrace.sampling.estimates import GROUPS, asked_of, column_names, field_of
from headrace.sampling.sampler_for import default_method
from headrace.sampling.shard_operators import Quantities
from headrace.spark.plan import derived
from headrace.spark.sample import SampleSpec
from headrace.spark.sample_plan import sampled_sides
from headrace.spark.window_join import WindowJoinSpec, output_of, window_join_spec
from headrace.windows import TimeWindow, Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BATCH = "batch"  # the column with the number of the micro-batch


def estimate(
    left: DataFrame,
    right: DataFrame | None = None,
    condition: Condition | None = None,
    *,
    window: Window | None,
    count: bool = False,
    sum: str | Sequence[str] | None = None,
    avg: str | Sequence[str] | None = None,
    group_by: str | None = None,
    groups: int = GROUPS,
    confidence: float = 0.95,
    sample: float | None = None,
    size: int | None = None,
    memory: int | str | None = None,
    seed: int = 0,
    suffix: str | None = "_right",
    cell: float | Sequence[float] | None = None,
    state: str | Path | None = None,
    shards: int | None = None,
    workers: int | None = None,
) -> DataFrame:
    """Estimate counts, sums and averages of a stream's window, or of two windows joined, from fair samples. Lazy; append mode.

    Each micro-batch gives a row for each group and quantity: `batch`, the group and `other`, `quantity`, `estimate`, `low` and
    `high`, the `rows` of the windows and those `kept`; with a window by time `at`, the latest time seen. Estimates of counts and
    sums are unbiased; the intervals are those of simple random sampling without replacement.

    Parameters
    ----------
    left, right, condition
        A stream; or two, and what pairs must satisfy. Batch DataFrames work too.
    window
        hr.rows(...) or hr.time(...); None, of one stream, for all of it.
    count, sum, avg
        The quantities: the number of rows or pairs, and columns.
    group_by, groups
        A column whose values make groups, and the most of them in a shard; values beyond are estimated together, marked `other`.
    confidence
        The part of all intervals that is to cover the truth.
    sample, size, memory
        How much is kept, one of: a part of a window by rows, such as 0.1; rows of each side, of all shards together; or bytes of
        an executor.
    seed, suffix, cell, state, shards, workers
        See `window_join`.
    """
    asked = asked_of(count, sum, avg, confidence)
    if (right is None) != (condition is None):
        raise BadInput("a join needs two sides and a condition; give right= and condition=, or neither")
    if right is None:
        sides = sampled_sides((left,), window, shards, workers)
    else:
        sides = sampled_sides((left, right), window, shards, workers, condition, cell, suffix)
    schema = sides.schemas[0]
    spec: SampleSpec | WindowJoinSpec
    if right is None:
        if sample is not None:
            raise BadInput(f"sample={shown(sample)} is for two windows joined; give size= or memory=")
        arguments = {"size": sides.of_shard(size), "window": sides.shard_window, "memory": sides.worker_bytes(memory)}
        spec = SampleSpec(method=default_method(window), seed=seed, arguments=arguments)
        spec.sampler(0).insert(pa.RecordBatch.from_pylist([], schema))
        log = "estimate"
    else:
        columns = list(dict.fromkeys([*column_names("sum", sum), *column_names("avg", avg)]))
        spec = window_join_spec(
            sides,
            sample=sample,
            size=size,
            memory=memory,
            method="fair",
            seed=seed,
            estimate=columns or True,
            group_by=group_by,
            groups=groups,
            results=False,
        )
        schema = output_of(spec.join(0), sides).schema
        log = f"estimate by {', '.join(spec.condition.left_columns)}"
    for name in asked.columns:
        field_of(schema, name, summed=True)
    group = None if group_by is None else field_of(schema, group_by, summed=False)
    time = schema.field(sides.window.on).type if isinstance(sides.window, TimeWindow) else None
    quantities = Quantities(asked, group, groups, time)
    spec = replace(spec, quantities=quantities)
    known = sides.then(
        spec, from_arrow_schema(_for_spark(quantities.parts)), log=log, memory=memory, state=state, marked=True
    )
    fields = from_arrow_schema(quantities.schema)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return combined(quantities, batches)

    # All shards of a micro-batch meet in one task, which remembers nothing.
    schema_of_all = StructType([StructField(_BATCH, LongType()), *fields.fields])
    return derived(known.repartition(1).mapInArrow(run, schema_of_all), known)


def _for_spark(schema: pa.Schema) -> pa.Schema:
    """The schema with a type that Spark has where there are no groups."""
    return pa.schema([f.with_type(pa.int32()) if pa.types.is_null(f.type) else f for f in schema])


def combined(quantities: Quantities, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The estimates of a micro-batch from what its shards know. Runs in an executor's Python worker."""
    table = quantities.combine(batches)
    if table.num_rows:
        context = TaskContext.get()
        number = int((context and context.getLocalProperty("streaming.sql.batchId")) or 0)
        table = table.add_column(0, _BATCH, pa.repeat(pa.scalar(number, pa.int64()), table.num_rows))
        yield from table.combine_chunks().to_batches()
