"""Record batches between Spark's types and ours."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType


def spark_schemas(schema: pa.Schema) -> tuple[StructType, pa.Schema]:
    """A schema as Spark has it, and as Spark's record batches have it."""
    fields = from_arrow_schema(schema)
    return fields, to_arrow_schema(fields, timezone="UTC")


def typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the names and types of a schema, by position. Spark has other types for some: 16 bytes are bytes there."""
    columns = [c if c.type.equals(f.type) else c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
