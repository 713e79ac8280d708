"""GatheredRows: rows that leave together are joined in the order of their pages."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headrace.semistream.protocols import DeferrableOperator

_SHARE = 8  # rows are gathered up to this part of the budget: large beside a page, small beside the hot set


class GatheredRows:
    """Each page is read once for all gathered rows, however few of them fit the operator at a time.

    Parameters
    ----------
    operator
        The join. No row waits in it between two calls.
    """

    def __init__(self, operator: DeferrableOperator) -> None:
        self.operator = operator
        self._rows: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Gather rows; if that makes too many, join them, and give the results."""
        self._rows.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self.operator.budget.limit // _SHARE:
            yield from self._send()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Join all gathered rows, and those that were offered to the operator otherwise."""
        yield from self._send()
        yield from self.operator.drain()

    def _send(self) -> Iterator[pa.RecordBatch]:
        if not self._rows:
            return
        rows = pa.concat_batches(self._rows)
        self._rows, self._bytes = [], 0
        order, at = self.operator.by_page(rows), 0
        while at < rows.num_rows:
            some = order[at : at + max(1, self.operator.capacity)]
            self.operator.offer(rows.take(pa.array(some)))
            yield from self.operator.drain()
            at += some.size
