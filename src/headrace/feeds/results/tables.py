"""Results appended to tables, each once: those of a step are in the table whole or not at all, and a repeated step adds none.

A step has a number, which rises: that of the pull whose results they are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import BadInput, HeadraceError, OutsideFailure, missing_extra, shown
from headrace.files import (
    create_exclusively,
    draft_name,
    exists,
    is_directory,
    make_directory,
    names_in,
    open_new,
    remove,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

_TRIES = 50  # commits that lost against other writers, before giving up
_NAME = re.compile(r"results-(\d{12})\.parquet")
_UNFIT = re.compile(r"[ ,;{}()\n\t=]")  # what the name of a column of a Delta table may not have


class ParquetResults:
    """A directory of Parquet files, one for each step that had results; the files' names have the numbers of the steps.

    A file is written under another name, synced, and linked to its own, which fails if it is there. What a killed writer left
    has no name that readers of Parquet look at.

    Example
    -------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> from headrace.feeds.results import ParquetResults
    >>> table = ParquetResults(tempfile.mkdtemp())
    >>> rows = pa.record_batch({"a.title": ["M 5.6"]})
    >>> table.append(7, rows), table.append(7, rows), table.last
    (True, False, 7)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if exists(self.path) and not is_directory(self.path):
            raise BadInput(f"{self.path} is not a directory; give one for the Parquet files of the results")
        make_directory(self.path, parents=True, private=False)

    @property
    def last(self) -> int | None:
        """The highest step that has a file."""
        return max(
            (int(found[1]) for found in map(_NAME.fullmatch, names_in(self.path)) if found),
            default=None,
        )

    def append(self, step: int, rows: pa.RecordBatch) -> bool:
        """Add the results of a step; False if they are there already."""
        path = self.path / f"results-{_checked(step):012d}.parquet"
        if exists(path):
            return False
        if not rows.num_rows:
            return True
        draft = draft_name(path)
        try:
            with open_new(draft, private=False) as file:
                pq.write_table(pa.Table.from_batches([_plain(rows)]), file)  # files: into the draft
                file.sync()
            return create_exclusively(draft, path)
        finally:
            remove(draft)


class DeltaResults:
    """A Delta table. A commit has the number of its step, under the name of the query: a step that is there is not added again.

    Needs deltalake, of the extra `spark`.

    Parameters
    ----------
    path
        The table's directory; it is made with the first results.
    query
        The query's name, under which numbers of steps are kept in the table. Several queries may write to one table.
    """

    def __init__(self, path: str | Path, query: str) -> None:
        self.path = Path(path)
        self.query = query

    @property
    def last(self) -> int | None:
        """The highest step that is in the table."""
        table = self._table()
        return None if table is None else _last(table, self.query)

    def append(self, step: int, rows: pa.RecordBatch) -> bool:
        """Add the results of a step; False if they are there already."""
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        for name in rows.schema.names:
            if _UNFIT.search(name):
                raise BadInput(f"a Delta table cannot have a column named {name!r}; give it another name with AS")
        properties = CommitProperties(max_commit_retries=0, app_transactions=[Transaction(self.query, _checked(step))])
        for _ in range(_TRIES):
            table = self._table()
            last = None if table is None else _last(table, self.query)
            if last is not None and last >= step:
                return False
            if not rows.num_rows:
                return True
            try:
                # No retry inside: after a lost race the number has to be looked at again.
                write_deltalake(
                    str(self.path) if table is None else table,
                    pa.Table.from_batches([_plain(rows)]),
                    mode="error" if table is None else "append",
                    commit_properties=properties,
                )
            except (CommitFailedError, DeltaError) as error:
                now = self._table()
                if now is None or (table is not None and now.version() == table.version()):  # nobody else was there
                    raise OutsideFailure(
                        f"results could not be added to the table at {self.path}: {shown(error)}"
                    ) from error
                continue
            return True
        raise HeadraceError(f"the commit to {self.path} lost against other writers {_TRIES} times; append again later")

    def _table(self) -> DeltaTable | None:
        try:
            from deltalake import DeltaTable
        except ModuleNotFoundError as error:
            raise missing_extra("a Delta table", error) from None
        is_there = is_directory(self.path) and DeltaTable.is_deltatable(str(self.path))
        return DeltaTable(str(self.path)) if is_there else None


def _last(table: DeltaTable, query: str) -> int | None:
    last = table.transaction_version(query)
    return None if last is None else int(last)


def _checked(step: int) -> int:
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 10**12:
        raise BadInput(f"step={step!r} is not a number from 0 to 10^12 - 1")
    return step


def _plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Results with types that all readers of Parquet and Delta know: ids are bytes of any length."""
    fields = [pa.field(f.name, pa.binary()) if pa.types.is_fixed_size_binary(f.type) else f for f in rows.schema]
    return rows.cast(pa.schema(fields))
