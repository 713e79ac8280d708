"""ResultOutput: the results of a query in a file that others read: a feed, Parquet, or a Delta table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import BadInput
from headrace.feeds.result_feed import Format
from headrace.feeds.results import DeltaResults, ParquetResults
from headrace.files import draft_name, open_new, remove, replace

if TYPE_CHECKING:
    from headrace.feeds.query import FeedQuery

_FEEDS: dict[str, Format] = {".xml": "rss", ".rss": "rss", ".atom": "atom", ".json": "json"}
_ROWS = 10_000  # results that are read and written at a time


class ResultOutput:
    """Brings a file up to date with the results of a query. A feed has the newest; a table has all, each once.

    Args:
        path: the ending says what it is: .xml and .rss, .atom, .json; .parquet, a file, or a directory of files for a query
        that goes
            on; a path without an ending is that of a Delta table.
        query: the query.
        once: whether the query is run once: the file then has the results of this run, whatever it had before.
    """

    def __init__(self, path: Path, query: FeedQuery, *, once: bool) -> None:
        self.path, self.query, self.once = path, query, once
        ending = path.suffix.lower()
        self._format = _FEEDS.get(ending)
        self._table: DeltaResults | ParquetResults | None = None
        if self._format is None and ending not in ("", ".parquet"):
            raise BadInput(
                f"{path} ends in {ending!r}, which is no form of results; use one of {', '.join(_FEEDS)}, .parquet, or a"
                " directory for a Delta table"
            )
        if ending == "":
            self._table = DeltaResults(path, "headrace sql")
        elif ending == ".parquet" and not once:
            self._table = ParquetResults(path)

    def update(self) -> None:
        """Write what is new."""
        if self._format is not None:
            _replace(self.path, self.query.feed(self._format, link=self.path.absolute().as_uri()))
        elif self._table is None or self.once:
            self._write_snapshot()
        else:
            after = self._table.last or 0
            while (batch := self.query.results_after(after, _ROWS)).num_rows:
                after = batch.column("_number")[-1].as_py()
                self._table.append(after, batch)

    def _write_snapshot(self) -> None:
        table = self.query.results()
        if isinstance(self._table, DeltaResults):
            batches = table.combine_chunks().to_batches()
            if batches:
                self._table.append((self._table.last or 0) + table.num_rows, batches[0])
            return
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)  # files: into memory
        _replace(self.path, sink.getvalue())


def _replace(path: Path, content: bytes | pa.Buffer) -> None:
    """Write a file under another name, and give it its name: readers see the old one or the new one, whole."""
    path = path.absolute()
    draft = draft_name(path)
    try:
        with open_new(draft, private=False) as file:
            file.write(memoryview(content))
            file.sync()
        replace(draft, path)
    finally:
        remove(draft)
