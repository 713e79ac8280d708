"""LogReader: ``spark.readStream.format("rss")``, pulls of a log by their numbers.

```
driver   scanner -> state/log: pull 1, 2, 3, ...     offsets {"log": "5f3a…", "pull": 3}
tasks    state/log: pulls 1 to 3 -> rows of items
```
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from headrace.errors import BadInput, RunLogError
from headrace.feeds.log_identity import log_identity
from headrace.feeds.spark.options import NAME, FeedOptions
from headrace.feeds.spark.schemas import spark_schemas, typed
from headrace.feeds.store import FeedStore

if TYPE_CHECKING:
    from headrace.feeds.spark.puller import Puller

TASK_PULLS = 64  # pulls of a task at least, of several tasks: fewer take less time to read than a task to start
TASKS = 64  # of a micro-batch, at most

_PULL, _LOG = "pull", "log"  # keys of an offset: the last pull that was read, and the log that it is of

Offset: TypeAlias = dict[str, int | str]


class Pulls(InputPartition):  # type: ignore[misc]
    """Pulls that one task reads: with numbers above `after`, up to `until`."""

    def __init__(self, after: int, until: int) -> None:
        super().__init__((after, until))
        self.after = after
        self.until = until


class LogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Has feeds pulled into a log, on the driver, and reads pulls from it, in the executors.

    Parameters
    ----------
    options
        The feeds, and how they are pulled.
    """

    def __init__(self, options: FeedOptions) -> None:
        if options.state is None:
            raise BadInput(f'a stream of {NAME!r} remembers what was pulled; give option("state", DIRECTORY)')
        self.options = options
        self.state = Path(options.state)
        self._puller: Puller | None = None  # only where offsets are asked for: readers travel to the executors too
        self._target: int | None = None

    def initialOffset(self) -> Offset:
        """The offset before the oldest pull that the log has."""
        store = FeedStore(self.state)
        there = [group.first for group in store.log.groups() if group.first <= group.last]
        return {_LOG: log_identity(self.state), _PULL: there[0] - 1 if there else store.newest}

    def getDefaultReadLimit(self) -> ReadLimit:
        """At most `max_pulls` pulls in a micro-batch; each is as a file of Spark's file source."""
        return ReadMaxFiles(self.options.max_pulls)

    def prepareForTriggerAvailableNow(self) -> None:
        """Pull each feed that is due; a bounded run reads no further."""
        puller = self._opened()
        puller.pull_once()
        self._target = puller.newest

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The last pull, within the limit."""
        puller, after = self._opened(), int(start[_PULL])
        if start[_LOG] != log_identity(self.state) or after > puller.newest:
            raise RunLogError(
                f"{self.state} has other pulls than those that the query has read up to pull {after}: it is not the directory"
                " that the query began with, or was made anew; give that one as option 'state', or the query another checkpoint"
            )
        puller.keep(after)
        if self._target is None:
            puller.pull(after)
        newest = puller.newest if self._target is None else self._target
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else newest
        return {**start, _PULL: max(after, min(newest, after + most))}

    def reportLatestOffset(self) -> Offset | None:
        """The last pull, for Spark's own progress reports."""
        return None if self._puller is None else {_LOG: log_identity(self.state), _PULL: self._puller.newest}

    def partitions(self, start: Offset, end: Offset) -> Sequence[Pulls]:
        """A range of pulls for each task."""
        after, count = int(start[_PULL]), int(end[_PULL]) - int(start[_PULL])
        tasks = min(TASKS, -(-count // TASK_PULLS))
        cuts = [after + count * task // tasks for task in range(tasks + 1)] if tasks else []
        return [Pulls(a, b) for a, b in pairwise(cuts)]

    def read(self, partition: Pulls) -> Iterator[pa.RecordBatch]:
        """The items of a task's pulls."""
        arrow = spark_schemas(self.options.schema)[1]
        for number, items in _logged(self.state, partition.after, partition.until):
            columns = [*items.columns, pa.repeat(pa.scalar(number, pa.int64()), items.num_rows)]
            yield typed(pa.RecordBatch.from_arrays(columns[: len(arrow)], names=arrow.names), arrow)

    def stop(self) -> None:
        """Stop pulling."""
        puller, self._puller = self._puller, None
        if puller is not None:
            puller.close()

    def _opened(self) -> Puller:
        if self._puller is None:
            from headrace.feeds.spark.puller import Puller

            self._puller = Puller(self.options)
        return self._puller


def _logged(state: Path, after: int, until: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The numbers and items of pulls in a log, all of them: one that is missing fails the task."""
    for pull in islice(FeedStore(state).pulls(after), until - after):
        if pull.number != after + 1:
            break
        after = pull.number
        yield after, pull.items
    if after < until:
        raise RunLogError(
            f"pull {after + 1} is not in {state}; if it was there, give the query another checkpoint, and it begins with the"
            " oldest pull that is left; if it never was, have executors see the driver's directory under the same path"
        )
