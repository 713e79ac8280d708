"""Exactly-once loads into a PostgreSQL table: rows are copied to a staging table, then merged in one numbered transaction.

    tasks    COPY into headrace_stage_...       each attempt with a tag of its own; committed, but nobody reads it
    driver   one transaction: check the number, INSERT ... SELECT ... ON CONFLICT, write the number, DROP the stage

The number of the last micro-batch is in the table headrace_loads beside the target, so a repeated micro-batch is noticed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.errors import BadInput, UnsupportedType, shown
from headrace.sources.columns import PostgreSQLColumn, table_columns
from headrace.sources.connection import PostgreSQLError, PostgreSQLSession, connected, qualified, quoted, table_name
from headrace.sources.secret import SecretUrl

LOADS = "headrace_loads"  # table with the number of each application's last load
_TAG = "attempt"  # column of the staging table with the tag of the attempt that copied a row
_NO_ARBITER, _TWICE, _EXISTS = "42P10", "21000", ("42P07", "23505")  # SQLSTATEs
_TAGGED = f"{_TAG} = ANY (string_to_array($1, ','))"


@dataclass(frozen=True)
class UpsertTarget:
    """The table that rows are merged into, and the way they are merged.

    Parameters
    ----------
    table
        The name of the table, in parts.
    columns
        The columns that are written.
    key
        The columns that identify a row; rows are appended if there are none.
    latest_by
        The column that decides between two rows of the same key: the higher value stays.
    """

    table: tuple[str, ...]
    columns: tuple[PostgreSQLColumn, ...]
    key: tuple[str, ...]
    latest_by: str | None
    url: SecretUrl

    @classmethod
    def describe(
        cls,
        table: str | Sequence[str],
        url: str | SecretUrl,
        rows: pa.Schema,
        key: Sequence[str],
        latest_by: str | None,
    ) -> UpsertTarget:
        """Look up the table in the catalog and create headrace_loads; refuses columns that do not fit, by name."""
        name, where = table_name(table), SecretUrl.of(url)
        with connected(where) as session:
            known = {column.name: column for column in table_columns(session, name)}
        for field in rows:
            if field.name not in known:
                raise BadInput(
                    f"column {field.name!r} is not in {qualified(name)}, which has {', '.join(known)}; select the columns"
                    " that it has"
                )
            _check_fit(field, known[field.name], name)
        for column in known.values():
            if column.required and column.name not in rows.names:
                raise BadInput(f"{qualified(name)} needs a value for column {column.name!r}, and the rows have none")
        for option, names in (("key", key), ("latest_by", [latest_by] if latest_by else [])):
            for wanted in names:
                if wanted not in rows.names:
                    raise BadInput(
                        f"{option} names {wanted!r}, which the rows do not have; choose from {', '.join(rows.names)}"
                    )
        if latest_by and not key:
            raise BadInput(f"latest_by={latest_by!r} needs key=...: it chooses between rows of the same key")
        target = cls(name, tuple(known[n] for n in rows.names), tuple(key), latest_by, where)
        with connected(where) as session:
            target._make_loads(session)
            target._check_key(session)
        return target

    # -- on the driver -------------------------------------------------------------------------------------------------

    def last(self, app: str) -> int:
        """Return the number of an application's last load; -1 if there is none."""
        with connected(self.url) as session:
            found = session.rows(
                f"SELECT number FROM {qualified(self._beside(LOADS))} WHERE target = $1 AND application = $2",
                qualified(self.table),
                app,
            )
        return int(found[0][0]) if found else -1

    def new_stage(self, app: str) -> StagingTable:
        """Create an empty staging table for the next batch of an application; one of a killed batch is dropped."""
        stage = self._beside(f"headrace_stage_{uuid.uuid5(uuid.NAMESPACE_OID, f'{self.table} {app}').hex[:20]}")
        columns = ", ".join(f"c{i} {'text' if c.as_text else c.type}" for i, c in enumerate(self.columns))
        with connected(self.url) as session:
            session.execute(f"DROP TABLE IF EXISTS {qualified(stage)}")
            session.execute(f"CREATE UNLOGGED TABLE {qualified(stage)} ({columns}, {_TAG} text)")
            session.commit()
        return StagingTable(stage, self.columns, self.key, self.url)

    def merge(self, stage: StagingTable, app: str, number: int, tags: Iterable[str]) -> int | None:
        """Merge what these attempts copied, with the number, and return the rows; None if the number was merged before."""
        target, loads, chosen = qualified(self.table), qualified(self._beside(LOADS)), ",".join(tags)
        with connected(self.url) as session:
            session.execute(f"INSERT INTO {loads} VALUES ($1, $2, -1) ON CONFLICT DO NOTHING", target, app)
            # Locked: a driver that is only thought dead waits here, and then finds the number.
            where = "target = $1 AND application = $2"
            last = session.rows(f"SELECT number FROM {loads} WHERE {where} FOR UPDATE", target, app)
            if last[0][0] >= number:
                return None
            try:
                written = int(
                    session.rows(
                        f"WITH written AS ({self._insert(stage)} RETURNING 1) SELECT count(*) FROM written", chosen
                    )[0][0]
                )
            except PostgreSQLError as error:
                if error.state == _TWICE:
                    session.rollback()
                    raise self._twice(session, stage, chosen) from None
                raise
            session.execute(f"UPDATE {loads} SET number = $3 WHERE {where}", target, app, number)
            session.execute(f"DROP TABLE {qualified(stage.table)}")
            session.commit()
        return written

    def drop(self, stage: StagingTable) -> None:
        """Drop the staging table."""
        with connected(self.url) as session:
            session.execute(f"DROP TABLE IF EXISTS {qualified(stage.table)}")
            session.commit()

    def _beside(self, name: str) -> tuple[str, ...]:
        return (*self.table[:-1], name)

    def _insert(self, stage: StagingTable) -> str:
        names = [quoted(column.name) for column in self.columns]
        values = [f"c{i}::{c.type}" if c.as_text else f"c{i}" for i, c in enumerate(self.columns)]
        at = {column.name: i for i, column in enumerate(self.columns)}
        keys = [f"c{at[name]}" for name in self.key]
        distinct, order, conflict = "", "", ""
        if self.latest_by:
            latest = f"c{at[self.latest_by]}"
            if self.columns[at[self.latest_by]].as_text:
                latest += f"::{self.columns[at[self.latest_by]].type}"
            distinct = f"DISTINCT ON ({', '.join(keys)})"
            order = f" ORDER BY {', '.join(keys)}, {latest} DESC NULLS LAST"
        if self.key:
            rest = [name for name, c in zip(names, self.columns, strict=True) if c.name not in self.key]
            update = "DO UPDATE SET " + ", ".join(f"{n} = EXCLUDED.{n}" for n in rest) if rest else "DO NOTHING"
            conflict = f" ON CONFLICT ({', '.join(quoted(n) for n in self.key)}) {update}"
            if self.latest_by and rest:
                newer = quoted(self.latest_by)
                conflict += f" WHERE old.{newer} IS NULL OR old.{newer} <= EXCLUDED.{newer}"
        return (
            f"INSERT INTO {qualified(self.table)} AS old ({', '.join(names)}) SELECT {distinct} {', '.join(values)}"
            f" FROM {qualified(stage.table)} WHERE {_TAGGED}{order}{conflict}"
        )

    def _twice(self, session: PostgreSQLSession, stage: StagingTable, tags: str) -> BadInput:
        at = {column.name: i for i, column in enumerate(self.columns)}
        keys = ", ".join(f"c{at[name]}" for name in self.key)
        texts = ", ".join(f"c{at[name]}::text" for name in self.key)
        found = session.rows(
            f"SELECT {texts} FROM {qualified(stage.table)} WHERE {_TAGGED} GROUP BY {keys} HAVING count(*) > 1 LIMIT 1",
            tags,
        )
        value = ", ".join(str(v) for v in found[0]) if found else "?"
        return BadInput(
            f"key {', '.join(self.key)} = {shown(value)} comes more than once in a batch for {qualified(self.table)}; give"
            " latest_by='a column' to keep the row with the highest value, or aggregate before"
        )

    def _make_loads(self, session: PostgreSQLSession) -> None:
        try:
            session.execute(
                f"CREATE TABLE IF NOT EXISTS {qualified(self._beside(LOADS))} (target text, application text,"
                " number bigint NOT NULL, PRIMARY KEY (target, application))"
            )
            session.commit()
        except PostgreSQLError as error:
            if error.state not in _EXISTS:  # somebody else made it this moment
                raise
            session.rollback()

    def _check_key(self, session: PostgreSQLSession) -> None:
        """Plan an empty merge, so that the server refuses a wrong key before the first batch."""
        if not self.key:
            return
        names = ", ".join(quoted(name) for name in self.key)
        try:
            session.execute(
                f"INSERT INTO {qualified(self.table)} ({names}) SELECT {names} FROM {qualified(self.table)} WHERE false"
                f" ON CONFLICT ({names}) DO NOTHING"
            )
        except PostgreSQLError as error:
            if error.state == _NO_ARBITER:
                raise BadInput(
                    f"key={list(self.key)} has no unique index in {qualified(self.table)}; make one:"
                    f" CREATE UNIQUE INDEX ON {qualified(self.table)} ({names})"
                ) from None
            raise
        finally:
            session.rollback()


