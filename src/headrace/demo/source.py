"""The sales as a streaming source of Spark: offsets are numbers of sales, rows are made on the executors as Arrow."""

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
from headrace.demo.start_signal import Doors

NAME = "headrace_demo_sales"
BATCH = 500_000  # sales a micro-batch, at the most: a burst is worked off in several
ARROW_BATCH = 100_000  # rows of an Arrow batch

_SALE = "sale"  # the offset: sales before this number have been taken


class Range(InputPartition):  # type: ignore[misc]
    """Sales that one task makes."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__((start, stop))
        self.start = start
        self.stop = stop


class SalesReader(DataSourceStreamReader):  # type: ignore[misc]
    """Offers the sales that have arrived by now, and makes them when asked.

    Args:
        sales: the stream.
        doors: when the run began.
        tasks: in how many parts a micro-batch is made.
        clock: says what time it is.
    """

    def __init__(self, sales: Sales, doors: Doors, tasks: int, clock: Clock) -> None:
        self.sales = sales
        self.doors = doors
        self.tasks = tasks
        self.clock = clock
        self._first: int | None = None

    def initialOffset(self) -> dict[str, int]:
        """No sale taken yet."""
        return {_SALE: 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """`BATCH` sales."""
        return ReadMaxRows(BATCH)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Up to the last sale that has arrived, within the limit, and never back.

        Spark's first micro-batch takes seconds, whatever its size. One sale a task goes through it alone, and then the
        doors are opened.
        """
        if self._first is None:
            self._first = start[_SALE]
        if not self.doors.are_open:
            if start[_SALE] == self._first:
                return {_SALE: min(self.sales.total, self._first + self.tasks)}
            self.doors.open(self.clock)
            return start
        end = self._arrived()
        if isinstance(limit, ReadMaxRows):
            end = min(end, start[_SALE] + limit.max_rows)
        return {_SALE: max(start[_SALE], end)}

    def reportLatestOffset(self) -> dict[str, int]:
        """What has arrived, for Spark's own reports."""
        return {_SALE: self._arrived()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Range]:
        """The range in `tasks` parts of equal size."""
        first, count = start[_SALE], end[_SALE] - start[_SALE]
        cuts = [first + count * part // self.tasks for part in range(self.tasks + 1)]
        return [Range(a, b) for a, b in pairwise(cuts) if a < b]

    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:
        """The sales of one part."""
        for start in range(partition.start, partition.stop, ARROW_BATCH):
            yield self.sales.batch(start, min(start + ARROW_BATCH, partition.stop))

    def _arrived(self) -> int:
        return self.sales.arrivals.by(self.doors.elapsed(self.clock))


class SalesSource(DataSource):  # type: ignore[misc]
    """``spark.readStream.format(NAME).options(**options(...)).load()``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """The columns of a sale."""
        return from_arrow_schema(SCHEMA)

    def streamReader(self, schema: StructType) -> SalesReader:
        """The reader that the options describe."""
        scenario = Scenario(**json.loads(self.options["scenario"]))
        doors = Doors(Path(self.options["doors"]), int(self.options["since"]))
        return SalesReader(Sales(scenario), doors, int(self.options["tasks"]), SystemClock())


def options(scenario: Scenario, doors: Doors, tasks: int) -> dict[str, str]:
    """The options of the source: Spark hands them on as text."""
    return {
        "scenario": json.dumps(scenario.as_dict()),
        "doors": str(doors.path),
        "since": str(doors.since),
        "tasks": str(tasks),
    }


def sales_in(offset: str) -> int:
    """The number of sales taken, from an offset as Spark's progress reports it."""
    return int(json.loads(offset)[_SALE])
