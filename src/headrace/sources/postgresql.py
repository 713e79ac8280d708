"""Reading of a PostgreSQL table: all of it, or the new rows by a growing column.

For a pair of offsets, the rows with low < by <= high are read. A repeated read returns the same rows, provided that no row can
appear below `high` after it was chosen, which `bound` ensures.

    column     no row appears later below
    xid8       the oldest transaction that is still open (pg_snapshot_xmin): exact, whatever writers do
    timestamptz, with lag    now() - lag: if no transaction lasts longer than the lag
    others     the last value: if rows are committed in the order of their values
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import BadInput, UnsupportedType, shown
from headrace.sources.columns import PostgreSQLColumn, chosen, growing, table_columns
from headrace.sources.connection import PostgreSQLSession, connected, qualified, quoted, setting, table_name
from headrace.sources.secret import SecretUrl
from headrace.units import parse_duration

_NO_DATE, _NO_TIME = (
    -3_000_000,
    -3 * 10**17,
)  # days and microseconds since 1970, before PostgreSQL's first date in 4713 BC

Offset = str | None  # a value of the growing column as text; None is before all values


@dataclass(frozen=True)
class TableReader:
    """A table, the columns to read, and its growing column. Its statements contain no names but those of the catalog."""

    table: tuple[str, ...]
    columns: tuple[PostgreSQLColumn, ...]
    by: PostgreSQLColumn | None = None
    lag: float | None = None  # seconds
    url: SecretUrl = dataclasses.field(default_factory=lambda: SecretUrl("", ""))

    @classmethod
    def describe(
        cls,
        table: str | Sequence[str],
        url: str | SecretUrl,
        *,
        columns: Sequence[str] | None = None,
        by: str | None = None,
        lag: str | float | None = None,
    ) -> TableReader:
        """Look up the table in the catalog; refuses columns that cannot be read, by name."""
        name, where = table_name(table), SecretUrl.of(url)
        with connected(where, read_only=True) as session:
            known = table_columns(session, name)
        followed = None if by is None else growing(known, by, name)
        if lag is not None and (followed is None or followed.kind != "timestamptz"):
            raise BadInput(
                f"lag={lag!r} needs by= to be a column of type timestamptz; for exactness without a lag follow a column"
                " of type xid8, see docs/reference/sources.md"
            )
        seconds = None if lag is None else parse_duration(lag, name="lag")
        return cls(name, tuple(chosen(known, columns, name)), followed, seconds, where)

    @property
    def schema(self) -> pa.Schema:
        """The schema of `read`."""
        return pa.schema([(column.name, column.arrow) for column in self.columns])

    # -- offsets -------------------------------------------------------------------------------------------------------

    def bound(self, after: Offset, rows: int | None = None, until: Offset = None) -> Offset:
        """Return the highest offset that is safe to read, at most about `rows` rows further; `after` if there is nothing new.

        Rows of one value are not split, so there may be more than `rows`.
        """
        by = self._by()
        with connected(self.url, read_only=True) as session:
            where = self._range(session, after, until, bounded=True)
            last = session.rows(f"SELECT {by}::text FROM {self._from} {where} ORDER BY {by} DESC LIMIT 1")
            if not last:
                return after
            if rows is not None:
                nth = session.rows(
                    f"SELECT {by}::text FROM {self._from} {where} ORDER BY {by} OFFSET $1 LIMIT 1", rows - 1
                )
                last = nth or last
        return str(last[0][0])

    def cuts(self, after: Offset, until: Offset, parts: int, least: int) -> list[tuple[Offset, Offset]]:
        """Split a range into parts of about equal numbers of rows, all but one with `least` rows or more."""
        if parts < 2:
            return [(after, until)]
        by = self._by()
        with connected(self.url, read_only=True) as session:
            where = self._range(session, after, until) or f"WHERE {by} IS NOT NULL"
            found = session.rows(
                f"SELECT value FROM (SELECT {by}::text AS value, row_number() OVER (ORDER BY {by}) AS n, count(*) OVER () AS rows"
                f" FROM {self._from} {where}) AS numbered"
                " WHERE n % greatest($1, (rows + $2 - 1) / $2) = 0 AND n < rows ORDER BY n",
                least,
                parts,
            )
        ends = [end for end in dict.fromkeys(str(row[0]) for row in found) if end != until]
        return list(zip([after, *ends], [*ends, until], strict=True))

    # -- rows ----------------------------------------------------------------------------------------------------------

    def read(
        self, after: Offset = None, until: Offset = None, *, order: str = "", offset: str | None = None
    ) -> Generator[pa.RecordBatch]:
        """Read rows with after < by <= until, or the whole table without bounds, from one snapshot in batches of some MB.

        `order` is an ORDER BY; `offset` names a column to be added, with the offset of each row.
        """
        expressions, schema = [column.expression for column in self.columns], self.schema
        if offset is not None:
            expressions.append(f"{self._by()}::text AS {quoted(offset)}")
            schema = schema.append(pa.field(offset, pa.string()))
        with connected(self.url, read_only=True) as session:
            where = self._range(session, after, until)
            order = f" ORDER BY {order}" if order else ""
            for batch in session.batches(f"SELECT {', '.join(expressions)} FROM {self._from} {where}{order}"):
                yield _as_schema(batch, schema, self.table)

    @property
    def _from(self) -> str:
        return f"{qualified(self.table)} AS source"

    def _by(self) -> str:
        if self.by is None:
            raise BadInput(f"{qualified(self.table)} is followed by no column; give by='a growing column'")
        # Not the bare name, as ORDER BY would take the selected text of that name, in which 10 comes before 2.
        return f"source.{quoted(self.by.name)}"

    def _range(self, session: PostgreSQLSession, after: Offset, until: Offset, *, bounded: bool = False) -> str:
        """Return the WHERE clause of a range, which refers to settings of the transaction and contains no values."""
        if self.by is None:
            return ""
        by, tests = self._by(), []
        for name, value, comparison in (("after", after, ">"), ("until", until, "<=")):
            if value is not None:
                session.set_local(**{name: value})
                tests.append(f"{by} {comparison} {setting(name, self.by.kind)}")
        if tests and until is None and not bounded:
            tests = [f"({tests[0]} OR {by} IS NULL)"]  # the last part of a whole table includes rows with a null
        if bounded and self.by.kind == "xid8":
            tests.append(f"{by} < pg_snapshot_xmin(pg_current_snapshot())")
        elif bounded and self.lag is not None:
            session.set_local(lag=f"{self.lag} seconds")
            tests.append(f"{by} <= now() - {setting('lag', 'interval')}")
        elif bounded:
            tests.append(f"{by} IS NOT NULL")  # nulls sort last and are no offset
        return "WHERE " + " AND ".join(tests) if tests else ""


def _refuse_infinity(array: pa.Array, field: pa.Field, table: Sequence[str]) -> None:
    """Refuse 'infinity', which the driver turns into a date or time long before the first one of PostgreSQL."""
    if not (pa.types.is_timestamp(field.type) or pa.types.is_date(field.type)):
        return
    least = pc.min(array.view(pa.int32() if pa.types.is_date(field.type) else pa.int64())).as_py()
    if least is not None and least < (_NO_DATE if pa.types.is_date(field.type) else _NO_TIME):
        raise UnsupportedType(
            f"column {field.name!r} of {qualified(table)} holds infinity, and {field.type} has no such value; leave it out,"
            " or read a view that replaces it"
        )


def _as_schema(batch: pa.RecordBatch, schema: pa.Schema, table: Sequence[str]) -> pa.RecordBatch:
    """Convert columns that were transferred as text to their types."""
    arrays: list[Any] = []
    for field in schema:
        array = batch.column(field.name)
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if not array.type.equals(field.type):
            try:
                array = array.cast(field.type)
            except pa.ArrowInvalid as error:
                raise UnsupportedType(
                    f"column {field.name!r} of {qualified(table)} holds a value that is no {field.type}: {shown(error)}"
                ) from None
        _refuse_infinity(array, field, table)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
