"""Source tables that relations are made from and refreshed by: `hr.postgresql(...)` and `hr.delta(...)`."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import BadInput
from headrace.sources.columns import chosen, growing, table_columns
from headrace.sources.connection import connected, qualified, quoted, table_name
from headrace.sources.postgresql import TableReader
from headrace.sources.secret import SecretUrl

NOTE = "source"  # the note in a relation's manifest with the source table and its version
_OFFSET = "headrace offset"
_DELETES = ("d", "delete", "deleted")


@dataclass(frozen=True)
class TableChanges:
    """The changes of a table, in order, up to a version. The last change of a key counts."""

    rows: pa.Table
    """rows with the columns of the table"""
    deleted: pa.ChunkedArray
    """whether each row was deleted; only the key of a deleted row is used"""
    version: Any
    """version of the table after the changes, as JSON"""


class SourceTable(Protocol):
    """A table with versions."""

    @property
    def name(self) -> str:
        """The table's name in a relation's notes, without a secret."""

    def snapshot(self) -> tuple[pa.RecordBatchReader, dict[str, Any]]:
        """Return all rows, and the note with their version."""

    def latest(self) -> Any:
        """Return the current version."""

    def changes(self, after: Any, until: Any, memory: int) -> TableChanges | None:
        """Return about `memory` bytes of changes after a version; None if there are none up to `until`."""


@dataclass(frozen=True)
class PostgreSQLTable:
    """A PostgreSQL table as a source; see `postgresql`."""

    state: TableReader
    followed: TableReader
    order: str | None
    operation: str | None

    @property
    def name(self) -> str:
        """The table's name and its growing column."""
        by = self.followed.by
        return f"postgresql {qualified(self.state.table)} by {qualified(self.followed.table)} {by.name if by else ''}"

    def snapshot(self) -> tuple[pa.RecordBatchReader, dict[str, Any]]:
        """Return all rows. The offset is read before them, so `changes` repeats what is committed in between."""
        version = self.latest()
        reader = pa.RecordBatchReader.from_batches(self.state.schema, replace(self.state, by=None).read())
        return reader, {NOTE: {"name": self.name, "version": version}}

    def latest(self) -> Any:
        """Return the highest offset below which no row can appear any more."""
        return self.followed.bound(None)

    def changes(self, after: Any, until: Any, memory: int) -> TableChanges | None:
        """Read changes in order up to about `memory` bytes, and cut where the offset changes."""
        if until is None or until == after:
            return None
        held: list[pa.RecordBatch] = []
        size = 0
        rows = _ordered(self, after, until)
        for batch in rows:
            held.append(batch)
            size += batch.nbytes
            offsets = batch[_OFFSET]
            # The batch is large enough and has several offsets; rows of the last one may follow, so it is left for later.
            if size > memory and held[0][_OFFSET][0] != offsets[-1]:
                break
        rows.close()
        if not held:
            return None
        table, version = pa.Table.from_batches(held), until
        if size > memory:
            whole = pc.not_equal(table[_OFFSET], table[_OFFSET][-1])
            if pc.any(whole).as_py():
                table = table.filter(whole)
                version = table[_OFFSET][-1].as_py()
        deleted = self._deleted(table)
        names = self.state.schema.names
        return TableChanges(table.select(names).cast(self.state.schema), deleted, version)

    def _deleted(self, table: pa.Table) -> pa.ChunkedArray:
        if self.operation is None:
            return pa.chunked_array([pa.repeat(pa.scalar(False), table.num_rows)])
        operation = table[self.operation]
        if pa.types.is_boolean(operation.type):
            return pc.fill_null(operation, False)
        return pc.is_in(pc.utf8_lower(operation), pa.array(_DELETES))


def postgresql(
    table: str | Sequence[str],
    *,
    url: str,
    by: str | tuple[str, str],
    columns: Sequence[str] | None = None,
    lag: str | float | None = None,
    changes: str | Sequence[str] | None = None,
    operation: str | None = None,
) -> PostgreSQLTable:
    """A PostgreSQL table to make a relation from, ``hr.Relation.create(path, hr.postgresql(...), key=...)``, and to follow later
    with `hr.refresh`.

    Parameters
    ----------
    table, url, columns, lag
        As for `stream_postgresql`. The relation's key must tell the table's rows apart.
    by
        The growing column, of the table or of its change table; see `stream_postgresql` for which are safe. A second column says
        in which order things happened where the first is the same.
    changes
        A table with the same columns that has a row for each change. Without it, changed rows are found in the table itself.
    operation
        A column that says what is gone: true, or D or delete. Without it nothing is ever deleted.
    """
    first, order = (by, None) if isinstance(by, str) else by
    where = SecretUrl.of(url)
    state = TableReader.describe(table, where, columns=columns)
    log = table_name(changes if changes is not None else table)
    with connected(where, read_only=True) as session:
        known = table_columns(session, log)
    extra = [name for name in (operation, order) if name is not None]
    hidden = [name for name in extra if changes is None and columns is None and name == operation]
    state = replace(state, columns=tuple(c for c in state.columns if c.name not in hidden))
    wanted = [*state.schema.names, *(name for name in extra if name not in state.schema.names)]
    followed = TableReader.describe(log, where, columns=wanted, by=first, lag=lag)
    for column in chosen(known, state.schema.names, log):
        if column.arrow != state.schema.field(column.name).type:
            raise BadInput(
                f"column {column.name!r} has type {column.type} in {qualified(log)}, and another in {qualified(state.table)}"
            )
    if changes is not None and order is None and not growing(known, first, log).kind.startswith("int"):
        raise BadInput(
            f"by={first!r} may be the same for several changes of a row; give by=({first!r}, 'a column that counts the changes')"
        )
    return PostgreSQLTable(state, followed, order, operation)


def _ordered(table: PostgreSQLTable, after: Any, until: Any) -> Generator[pa.RecordBatch]:
    """Yield changes in the order of their offsets, each with its offset."""
    by = table.followed.by
    assert by is not None
    extra = (f"{by.name}", *([table.order] if table.order else []))
    order = ", ".join(f"source.{quoted(name)}" for name in extra)
    return table.followed.read(after, until, order=order, offset=_OFFSET)
