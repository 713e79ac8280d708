"""A relation as a DataFrame, read anew in each micro-batch: what Spark's own joins are given. See broadcast_join.py"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.errors import RelationError
from headrace.relation import Relation
from headrace.spark.column_names import ColumnNames
from headrace.spark.schemas import result_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "headrace_relation"


class RelationReader(DataSourceReader):  # type: ignore[misc]
    """Reads all rows of a relation in one task, so that they are of one version: the latest, unless one is given.

    Parameters
    ----------
    options
        path, identity, columns (a JSON list), and version: a number, or empty for the latest.
    schema
        What Spark expects.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.path, self.identity = options["path"], options["identity"]
        self.version = int(options["version"]) if options["version"] else None
        self.columns: list[str] = json.loads(options["columns"])
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """One: rows that several tasks read could be of several versions."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows, in Spark's types."""
        wanted = to_arrow_schema(self.schema, timezone="UTC")
        with Relation.open(self.path, version=self.version) as relation:
            if relation.identity != self.identity:
                raise RelationError(
                    f"the relation {self.path} was made anew since the query began; start the query again to join with it"
                )
            for batch in relation.scan(columns=self.columns):
                columns = zip(batch.columns, wanted, strict=True)
                yield pa.RecordBatch.from_arrays([c.cast(field.type) for c, field in columns], schema=wanted)


class RelationSource(DataSource):  # type: ignore[misc]
    """``spark.read.format(NAME)``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def reader(self, schema: StructType) -> RelationReader:
        """The reader."""
        return RelationReader(self.options, schema)


def relation_frame(session: SparkSession, rel: Relation, columns: Sequence[str], *, follow: bool) -> DataFrame:
    """The key and some payload columns of a relation, named c0, c1, ... in that order.

    Parameters
    ----------
    follow
        Whether each time the rows are asked for they are of the latest version, and not of the one that `rel` has open.
    """
    names = [*rel.key, *(column.name for column in rel.payload(columns))]
    fields = pa.schema([pa.field(f"c{i}", rel.schema.field(name).type) for i, name in enumerate(names)])
    schema, _ = result_schema(StructType([]), pa.schema([]), fields, None, ColumnNames(case_sensitive=True), None)
    session.dataSource.register(RelationSource)
    options: dict[str, Any] = {"path": str(rel.path), "identity": rel.identity, "columns": json.dumps(list(columns))}
    options["version"] = "" if follow else str(rel.version)
    return session.read.format(NAME).options(**options).schema(schema).load()
