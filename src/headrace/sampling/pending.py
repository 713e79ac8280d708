"""Pending: the work of batches whose results were not read to the end."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headrace.errors import BadInput


class Pending:
    """Iterators of results that take in a batch while they are read, oldest first."""

    def __init__(self) -> None:
        self._work: list[Iterator[pa.RecordBatch]] = []
        self._broken: Exception | None = None

    def add(self, results: Iterator[pa.RecordBatch]) -> None:
        """Add the work of a batch."""
        self._work.append(results)

    def drain(self) -> Iterator[pa.RecordBatch]:
        """The results of all work."""
        while self._work:
            first = self._work[0]
            try:
                for out in first:  # noqa: UP028 -- `yield from` would close the work when a reader stops early
                    yield out
            except Exception as error:
                self._broken = error
                raise
            if self._work and self._work[0] is first:
                self._work.pop(0)

    def check_whole(self) -> None:
        """Refuse every call after an error in the middle of a batch."""
        if self._broken is not None:
            raise BadInput(
                f"an error stopped this join in the middle of a batch ({self._broken}); make another, or restore a snapshot"
            ) from self._broken

    def check_none(self, call: str) -> None:
        """Refuse a call while a batch is not taken in to its end."""
        self.check_whole()
        if self._work:
            raise BadInput(f"the results of the last insert were not read to the end; iterate over them before {call}")
