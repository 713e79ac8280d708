"""A streaming source that ticks: Spark runs no micro-batch without new data, and rows that wait must leave. (DESIGN D7)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from headrace.clock import Clock, WallClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "headrace_heartbeat"
_TICK = "tick"
_MADE = "_headrace_heartbeats"


class HeartbeatReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """One row for each shard whenever a period is over; one tick at the start of a run that ends by itself.

    Args:
        shards: how many shards there are.
        period: seconds between two ticks.
        clock: says what time it is.
    """

    def __init__(self, shards: int, period: float, clock: Clock) -> None:
        self.shards = shards
        self.period = period
        self.clock = clock
        self._ends = False
        self._last: int | None = None

    def initialOffset(self) -> dict[str, int]:
        """Before the first tick."""
        return {_TICK: 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The tick of now. Never back, should the clock be set back."""
        now = int(self.clock.now() / self.period)
        if self._ends:
            if self._last is None:
                self._last = max(start[_TICK] + 1, now)  # one, also when the run before has had this one
            now = self._last
        return {_TICK: max(start[_TICK], now)}

    def prepareForTriggerAvailableNow(self) -> None:
        """The next tick is the last."""
        self._ends = True

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One, however many ticks have passed."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Every shard once."""
        yield pa.record_batch({"shard": pa.array(range(self.shards), pa.int32())})


class Heartbeat(DataSource):  # type: ignore[misc]
    """``spark.readStream.format(NAME)``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> str:
        """The number of a shard."""
        return "shard int"

    def streamReader(self, schema: object) -> HeartbeatReader:
        """The reader that the options describe."""
        return HeartbeatReader(int(self.options["shards"]), float(self.options["period"]), WallClock())


def heartbeat(session: SparkSession, shards: int, period: float) -> DataFrame:
    """A stream of shard numbers, all of them with every tick."""
    # Kept with the session: to make one starts a Python process, which takes a second.
    made: dict[tuple[int, float], DataFrame] = session.__dict__.setdefault(_MADE, {})
    if (shards, period) not in made:
        session.dataSource.register(Heartbeat)
        reader = session.readStream.format(NAME).options(shards=str(shards), period=repr(period))
        made[shards, period] = reader.load()
    return made[shards, period]
