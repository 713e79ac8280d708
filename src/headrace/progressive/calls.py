"""Calls: the calls of a join in order, each after the results of the last one were read."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import ReferenceType, ref

import pyarrow as pa

from headrace.errors import BadInput, SpillError
from headrace.memory import FreedMemory, MemoryBudget
from headrace.progressive.stats import ProgressiveStats


class Calls:
    """Keeps the calls of a join in order, and sends its results.

    Parameters
    ----------
    stats
        Where results that were sent are counted, and the memory that is held.
    budget
        The budget of the join.
    """

    def __init__(self, stats: ProgressiveStats, budget: MemoryBudget) -> None:
        self._stats, self._budget = stats, budget
        self._freed = FreedMemory(budget.limit)
        self._reader: ReferenceType[Iterator[pa.RecordBatch]] | None = None  # of results that are not read to the end
        self._called = ""  # what they are results of: "insert" or "finish"
        self._broken: BaseException | None = None
        self._finishing = self._finished = False

    def may_begin(self, call: str) -> None:
        """Refuse a call while results of the last one are unread, after `finish`, and after an error in the middle of a step."""
        if self._broken is not None:
            raise BadInput(
                f"an error stopped this join in the middle of a step, so that results may be missing ({self._broken}); what it"
                " sent before is right: make another, and insert all streams from the beginning"
            ) from self._broken
        if self._reader is not None and self._reader() is not None:
            raise BadInput(
                f"the results of the last {self._called} were not read to the end; iterate over what it returns"
            )
        if self._finished or (self._finishing and call != "finish"):
            raise BadInput("this join has been finished; make another")
        self._finishing = call == "finish"

    def steady(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send the results of a step. An error that leaves it unknown which of them were sent breaks the join.

        `results` is not closed with this iterator, so that they can be read on after the caller has dropped it.
        """
        while True:
            try:
                out = next(results, None)
            except SpillError:  # nothing of a step was done: segments were to be merged before it
                raise
            except BaseException as error:
                self._broken = error
                raise
            if out is None:
                return
            yield out

    def until_read(self, call: str, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send results; the next call is refused until they are read to the end, or the iterator is dropped."""
        sent = self._send(results)
        self._called, self._reader = call, ref(sent)
        return sent

    def sent(self, out: pa.RecordBatch) -> pa.RecordBatch:
        """Count results that are sent now."""
        self._stats.results += out.num_rows
        self._freed.add(out.nbytes, out.num_rows)
        return out

    def _send(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for out in results:
                if out.num_rows:
                    yield self.sent(out)
            self._finished = self._finishing
        finally:
            self._reader = None
            self._stats.memory, self._stats.memory_peak = self._budget.held(), self._budget.peak
