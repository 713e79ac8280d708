"""The rows of several sides on their way to a join: structs of a side's columns, by the shard of their key or of their cells."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit, pmod, struct, xxhash64
from pyspark.sql.types import IntegerType, StructField, StructType

from headrace.progressive.grids.keys import HashPartitioning
from headrace.progressive.grids.partitioning import Partitioning
from headrace.spark import pair_step
from headrace.spark.batch_as_stream import once
from headrace.spark.pair_step import JoinedSides
from headrace.spark.state.stateful import BEAT, SHARD

if TYPE_CHECKING:
    from pyspark.sql import Column


def pairs_by_shard(
    dfs: tuple[DataFrame, ...], sides: JoinedSides, shards: int, partitioning: Partitioning
) -> DataFrame:
    """Rows of all sides with their shards: a struct of each side's columns, all null but one, shard, and no heartbeat."""
    shape = [numbered_struct(df.schema) for df in dfs]
    streaming = any(df.isStreaming for df in dfs)
    parts = []
    for side, df in enumerate(dfs):
        names = [f"c{i}" for i in range(len(df.columns))]
        rows = (once(df) if streaming and not df.isStreaming else df).toDF(*names)
        if isinstance(partitioning, HashPartitioning):
            at = [_comparable(df.schema, df.columns.index(name)) for name in partitioning.columns[side]]
            shard = pmod(xxhash64(*at), lit(shards)).cast("int")
        else:
            rows, shard = _spread(rows, sides, side, shards), col(f"c{len(names)}")
        structs = [lit(None).cast(kind) for kind in shape]
        structs[side] = struct(*(col(name) for name in names))
        numbered = [each.alias(f"c{i}") for i, each in enumerate(structs)]
        parts.append(rows.select(*numbered, shard.alias(SHARD), lit(False).alias(BEAT)))
    return reduce(DataFrame.union, parts)


def _spread(rows: DataFrame, sides: JoinedSides, side: int, shards: int) -> DataFrame:
    """Rows with every shard that has a cell of theirs, as a last column."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return pair_step.spread(sides, side, shards, batches)

    return rows.mapInArrow(run, StructType([*rows.schema.fields, StructField(f"c{len(rows.columns)}", IntegerType())]))


def _comparable(schema: StructType, i: int) -> Column:
    """A key column as it is hashed: integers of all widths have one hash."""
    whole = schema.fields[i].dataType.typeName() in ("byte", "short", "integer", "long")
    return col(f"c{i}").cast("long") if whole else col(f"c{i}")


def numbered_struct(schema: StructType) -> StructType:
    """The columns of a side by number."""
    return StructType([StructField(f"c{i}", f.dataType) for i, f in enumerate(schema.fields)])


def result_fields(left: StructType, right: StructType, kept: list[str], names: list[str]) -> StructType:
    """The fields of the result, without metadata: a watermark noted there does not hold for results that come later."""
    fields = [*left.fields, *(right[name] for name in kept)]
    return StructType([StructField(name, f.dataType) for name, f in zip(names, fields, strict=True)])
