"""Connections to PostgreSQL through ADBC: rows are transferred as Arrow, and values are never part of a statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from headrace.errors import BadInput, OutsideFailure, missing_extra
from headrace.sources.secret import SecretUrl

_BATCH_BYTES = str(4 << 20)  # bytes of a record batch that a query returns, as a hint to the driver
_LONGEST_NAME = 63  # bytes of an identifier; the server truncates longer ones


class PostgreSQLError(OutsideFailure):
    """PostgreSQL could not be reached, or refused a statement. The message is the server's, without URL and statement."""

    def __init__(self, message: str, state: str | None = None) -> None:
        super().__init__(message)
        self.state = state  # SQLSTATE, where the server gave one

    def __reduce__(self) -> tuple[object, ...]:
        return PostgreSQLError, (str(self), self.state)


def quoted(name: str) -> str:
    """Quote an identifier for SQL.

    Example:
        >>> quoted('odd "name"; DROP')
        '"odd ""name""; DROP"'
    """
    if not isinstance(name, str) or not name or "\0" in name or len(name.encode()) > _LONGEST_NAME:
        raise BadInput(f"{name!r} is not a name that PostgreSQL allows; give 1 to {_LONGEST_NAME} bytes without NUL")
    return '"' + name.replace('"', '""') + '"'


def table_name(table: str | Sequence[str]) -> tuple[str, ...]:
    """Split a table's name: "products", "public.products", or ("public", "odd.name") if a part has a dot."""
    parts = tuple(table.split(".")) if isinstance(table, str) else tuple(table)
    if not 1 <= len(parts) <= 2:
        raise BadInput(f"table={table!r} is not a table's name; give 'table', 'schema.table' or ('schema', 'table')")
    for part in parts:
        quoted(part)
    return parts


def qualified(table: Sequence[str]) -> str:
    """Quote a table's name for SQL."""
    return ".".join(quoted(part) for part in table)


class PostgreSQLSession:
    """One connection, with one transaction after another."""

    def __init__(self, connection: Any, url: SecretUrl) -> None:
        self._connection = connection
        self._url = url

    def execute(self, sql: str, *values: Any) -> None:
        """Run a statement, with the values bound to $1, $2 ..."""
        with self._cursor() as cursor:
            cursor.execute(sql, parameters=values or None)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement that returns few rows."""
        with self._cursor() as cursor:
            cursor.execute(sql, parameters=values or None)
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Stream the rows of a query without bound values (COPY)."""
        with self._cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": _BATCH_BYTES})
            cursor.execute(sql)
            reader = cursor.fetch_record_batch()
            yield from reader

    def set_local(self, **values: str) -> None:
        """Set values for `setting` until the transaction ends: a COPY cannot have bound values, but it can refer to settings."""
        for name, value in values.items():
            self.rows("SELECT set_config($1, $2, true)", f"headrace.{name}", value)

    def copy_in(self, table: Sequence[str], schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
        """Append record batches to a table whose columns have their names and types (COPY); returns the rows."""
        failed: list[Exception] = []

        def watched() -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except Exception as error:
                failed.append(error)
                raise

        reader = pa.RecordBatchReader.from_batches(schema, watched())
        where = {"db_schema_name": table[0]} if len(table) == 2 else {}
        try:
            with self._cursor() as cursor:
                return int(cursor.adbc_ingest(table[-1], reader, mode="append", **where))
        except PostgreSQLError:
            if failed:  # the error is in our batches; the driver only reports that its input failed
                raise failed[0] from None
            raise

    def commit(self) -> None:
        """Commit the transaction; the next statement starts another."""
        with self._translated():
            self._connection.commit()

    def rollback(self) -> None:
        """Roll the transaction back."""
        with self._translated():
            self._connection.rollback()

    def close(self) -> None:
        """Roll back what is not committed, and close the connection."""
        with suppress(Exception):
            self._connection.close()

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        with self._translated(), self._connection.cursor() as cursor:
            yield cursor

    @contextmanager
    def _translated(self) -> Iterator[None]:
        with translated(self._url):
            yield


def setting(name: str, type_: str) -> str:
    """Return the SQL expression for a value of `set_local`. `type_` is the catalog's name of its type."""
    return f"current_setting('headrace.{name}')::{type_}"


@contextmanager
def connected(url: SecretUrl, *, read_only: bool = False) -> Iterator[PostgreSQLSession]:
    """Open a session, which rolls back at the end. With `read_only`, the whole transaction sees one snapshot."""
    dbapi = _driver()
    with translated(url, "PostgreSQL cannot be reached"):
        connection = dbapi.connect(url.text)
    session = PostgreSQLSession(connection, url)
    try:
        if read_only:
            session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        # Values are converted to text and back, so their format must not depend on the server's settings.
        session.rows("SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO', false)")
        yield session
    finally:
        session.close()


@contextmanager
def translated(url: SecretUrl, what: str = "PostgreSQL refuses") -> Iterator[None]:
    """Translate errors of the driver, without the statement, which may be long, and without the URL."""
    manager = _driver_errors()
    try:
        yield
    except manager as error:
        message = str(error).split("\n\nQuery was:")[0].strip()
        raise PostgreSQLError(f"{what} ({url}): {url.scrub(message)}", getattr(error, "sqlstate", None)) from None


def _driver() -> Any:
    try:
        import adbc_driver_postgresql.dbapi as dbapi
    except ModuleNotFoundError as error:
        raise missing_extra("PostgreSQL", error) from None
    return dbapi


def _driver_errors() -> Any:
    return _driver().Error
