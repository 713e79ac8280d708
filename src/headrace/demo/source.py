"""A streaming source of Spark that generates the sales: an offset is a number of sales, and executors make the rows as Arrow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from headrace.clock import Clock, SystemClock
from headrace.demo.sales import SCHEMA, Sales
from headrace.demo.scenario import Scenario
from headrace.demo.start_signal import StartSignal

NAME = "headrace_demo_sales"
BATCH = 500_000  # most sales of a micro-batch; a larger burst is spread over several
ARROW_BATCH = 100_000  # rows of an Arrow batch; larger ones gain nothing and take more memory in the worker

_SALE = "sale"  # key of an offset; sales with lower numbers have been read


class SaleRange(InputPartition):  # type: ignore[misc]
    """The range of sales that one task generates."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__((start, stop))
        self.start = start
        self.stop = stop


class SalesReader(DataSourceStreamReader):  # type: ignore[misc]
    """Reports how many sales have arrived by now, and generates those that Spark asks for.

    Args:
        sales: the stream.
        start_signal: starts the schedule of arrivals.
        tasks: the number of partitions of a micro-batch.
        clock: tells how far the schedule is.
    """

    def __init__(self, sales: Sales, start_signal: StartSignal, tasks: int, clock: Clock) -> None:
        self.sales = sales
        self.start_signal = start_signal
        self.tasks = tasks
        self.clock = clock
        self._first: int | None = None

    def initialOffset(self) -> dict[str, int]:
        """Return the offset before the first sale."""
        return {_SALE: 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Limit a micro-batch to `BATCH` sales."""
        return ReadMaxRows(BATCH)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the offset after the last sale that has arrived, within the limit and never below `start`.

        Spark's first micro-batch takes seconds, whatever its size. It gets one sale per task, and the schedule starts after it.
        """
        if self._first is None:
            self._first = start[_SALE]
        if not self.start_signal.sent:
            if start[_SALE] == self._first:
                return {_SALE: min(self.sales.total, self._first + self.tasks)}
            self.start_signal.send(self.clock)
            return start
        end = self._arrived()
        if isinstance(limit, ReadMaxRows):
            end = min(end, start[_SALE] + limit.max_rows)
        return {_SALE: max(start[_SALE], end)}

    def reportLatestOffset(self) -> dict[str, int]:
        """Return the offset after the last arrival, for Spark's own progress reports."""
        return {_SALE: self._arrived()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[SaleRange]:
        """Split a range of sales into `tasks` partitions of equal size."""
        first, count = start[_SALE], end[_SALE] - start[_SALE]
        cuts = [first + count * part // self.tasks for part in range(self.tasks + 1)]
        return [SaleRange(a, b) for a, b in pairwise(cuts) if a < b]

    def read(self, partition: SaleRange) -> Iterator[pa.RecordBatch]:
        """Generate the sales of one partition."""
        for start in range(partition.start, partition.stop, ARROW_BATCH):
            yield self.sales.batch(start, min(start + ARROW_BATCH, partition.stop))

    def _arrived(self) -> int:
        return self.sales.arrivals.by(self.start_signal.elapsed(self.clock))


class SalesSource(DataSource):  # type: ignore[misc]
    """The data source behind ``spark.readStream.format(NAME).options(**options(...)).load()``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of a sale."""
        return from_arrow_schema(SCHEMA)

    def streamReader(self, schema: StructType) -> SalesReader:
        """Make the reader that the options describe."""
        scenario = Scenario(**json.loads(self.options["scenario"]))
        start_signal = StartSignal(Path(self.options["start-signal"]), int(self.options["since"]))
        return SalesReader(Sales(scenario), start_signal, int(self.options["tasks"]), SystemClock())


def options(scenario: Scenario, start_signal: StartSignal, tasks: int) -> dict[str, str]:
    """Return the options of the source as text, which is how Spark passes them on."""
    return {
        "scenario": json.dumps(scenario.as_dict()),
        "start-signal": str(start_signal.path),
        "since": str(start_signal.since),
        "tasks": str(tasks),
    }


def sales_in(offset: str) -> int:
    """Return the number of sales read, from an offset as Spark's progress reports it."""
    return int(json.loads(offset)[_SALE])
