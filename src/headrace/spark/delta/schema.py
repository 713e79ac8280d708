"""Whether rows fit a Delta table: their types, its partitions, columns and rules. Refused by name before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema

from headrace.errors import BadInput, UnsupportedType

_PARTITION_TYPES = "text, whole numbers, dates and booleans"
_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity")  # of a column, for every writer


def delta_types(schema: pa.Schema) -> pa.Schema:
    """The schema, if a Delta table can hold it; refuses columns that it cannot, by name."""
    for field in schema:
        try:
            DeltaSchema.from_arrow(pa.schema([field]))
            holds = not _strange(field.type)
        except Exception:  # delta-rs raises no narrower one
            holds = False
        if not holds:
            raise UnsupportedType(
                f"column {field.name!r} has type {field.type}, which a Delta table cannot hold; drop it or cast it before hr.load"
            )
    names = [name.lower() for name in schema.names]
    for name in schema.names:
        if names.count(name.lower()) > 1:
            raise BadInput(f"column {name!r} is there twice, and a Delta table ignores case; rename it before hr.load")
    return schema


def _strange(type_: pa.DataType) -> bool:
    """A struct of nothing, which Parquet cannot store, or one that stands for another type, which readers would not see."""
    inside = [type_.field(i) for i in range(type_.num_fields)]
    marks = {key for field in inside for key in field.metadata or ()}
    if pa.types.is_struct(type_) and (not inside or marks & {b"variant", b"geometry", b"geography"}):
        return True
    return any(_strange(field.type) for field in inside)


def check_partitions(schema: pa.Schema, partition_by: tuple[str, ...]) -> None:
    """Refuse columns that a table cannot be partitioned by."""
    for name in partition_by:
        if partition_by.count(name) > 1:
            raise BadInput(f"partition_by names {name!r} twice")
        if name not in schema.names:
            raise BadInput(f"partition_by names {name!r}, which is not a column; choose from {', '.join(schema.names)}")
        type_ = schema.field(name).type
        test = (pa.types.is_string, pa.types.is_integer, pa.types.is_date, pa.types.is_boolean)
        if not any(is_(type_) for is_ in test):
            raise BadInput(f"partition_by names {name!r} of type {type_}; a table is partitioned by {_PARTITION_TYPES}")
    if len(partition_by) == len(schema):
        raise BadInput("partition_by names every column; at least one must be left to store")


def check_schema(table: DeltaTable, schema: pa.Schema, partition_by: tuple[str, ...], path: Path) -> tuple[str, ...]:
    """Refuse rows that do not fit the table; returns the columns that must not be null."""
    mine = {f.name: f for f in DeltaSchema.from_arrow(schema).fields}
    theirs = {f.name: f for f in table.schema().fields}
    wrong = [f"{n!r} is not in the table" for n in mine if n not in theirs]
    wrong += [f"{n!r} is missing" for n in theirs if n not in mine]
    wrong += [
        f"{n!r} is {_type(mine[n])} and the table has {_type(theirs[n])}"
        for n in mine
        if n in theirs and mine[n].type != theirs[n].type
    ]
    if wrong:
        raise BadInput(
            f"the columns do not fit the table at {path}: {'; '.join(wrong)}; select or cast them before hr.load"
        )
    metadata = table.metadata()
    if tuple(metadata.partition_columns) != partition_by:
        raise BadInput(
            f"partition_by={list(partition_by)} differs from the table at {path}, which is partitioned by"
            f" {list(metadata.partition_columns)}"
        )
    mapping = metadata.configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        raise BadInput(
            f"the table at {path} maps columns by {mapping}, which hr.load cannot write; load with Spark's Delta"
        )
    rules = [n for n in metadata.configuration if n.startswith("delta.constraints.")]
    rules += [f"{n}: {rule}" for n in theirs for rule in theirs[n].metadata if rule.startswith(_RULES)]
    if rules:
        raise BadInput(
            f"the table at {path} has rules that hr.load cannot keep ({', '.join(rules)}); load with Spark's Delta"
        )
    return tuple(n for n in mine if not theirs[n].nullable)


def _type(field: Any) -> str:
    return str(field.type.to_json()).strip('"')
