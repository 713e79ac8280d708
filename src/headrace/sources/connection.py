"""Talk to PostgreSQL through ADBC: rows come and go as Arrow, values are bound and never part of a statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from headrace.errors import BadInput, HeadraceError
from headrace.sources.secret import SecretUrl

_BATCH_BYTES = str(4 << 20)  # hint for the size of the record batches that a query gives
_LONGEST_NAME = 63  # bytes of an identifier; the server cuts what is longer


class PostgreSQLError(HeadraceError):
    """PostgreSQL could not be reached, or refused. The message is the server's own, without the URL and the statement."""

    def __init__(self, message: str, state: str | None = None) -> None:
        super().__init__(message)
        self.state = state  # SQLSTATE, where the server gave one

    def __reduce__(self) -> tuple[object, ...]:
        return PostgreSQLError, (str(self), self.state)


def quoted(name: str) -> str:
    """An identifier as SQL has it.

    Example:
        >>> quoted('odd "name"; DROP')
        '"odd ""name""; DROP"'
    """
    if not isinstance(name, str) or not name or "\0" in name or len(name.encode()) > _LONGEST_NAME:
        raise BadInput(f"{name!r} is not a name that PostgreSQL allows; give 1 to {_LONGEST_NAME} bytes without NUL")
    return '"' + name.replace('"', '""') + '"'


def table_name(table: str | Sequence[str]) -> tuple[str, ...]:
    """A table's name in parts: "products", "public.products", or ("public", "odd.name") where a part has a dot."""
    parts = tuple(table.split(".")) if isinstance(table, str) else tuple(table)
    if not 1 <= len(parts) <= 2:
        raise BadInput(f"table={table!r} is not a table's name; give 'table', 'schema.table' or ('schema', 'table')")
    for part in parts:
        quoted(part)
    return parts


def qualified(table: Sequence[str]) -> str:
    """A table's name as SQL has it."""
    return ".".join(quoted(part) for part in table)


class PostgreSQLSession:
    """One connection, in one transaction after another."""

    def __init__(self, connection: Any, url: SecretUrl) -> None:
        self._connection = connection
        self._url = url

    def execute(self, sql: str, *values: Any) -> None:
        """Run a statement; $1, $2 ... in it are the values."""
        with self._cursor() as cursor:
            cursor.execute(sql, parameters=values or None)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The few rows that a statement gives."""
        with self._cursor() as cursor:
            cursor.execute(sql, parameters=values or None)
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """The many rows that a query without values gives, as they come (COPY)."""
        with self._cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": _BATCH_BYTES})
            cursor.execute(sql)
            reader = cursor.fetch_record_batch()
            yield from reader

    def set_local(self, **values: str) -> None:
        """Values for `setting` until the transaction ends: a COPY cannot have bound values, but it can refer to these."""
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
            if failed:  # what went wrong is on our side, and the driver only says that it was told so
                raise failed[0] from None
            raise

    def commit(self) -> None:
        """End the transaction; the next statement begins another."""
        with self._translated():
            self._connection.commit()

    def rollback(self) -> None:
        """Undo the transaction."""
        with self._translated():
            self._connection.rollback()

    def close(self) -> None:
        """Undo what is not committed, and let go of the connection."""
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
    """An expression for a value that `set_local` gave. `type_` is the catalog's own word for a type."""
    return f"current_setting('headrace.{name}')::{type_}"


@contextmanager
def connected(url: SecretUrl, *, read_only: bool = False) -> Iterator[PostgreSQLSession]:
    """A session; what is not committed at the end is undone. `read_only`: one snapshot for the whole transaction."""
    dbapi = _driver()
    with translated(url, "PostgreSQL cannot be reached"):
        connection = dbapi.connect(url.text)
    session = PostgreSQLSession(connection, url)
    try:
        if read_only:
            session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        # Values become text and back: always in the same form, whatever the server's settings are.
        session.rows("SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO', false)")
        yield session
    finally:
        session.close()


@contextmanager
def translated(url: SecretUrl, what: str = "PostgreSQL refuses") -> Iterator[None]:
    """Errors of the driver as ours: without the statement, which may be long, and without anything of the URL."""
    manager = _driver_errors()
    try:
        yield
    except manager as error:
        message = str(error).split("\n\nQuery was:")[0].strip()
        raise PostgreSQLError(f"{what} ({url}): {url.scrub(message)}", getattr(error, "sqlstate", None)) from None


def _driver() -> Any:
    try:
        import adbc_driver_postgresql.dbapi as dbapi
    except ImportError:
        raise BadInput("PostgreSQL needs the extra 'postgresql'; run pip install 'headrace[postgresql]'") from None
    return dbapi


def _driver_errors() -> Any:
    return _driver().Error
