"""Schemas of DataFrames as Arrow batches have them, and of results as Spark wants them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType, LongType, StructField, StructType

from headrace.errors import BadInput, UnsupportedType
from headrace.relation.columns import beyond_spark
from headrace.spark.column_names import ColumnNames


@dataclass(frozen=True)
class ResultColumns:
    """How a task makes the columns of a join's result into those that Spark expects.

    Parameters
    ----------
    casts
        Columns by number that Spark wants in another Arrow type, with that type.
    version_column
        The name of a last column that holds the version of the relation; None for none.
    """

    casts: tuple[tuple[int, pa.DataType], ...] = ()
    version_column: str | None = None

    def cast(self, batch: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """A batch of results with the types that Spark wants, and with the relation's version where that is asked for."""
        for i, type_ in self.casts:
            batch = batch.set_column(i, batch.schema.field(i).with_type(type_), batch.column(i).cast(type_))
        if self.version_column is None:
            return batch
        return batch.append_column(self.version_column, pa.repeat(pa.scalar(version), batch.num_rows))


def stream_schema(schema: StructType) -> pa.Schema:
    """A DataFrame's schema as its Arrow batches have it; refuses a column that Arrow has no type for, by name."""
    fields = []
    for field in schema.fields:
        try:
            fields.append(pa.field(field.name, to_arrow_type(field.dataType, timezone="UTC")))
        except PySparkException as error:
            raise UnsupportedType(
                f"column {field.name!r} has type {field.dataType.simpleString()}, which cannot go through Arrow; drop it or"
                " cast it first"
            ) from error
    return pa.schema(fields)


def numbered(schema: StructType) -> StructType:
    """The schema with columns named c0, c1, ...: mapInArrow cannot resolve every name that a user's column may have."""
    return StructType([StructField(f"c{i}", f.dataType, f.nullable, f.metadata) for i, f in enumerate(schema.fields)])


def result_schema(
    spark: StructType,
    stream: pa.Schema,
    result: pa.Schema,
    version_column: str | None,
    names: ColumnNames,
    suffix: str | None,
) -> tuple[StructType, ResultColumns]:
    """The schema of a join's result for Spark, and how tasks bring batches into it.

    Parameters
    ----------
    spark, stream
        The stream's schema as Spark has it, and as Arrow batches have it.
    result
        The schema of the operator's results.
    version_column
        The name of a column for the relation's version; None for none.
    names, suffix
        How Spark compares names, and what is added to that of a relation's column which Spark takes for another's.
    """
    fields, casts = list(spark.fields), []
    for i in range(len(stream), len(result)):
        field = result.field(i)
        type_ = _spark_type(field)
        fields.append(StructField(names.free(field.name, [f.name for f in fields], suffix), type_))
        wanted = to_arrow_type(type_, timezone="UTC")
        if not wanted.equals(field.type):
            casts.append((i, wanted))
    if version_column is not None:
        if names.taken(version_column, [f.name for f in fields]):
            raise BadInput(f"version_column={version_column!r} is the name of another column; choose another")
        fields.append(StructField(version_column, LongType()))
    return StructType(fields), ResultColumns(tuple(casts), version_column)


def _spark_type(field: pa.Field) -> DataType:
    """The type that Spark has for a relation's column; refuses one that it has no type for, by name."""
    if beyond_spark(field.type):
        raise UnsupportedType(
            f"column {field.name!r} of the relation has type {field.type}, and Spark has microseconds only; pick columns=..."
            " without it, or create the relation anew with nanoseconds='truncate'"
        )
    try:
        return from_arrow_type(field.type, prefer_timestamp_ntz=True)
    except PySparkException as error:
        raise UnsupportedType(
            f"column {field.name!r} of the relation has type {field.type}, which Spark does not have; pick columns=... without"
            " it, or create the relation anew with another type"
        ) from error
