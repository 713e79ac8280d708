"""Relation.create for a Spark DataFrame: the executors sort and write the rows, which never pass through the driver.

Executors compute the shard of each row, Spark's shuffle brings each shard to one task and sorts it there, and the task writes
the shard's files. The driver only collects one line of facts per shard and commits. Driver and executors must see the same
directory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import BadInput, UnsupportedType
from headrace.files import paths_in, remove
from headrace.kernels.hashing import shards_of
from headrace.relation.columns import plain_table
from headrace.relation.manifest import Manifest, ShardFacts
from headrace.relation.spark_python import check_worker_python
from headrace.relation.writer import Layout, ShardWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_SHARD = "__headrace_shard"  # column with the shard of a row


def arrow_schema(data: DataFrame) -> pa.Schema:
    """Return the Arrow schema of a DataFrame; refuses a column that Arrow has no type for, by name."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    fields = []
    for field in data.schema.fields:
        try:
            type_ = to_arrow_type(field.dataType, timezone="UTC")
        except PySparkException:
            type_ = None
        # A variant would arrive as a struct of two binaries, which loses its meaning.
        if type_ is None or _holds_variant(field.dataType):
            raise UnsupportedType(
                f"column {field.name!r} has type {field.dataType.simpleString()}, which a relation cannot store; drop it or"
                " cast it before Relation.create"
            )
        fields.append(pa.field(field.name, type_))
    return pa.schema(fields)


def _holds_variant(type_: DataType) -> bool:
    inside = [field.dataType for field in getattr(type_, "fields", [])]
    return type_.typeName() == "variant" or any(_holds_variant(t) for t in inside)


def create_from_spark(
    root: Path,
    data: DataFrame,
    layout: Layout,
    shards: int,
    memory: int,
    null_keys: str,
    progress: Callable[[int], None],
) -> Manifest:
    """Write every shard from the executors; returns the manifest to commit."""
    from pyspark import TaskContext
    from pyspark.errors import PythonException
    from pyspark.sql.functions import col
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import IntegerType, StructField, StructType

    check_worker_python(data.sparkSession)
    drop = null_keys == "drop"
    names = data.columns
    # Columns are numbered on the way, because mapInArrow cannot resolve every name that a user's column may have.
    stored = from_arrow_schema(layout.schema, prefer_timestamp_ntz=True)
    numbered = [StructField(f"c{i}", field.dataType) for i, field in enumerate(stored.fields)]
    with_shard = StructType([*numbered, StructField(_SHARD, IntegerType(), False)])

    def assign(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield assign_shards(batch.rename_columns(names), layout, shards, drop=drop)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A retried or speculative task writes files of its own; only those whose facts reach the driver are kept.
        context = TaskContext.get()
        assert context is not None
        tag = f"-{context.taskAttemptId()}"
        facts = [json.dumps(fact) for fact in write_shards(batches, root, layout, tag)]
        yield pa.record_batch({"facts": pa.array(facts, pa.string())})

    key = [col(f"c{layout.schema.names.index(name)}") for name in layout.key]
    written_by = (
        data.toDF(*(f"c{i}" for i in range(len(names))))
        .mapInArrow(assign, with_shard)
        .repartition(shards, col(_SHARD))
        .sortWithinPartitions(_SHARD, *key)
        .mapInArrow(write, "facts string")
    )
    try:
        rows = written_by.collect()
    except PythonException as error:
        refused = re.search(r"headrace\.errors\.\w+: (.*)", str(error))
        if refused is None:
            raise
        raise BadInput(refused[1]) from error
    written = {fact["shard"]: fact for row in rows for fact in [json.loads(row.facts)]}
    facts: list[ShardFacts] = []
    nulls: dict[str, int] = {}
    variable: dict[str, int] = {}
    for shard in range(shards):
        if shard in written:
            fact = written[shard]
        else:  # no row fell on this shard
            with ShardWriter(root, layout, shard, 1) as writer:
                fact = _facts(shard, writer)
        facts.append(ShardFacts.load(fact["facts"]))
        for name, count in fact["nulls"].items():
            nulls[name] = nulls.get(name, 0) + count
        for name, count in fact["variable_bytes"].items():
            variable[name] = variable.get(name, 0) + count
    manifest = Manifest(
        version=1,
        schema=layout.schema,
        key=layout.key,
        page_size=layout.page_size,
        fill=layout.fill,
        shards=facts,
        nulls=nulls,
        variable_bytes=variable,
    )
    kept = set().union(*(shard.names() for shard in facts))
    for path in paths_in(root, "shard-*"):
        if path.name not in kept:
            remove(path)
    progress(manifest.rows)
    return manifest


def assign_shards(batch: pa.RecordBatch, layout: Layout, shards: int, *, drop: bool) -> pa.RecordBatch:
    """Return a batch in the stored schema with the shard of each row; null keys are refused or dropped."""
    table = plain_table(pa.Table.from_batches([batch]), layout.schema)
    for name in layout.key:
        column = table.column(name)
        if column.null_count and not drop:
            raise BadInput(
                f"key column {name!r} holds null(s), and a null key matches nothing; filter them out, or pass null_keys='drop'"
            )
        table = table.filter(pc.is_valid(column)) if column.null_count else table
    keys, _ = layout.codec.encode([table.column(name) for name in layout.key])
    number = np.zeros(len(keys), np.int32)
    if shards > 1:
        shards_of(keys.hashes(), shards, number)
    table = table.rename_columns([f"c{i}" for i in range(table.num_columns)])
    table = table.append_column(pa.field(_SHARD, pa.int32(), nullable=False), pa.array(number))
    return table.combine_chunks().to_batches()[0] if table.num_rows else _empty(table.schema)


def write_shards(
    batches: Iterator[pa.RecordBatch], root: Path, layout: Layout, tag: str
) -> Iterator[dict[str, object]]:
    """Write rows, which are sorted by shard and key, and yield the facts of each shard."""
    writer, current = None, -1
    with ExitStack() as opened:
        for batch in batches:
            shard = np.asarray(batch.column(_SHARD))
            rows = pa.Table.from_batches([batch.drop_columns([_SHARD])]).rename_columns(layout.schema.names)
            table = plain_table(rows, layout.schema)
            starts = np.flatnonzero(np.diff(shard, prepend=-1))
            for start, stop in zip(starts, [*starts[1:], shard.size], strict=True):
                if int(shard[start]) != current:
                    if writer is not None:
                        yield _facts(current, writer)
                        opened.close()
                    current = int(shard[start])
                    writer = opened.enter_context(ShardWriter(root, layout, current, 1, tag))
                assert writer is not None
                writer.write(table.slice(start, stop - start))
        if writer is not None:
            yield _facts(current, writer)


def _facts(shard: int, writer: ShardWriter) -> dict[str, object]:
    facts = asdict(writer.close())
    return {
        "shard": shard,
        "facts": facts,
        "nulls": writer.builder.nulls,
        "variable_bytes": writer.builder.variable_bytes,
    }


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
