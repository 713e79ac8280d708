"""PostgreSQL as a source of Spark: executors read it as Arrow through ADBC.

Offsets are values of a growing column, chosen on the driver so that no row can come in below them later; a micro-batch that is
replayed reads the rows between the same two offsets. See sources/postgresql.py for which columns are safe.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructField, StructType

from headrace.errors import BadInput, UnsupportedType
from headrace.sources.columns import PostgreSQLColumn
from headrace.sources.postgresql import Offset, TableReader
from headrace.sources.secret import SecretUrl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "headrace_postgresql"
MAX_ROWS = 1_000_000  # of a micro-batch, unless told otherwise
LEAST_ROWS = 10_000  # of a task: fewer are not worth another connection

_SECRET = "secret_url"  # Spark shows no option whose name has "secret" or "url" in it
_AFTER = "after"


def read_postgresql(
    spark: SparkSession,
    table: str | Sequence[str],
    *,
    url: str,
    columns: Sequence[str] | None = None,
    by: str | None = None,
    tasks: int = 1,
) -> DataFrame:
    """A PostgreSQL table as a batch DataFrame, read by the executors, as Arrow.

    Parameters
    ----------
    table
        "products", "public.products", or ("public", "odd.name").
    url
        "env:NAME": the value of an environment variable of the driver. Or a URL in clear, which is shown nowhere.
    columns
        Wanted; all by default.
    by, tasks
        With a growing column the table can be read by several tasks, each with a connection and a snapshot of its own. One task
        sees one snapshot of the whole table.
    """
    if tasks > 1 and by is None:
        raise BadInput(f"tasks={tasks} needs by='a growing column' to part the table by")
    reader = TableReader.describe(table, url, columns=columns, by=by)
    return _source(spark, spark.read, reader, tasks, None)


def stream_postgresql(
    spark: SparkSession,
    table: str | Sequence[str],
    *,
    by: str,
    url: str,
    columns: Sequence[str] | None = None,
    lag: str | float | None = None,
    max_rows: int = MAX_ROWS,
    tasks: int = 1,
) -> DataFrame:
    """What is new in a PostgreSQL table, micro-batch by micro-batch, as a streaming DataFrame.

    Parameters
    ----------
    table, url, columns
        As for `read_postgresql`.
    by
        A column that grows: rows with a null in it are never read. With type xid8 and pg_current_xact_id() as its default no row
        is missed, whatever writers do. With an integer or a timestamp, a row that is committed after one with a higher value is
        missed if that one was read in between.
    lag
        Of a timestamptz: rows younger than this wait. It must be longer than the longest transaction that writes.
    max_rows
        Of a micro-batch, at the most; rows of one value stay together.
    tasks
        In how many parts a large micro-batch is read.
    """
    if by is None:
        raise BadInput("by=None: a stream follows a growing column; name it")
    if isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 1:
        raise BadInput(f"max_rows={max_rows!r} is not a number of rows; give 1 or more")
    reader = TableReader.describe(table, url, columns=columns, by=by, lag=lag)
    return _source(spark, spark.readStream, reader, tasks, max_rows)


def _source(spark: SparkSession, how: Any, reader: TableReader, tasks: int, max_rows: int | None) -> DataFrame:
    if isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1:
        raise BadInput(f"tasks={tasks!r} is not a number of tasks; give 1 or more")
    schema = spark_schema(reader.schema)
    spark.dataSource.register(PostgreSQLSource)
    options = {"table": _dump(reader), "tasks": str(tasks), _SECRET: reader.url.text, "shown": reader.url.shown}
    if max_rows is not None:
        options["max_rows"] = str(max_rows)
    df: DataFrame = how.format(NAME).schema(schema).options(**options).load()
    return df


def spark_schema(schema: pa.Schema) -> StructType:
    """Arrow's types as Spark's; refuses one that Spark does not have, by name."""
    fields = []
    for field in schema:
        try:
            type_ = from_arrow_type(field.type, prefer_timestamp_ntz=True)
            to_arrow_type(type_, timezone="UTC")
        except PySparkException:
            raise UnsupportedType(
                f"column {field.name!r} has type {field.type}, which Spark does not have; leave it out with columns=[...]"
            ) from None
        fields.append(StructField(field.name, type_))
    return StructType(fields)


class Range(InputPartition):  # type: ignore[misc]
    """Rows that one task reads."""

    def __init__(self, after: Offset, until: Offset) -> None:
        super().__init__((after, until))
        self.after = after
        self.until = until


class PostgreSQLSource(DataSource):  # type: ignore[misc]
    """The data source: `read_postgresql` and `stream_postgresql` give its options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def reader(self, schema: StructType) -> BatchReader:
        """The reader of a batch DataFrame."""
        return BatchReader(self._table(), int(self.options["tasks"]))

    def streamReader(self, schema: StructType) -> StreamReader:
        """The reader of a streaming DataFrame."""
        return StreamReader(self._table(), int(self.options["tasks"]), int(self.options["max_rows"]))

    def _table(self) -> TableReader:
        return _load(self.options["table"], SecretUrl(self.options[_SECRET], self.options["shown"]))


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """Reads the whole table.

    Args:
        table: what to read.
        tasks: in how many parts.
    """

    def __init__(self, table: TableReader, tasks: int) -> None:
        self.table = table
        self.tasks = tasks

    def partitions(self) -> Sequence[Range]:
        """One part or, by ranges of the growing column, several; rows with a null there are in the last."""
        return [Range(a, b) for a, b in self.table.cuts(None, None, self.tasks, LEAST_ROWS)]

    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        return self.table.read(partition.after, partition.until)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads the rows that are new by the growing column.

    Args:
        table: what to read.
        tasks: in how many parts a large micro-batch is read.
        max_rows: of a micro-batch.
    """

    def __init__(self, table: TableReader, tasks: int, max_rows: int) -> None:
        self.table = table
        self.tasks = tasks
        self.max_rows = max_rows
        self._target: tuple[Offset] | None = None

    def initialOffset(self) -> dict[str, Offset]:
        """The offset before all rows."""
        return {_AFTER: ""}

    def getDefaultReadLimit(self) -> ReadLimit:
        """At most `max_rows` rows in a micro-batch."""
        return ReadMaxRows(self.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note where the table ends now: a bounded run reads no further."""
        self._target = (self.table.bound(None),)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        """The last offset, within the limit, before which no more rows can appear."""
        after = _offset(start)
        until = None
        if self._target is not None:
            (until,) = self._target
            if until is None:
                return start
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        assert rows is not None or isinstance(limit, ReadAllAvailable)
        return {_AFTER: self.table.bound(after, rows, until) or ""}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[Range]:
        """A range of offsets, cut into parts that tasks read."""
        if start == end:
            return []
        return [Range(a, b) for a, b in self.table.cuts(_offset(start), _offset(end), self.tasks, LEAST_ROWS)]

    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        return self.table.read(partition.after, partition.until)


def _offset(given: dict[str, str]) -> Offset:
    return given[_AFTER] or None


def _dump(reader: TableReader) -> str:
    """A reader as text, without its URL."""
    columns = [*reader.columns, *([reader.by] if reader.by else [])]
    types = pa.schema([pa.field(f"c{i}", column.arrow or pa.null()) for i, column in enumerate(columns)])
    return json.dumps(
        {
            "table": reader.table,
            "lag": reader.lag,
            "by": reader.by is not None,
            "columns": [[c.name, c.kind, c.type, c.as_text] for c in columns],
            "types": base64.b64encode(types.serialize().to_pybytes()).decode(),
        }
    )


def _load(text: str, url: SecretUrl) -> TableReader:
    body = json.loads(text)
    types = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(body["types"])))
    columns = [
        PostgreSQLColumn(name, kind, type_, field.type, as_text)
        for (name, kind, type_, as_text), field in zip(body["columns"], types, strict=True)
    ]
    by = columns.pop() if body["by"] else None
    return TableReader(tuple(body["table"]), tuple(columns), by, body["lag"], url)
