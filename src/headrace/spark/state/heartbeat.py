"""A streaming source that ticks: without data Spark runs no micro-batch, and rows that wait could not leave. (DESIGN D7)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
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
    """One row for each shard whenever a period is over.

    A run that ends by itself has one tick at its start, and more at its end while something is owed.

    Args:
        shards: how many shards there are.
        period: seconds between two ticks.
        clock: says what time it is.
        owed: the files that say that something is owed, as a directory and a pattern; None if nothing ever is.
    """

    def __init__(self, shards: int, period: float, clock: Clock, owed: tuple[str, str] | None = None) -> None:
        self.shards = shards
        self.period = period
        self.clock = clock
        self.owed = owed
        self._ends = False
        self._before: dict[Path, bytes] = {}
        self._last: int | None = None

    def initialOffset(self) -> dict[str, int]:
        """The offset before the first tick."""
        return {_TICK: 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The tick of the current time; never an earlier one, should the clock be set back."""
        now = int(self.clock.now() / self.period)
        if self._ends:
            if self._last is None:
                self._last = max(start[_TICK] + 1, now)  # one, also when the run before has had this one
            elif start[_TICK] == self._last and self._owes():
                self._last += 1
            now = self._last
        return {_TICK: max(start[_TICK], now)}

    def prepareForTriggerAvailableNow(self) -> None:
        """Make the next tick the last of a bounded run, unless something is owed then."""
        self._ends = True
        self._before = self._notes()

    def _owes(self) -> bool:
        """Whether a task of this run noted that it owes something; notes of earlier runs do not count."""
        return any(self._before.get(path) != note for path, note in self._notes().items())

    def _notes(self) -> dict[Path, bytes]:
        notes = {}
        for path in Path(self.owed[0]).glob(self.owed[1]) if self.owed else ():
            with suppress(FileNotFoundError):
                notes[path] = (
                    path.read_bytes()
                )  # compared alone: a damaged one makes a tick too many, and is written again
        return notes

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One partition, however many ticks have passed."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A row for every shard."""
        yield pa.record_batch({"shard": pa.array(range(self.shards), pa.int32())})


class Heartbeat(DataSource):  # type: ignore[misc]
    """``spark.readStream.format(NAME)``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> str:
        """One column, the number of a shard."""
        return "shard int"

    def streamReader(self, schema: object) -> HeartbeatReader:
        """The reader that the options describe."""
        options = self.options
        owed = (options["directory"], options["owed"]) if "owed" in options else None
        return HeartbeatReader(int(options["shards"]), float(options["period"]), WallClock(), owed)


def heartbeat(session: SparkSession, shards: int, period: float, owed: tuple[str, str] | None = None) -> DataFrame:
    """A stream of shard numbers, all of them with every tick."""
    # Kept with the session, and gone with it: to make one starts a Python process, which takes a second.
    made: dict[object, DataFrame] = session.__dict__.setdefault(_MADE, {})
    name = shards, period, owed
    if name not in made:
        session.dataSource.register(Heartbeat)
        reader = session.readStream.format(NAME).options(shards=str(shards), period=repr(period))
        made[name] = (reader.options(directory=owed[0], owed=owed[1]) if owed else reader).load()
    return made[name]
