"""The columns of a PostgreSQL table, from the catalog, with their Arrow types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.errors import BadInput, UnsupportedType
from headrace.sources.connection import PostgreSQLSession, qualified, quoted

# Types whose Arrow form COPY reads and writes directly.
_PLAIN = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "name": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
# Types that are read and written as text.
_TEXT = ("uuid", "json", "jsonb", "xml", "inet", "cidr", "macaddr", "citext")
_GROWING = ("int2", "int4", "int8", "timestamp", "timestamptz", "xid8")
_WIDEST_DECIMAL = 38

_CATALOG = """
SELECT a.attname::text, t.typname::text, format_type(a.atttypid, a.atttypmod), t.typtype::text, a.atttypmod, a.attnotnull,
       a.atthasdef OR a.attidentity <> '', a.attgenerated <> ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


@dataclass(frozen=True)
class PostgreSQLColumn:
    """A column as described by the catalog."""

    name: str
    kind: str  # the type's own name: int4
    type: str  # as SQL writes it: numeric(10,2)
    arrow: pa.DataType | None  # None for a type that is not supported
    as_text: bool  # whether it is transferred as text
    required: bool = False  # not null, and the server has no default for it
    generated: bool = False

    @property
    def expression(self) -> str:
        """The expression that selects the column."""
        name = quoted(self.name)
        if self.kind == "xid8":
            return f"{name}::text::bigint AS {name}"
        return f"{name}::text AS {name}" if self.as_text else name


def table_columns(session: PostgreSQLSession, table: Sequence[str]) -> list[PostgreSQLColumn]:
    """Return every column of a table or view; refuses a table that does not exist."""
    found = session.rows(_CATALOG, qualified(table))
    if not found:
        raise BadInput(f"there is no table {qualified(table)} in this database; check its name and schema")
    return [
        PostgreSQLColumn(
            name, kind, type_, *_arrow(kind, type_, typtype, modifier), not_null and not default, generated
        )
        for name, kind, type_, typtype, modifier, not_null, default, generated in found
    ]


def chosen(
    columns: Sequence[PostgreSQLColumn], names: Sequence[str] | None, table: Sequence[str]
) -> list[PostgreSQLColumn]:
    """Return columns by name, all by default; refuses unknown ones and unsupported types."""
    known = {column.name: column for column in columns}
    if names is not None and (isinstance(names, str) or not names or len(set(names)) < len(names)):
        raise BadInput(f"columns={names!r} is not a list of names, each once; leave it out for all columns")
    for name in names or ():
        if name not in known:
            raise BadInput(f"columns names {name!r}, which {qualified(table)} does not have; it has {', '.join(known)}")
    wanted = [known[name] for name in names] if names is not None else list(columns)
    for column in wanted:
        if column.arrow is None:
            raise UnsupportedType(
                f"column {column.name!r} of {qualified(table)} has type {column.type}, which has no Arrow type here; leave it out"
                " with columns=[...], or read a view that casts it"
            )
    return wanted


def growing(columns: Sequence[PostgreSQLColumn], name: str, table: Sequence[str]) -> PostgreSQLColumn:
    """Return the growing column that new rows are found by; refuses a type that does not grow."""
    for column in columns:
        if column.name == name:
            if column.kind not in _GROWING:
                raise UnsupportedType(
                    f"by={name!r} has type {column.type}; rows are followed by an integer, a timestamp or an xid8"
                )
            return column
    raise BadInput(
        f"by={name!r} is not a column of {qualified(table)}; choose from {', '.join(c.name for c in columns)}"
    )


def _arrow(kind: str, type_: str, typtype: str, modifier: int) -> tuple[pa.DataType | None, bool]:
    """Return the Arrow type of a PostgreSQL type, and whether it is transferred as text."""
    if kind in _PLAIN and not type_.endswith("[]"):
        return _PLAIN[kind], False
    if kind == "xid8":
        return pa.int64(), True
    if kind == "numeric" and modifier >= 0:
        precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
        if precision <= _WIDEST_DECIMAL and scale <= precision:
            return pa.decimal128(precision, scale), True
    if kind in _TEXT or typtype == "e":
        return pa.string(), True
    return None, kind == "numeric"
