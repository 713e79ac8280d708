"""EagerExecution: the part that executions have in common which join a batch to its end as soon as they are told to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import inf

import pyarrow as pa

from headrace.semistream.protocols import StreamShedder


class EagerExecution(ABC):
    """Joins every batch to its end as soon as it is advanced: no row waits for another batch."""

    def __init__(self) -> None:
        self._offered: list[tuple[pa.RecordBatch, pa.Schema]] = []
        self.deadline: float | None = None  # seconds after it was offered in which a row should have left

    @abstractmethod
    def _join(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Results of a batch, of this schema, in the order of its rows."""

    def offer(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        """Take in a batch, with the schema of its results."""
        self._offered.append((batch, schema))

    @property
    def buffered(self) -> int:
        """Rows offered that were not looked up."""
        return sum(batch.num_rows for batch, _ in self._offered)

    @property
    def waiting(self) -> int:
        """Rows that were looked up and have not left: none, between two steps."""
        return 0

    @property
    def due(self) -> float:
        """When the next step must come at the latest: at any time, since no row waits for it."""
        return inf

    def shed_surplus(self, shed: StreamShedder) -> None:  # noqa: B027  (this is all it does)
        """Put nothing aside: no row waits for others."""

    def advance(self) -> Iterator[pa.RecordBatch]:
        """Join what was offered."""
        while self._offered:
            yield from self._join(*self._offered.pop(0))

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Join what was offered: nothing else waits."""
        return self.advance()

    def let_wait(self) -> pa.RecordBatch | None:
        """No row waits that could be given back."""
        return None