@dataclass(frozen=True)
class StagingTable:
    """The staging table that tasks copy into. It is pickled and sent to them."""

    table: tuple[str, ...]
    columns: tuple[PostgreSQLColumn, ...]
    key: tuple[str, ...]
    url: SecretUrl

    def copy(self, batches: Iterator[pa.RecordBatch], task: int) -> tuple[str, int]:
        """Copy all batches in one transaction, columns by position; returns the attempt's tag and the number of rows."""
        tag = f"{task}-{uuid.uuid4().hex}"
        types = [pa.string() if c.as_text else c.arrow for c in self.columns]
        schema = pa.schema([*((f"c{i}", type_) for i, type_ in enumerate(types)), (_TAG, pa.string())])
        converted = (self._converted(batch, schema, tag) for batch in batches if batch.num_rows)
        with connected(self.url) as session:
            rows = session.copy_in(self.table, schema, converted)
            session.commit()
        return tag, rows

    def _converted(self, batch: pa.RecordBatch, schema: pa.Schema, tag: str) -> pa.RecordBatch:
        arrays = []
        for column, array, field in zip(self.columns, batch.columns, schema, strict=False):
            if column.name in self.key and array.null_count:
                raise BadInput(
                    f"key column {column.name!r} holds {array.null_count} null(s), which are never found again; filter or fill"
                    " them before hr.load_postgresql"
                )
            try:
                if column.arrow is not None and not array.type.equals(column.arrow):
                    array = array.cast(column.arrow)  # refuses what would be cut or rounded
                arrays.append(array.cast(field.type))
            except pa.ArrowInvalid as error:
                raise BadInput(
                    f"column {column.name!r} holds a value that is no {column.type}: {shown(error)}"
                ) from None
        arrays.append(pa.repeat(pa.scalar(tag), batch.num_rows))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_fit(field: pa.Field, column: PostgreSQLColumn, table: Sequence[str]) -> None:
    """Refuse a column of another kind. Widths may differ, as each value is checked when it is copied."""
    t = pa.types
    given, wanted = field.type, column.arrow
    numeric = column.kind == "numeric"
    fits = (
        (wanted is not None and given.equals(wanted))
        or (numeric and (t.is_decimal(given) or t.is_integer(given)))
        or (wanted is not None and not numeric and any(k(given) and k(wanted) for k in (t.is_integer, t.is_floating)))
    )
    if column.generated:
        raise BadInput(f"column {field.name!r} of {qualified(table)} is computed by the server; leave it out")
    if not fits:
        raise UnsupportedType(
            f"column {field.name!r} has type {given}, and {qualified(table)} has {column.type} there; cast it first"
        )
