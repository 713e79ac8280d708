"""`assign_surrogate_keys`: production keys of several sources become the warehouse's own. [MESH] §1 (Fig. 1), [SSIJ] §I (Fig. 1)

rows --by key--> left join with the lookup, one version a micro-batch --known--> rows with their surrogate key
                                  | unknown                                          ^
                    held, then together: the lookup's latest version, one writer     |
                    at a time; what is new there too gets the next numbers ----------+
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.functions import col
from pyspark.sql.types import StructField, StructType

from headrace.conditions import On, parse_on
from headrace.errors import BadInput, shown
from headrace.etl.allocate import Lookup
from headrace.etl.key_step import KeyStep
from headrace.relation import Relation
from headrace.spark.column_names import ColumnNames
from headrace.spark.dataframes import check_dataframe, check_relation
from headrace.spark.enrich import enrich_step
from headrace.spark.executors import workers_of
from headrace.spark.plan import Plan
from headrace.spark.relation_join import RelationJoin, open_join
from headrace.spark.schemas import ResultColumns, stream_schema
from headrace.units import parse_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HELD = 8  # of the memory, one part in so many is for rows that wait for a new key: the join needs most of it


def assign_surrogate_keys(
    df: DataFrame,
    lookup: Relation,
    *,
    key: On,
    source: Any = None,
    source_column: str | None = None,
    surrogate: str = "skey",
    inferred: str | None = "inferred",
    same_as: Relation | None = None,
    first: int = 1,
    memory: int | str = "64MiB",
    partitions: int | None = None,
) -> DataFrame:
    """Give every row of a DataFrame, streaming or batch, the warehouse's key for the production key of its source.

    A key that is in the lookup relation has its number there. A key never seen before gets the next one, which is written to the
    lookup in the same atomic commit: an "inferred member", whose other columns are null until a dimension load completes it with
    `lookup.apply`. A number is given out once, without gaps, whatever is killed or replayed. A row whose production key or source
    is null gets no number: it comes out with a null. Lazy, like `enrich`; steps that follow are part of the same pass.

    Parameters
    ----------
    df
        Rows of one source or several.
    lookup
        A relation whose key is the source's column and the production key's columns (or these alone, for one source), with no key
        twice, and with the surrogate keys among its other columns. It may be empty.
    key
        The production key: "col", ["a", "b"], or {"df's column": "lookup's column"}. Names are compared as
        spark.sql.caseSensitive says, here and below.
    source
        The source that all rows come from, such as "shop"; of the type that the lookup's column of sources has.
    source_column
        Instead of `source`: the column of `df` that says which source a row comes from.
    surrogate
        The lookup's column of surrogate keys (int32 or int64), and the column of the result.
    inferred
        The lookup's boolean column that is true for inferred members; None: it has none.
    same_as
        What several sources name differently. A relation with the lookup's key, and either `same_<column>` for each column of
        that key (the key that is meant), or the surrogate column. Looked at when a key comes for the first time: it then gets
        the number of what is meant. Numbers once given out stay.
    first
        The first number, where the lookup has none.
    memory
        The budget of each executor.
    partitions
        Tasks that rows are shuffled to by their key; as many as run at a time by default. A micro-batch makes at most so many
        versions of the lookup, unless its rows with new keys outgrow an eighth of the memory.

    References
    ----------
    [MESH] §1 and [SSIJ] §I: the example that both begin with. There every key is in the lookup already.
    """
    check_dataframe(df)
    check_relation(lookup, "lookup")
    names, there = ColumnNames.of(df.sparkSession), lookup.schema.names
    key = names.resolve_on(key, df.columns, there)
    source_column = None if source_column is None else names.resolve(source_column, df.columns)
    surrogate = names.resolve(surrogate, there)
    inferred = None if inferred is None else names.resolve(inferred, there)
    if names.taken(surrogate, df.columns):
        raise BadInput(
            f"column {surrogate!r} is in the DataFrame already; drop or rename it, or choose another surrogate="
        )
    on, rest = _key_columns(lookup, key)
    constant = _source(df, lookup, on, rest, source, source_column)
    _check_lookup(lookup, surrogate, inferred)
    _check_same(same_as, lookup, surrogate)
    many = workers_of(df.sparkSession) if partitions is None else partitions
    if many < 1:
        raise BadInput(f"partitions={partitions} is not a number of tasks; give 1 or more, or leave it out")
    budget = parse_size(memory, name="memory")
    shuffled = df.repartition(many, *(col(f"`{name.replace('`', '``')}`") for name in on if name in df.columns))
    plan = Plan.of(shuffled)
    stream = stream_schema(plan.schema)
    if constant is not None:
        stream = stream.append(pa.field(_constant_name(df), constant.type))
    workers = workers_of(df.sparkSession)
    join = RelationJoin(
        path=str(lookup.path),
        identity=lookup.identity,
        disk=lookup.disk.kind,
        on=on,
        how="left",
        algorithm="auto",
        order="any",
        condition=None,
        memory=budget - budget // _HELD,
        columns=(surrogate,),
        suffix=None,
        workers=workers,
    )
    open_join(join, join.algorithm, lookup, Path()).operator.output_schema(stream)  # refuses what tasks would refuse
    step = KeyStep(
        join=enrich_step(join, stream, lookup.version, follow=df.isStreaming, result=ResultColumns()),
        on=on,
        meaning=Lookup(surrogate, inferred, first),
        key=lookup.key,
        constant=constant,
        same_as=None if same_as is None else str(same_as.path),
        same_identity="" if same_as is None else same_as.identity,
        held=budget // _HELD // workers,
    )
    type_ = "int" if lookup.schema.field(surrogate).type == pa.int32() else "bigint"
    schema = StructType([*plan.schema.fields, *_field(surrogate, type_)])
    return plan.then(step, lookup, schema)


def _field(name: str, type_: str) -> list[StructField]:
    return [StructField(name, field.dataType) for field in StructType.fromDDL(f"x {type_}").fields]


def _constant_name(df: DataFrame) -> str:
    """A name for the column of the one source that no other column has."""
    return "source" + "_" * (1 + max(len(name) for name in df.columns))


def _key_columns(lookup: Relation, key: On) -> tuple[dict[str, str], list[str]]:
    """df's columns to the lookup's, and the lookup's key columns that are left for the source."""
    equality = parse_on(key)
    on = dict(zip(equality.left, equality.right, strict=True))
    for name in on.values():
        if name not in lookup.key:
            raise BadInput(
                f"key names {name!r} of the lookup, whose key is {', '.join(lookup.key)}; give {{'df column': 'lookup column'}}"
                " where the names differ"
            )
    return on, [name for name in lookup.key if name not in on.values()]


def _source(
    df: DataFrame, lookup: Relation, on: dict[str, str], rest: list[str], source: Any, source_column: str | None
) -> pa.Scalar | None:
    """Adds the source to the key; returns the one source of all rows, if it is one."""
    if source is not None and source_column is not None:
        raise BadInput(f"source={source!r} and source_column={source_column!r} are both given; give one of them")
    given = source is not None or source_column is not None
    if len(rest) != given:
        hint = "say where rows come from with source= or source_column=" if not given else "leave the source out"
        raise BadInput(
            f"the lookup's key is {', '.join(lookup.key)}, and key={list(on)} leaves {', '.join(rest) or 'no column'} for the"
            f" source; {hint if len(rest) < 2 else 'name the other columns in key= too'}"
        )
    if source_column is not None:
        if source_column in on:
            raise BadInput(f"source_column={source_column!r} is also part of the key; name another column")
        on[source_column] = rest[0]
        return None
    if source is None:
        return None
    type_ = lookup.schema.field(rest[0]).type
    try:
        scalar = pa.scalar(source, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise BadInput(
            f"source={shown(source)} does not fit column {rest[0]!r} of type {type_}: {shown(error)}"
        ) from error
    on[_constant_name(df)] = rest[0]
    return scalar


def _check_lookup(lookup: Relation, surrogate: str, inferred: str | None) -> None:
    payload = [name for name in lookup.schema.names if name not in lookup.key]
    if surrogate not in payload:
        raise BadInput(
            f"the lookup has no column {surrogate!r} for surrogate keys beside its key; choose surrogate= from"
            f" {', '.join(payload) or 'columns: it has none'}"
        )
    type_ = lookup.schema.field(surrogate).type
    if type_ not in (pa.int32(), pa.int64()):
        raise BadInput(f"column {surrogate!r} of the lookup has type {type_}; surrogate keys are int32 or int64")
    if inferred is not None and (inferred not in payload or lookup.schema.field(inferred).type != pa.bool_()):
        raise BadInput(
            f"the lookup has no boolean column {inferred!r} to mark inferred members; create it with one, or pass inferred=None"
        )
    if lookup.order != "key":
        raise BadInput(f"{lookup.path} is stored by popularity and cannot take new keys; create it with order='key'")
    if not lookup.unique:
        raise BadInput(
            f"{lookup.path} has a key twice, so a production key would have two numbers; create it with each once"
        )


def _check_same(same_as: Relation | None, lookup: Relation, surrogate: str) -> None:
    if same_as is None:
        return
    if not isinstance(same_as, Relation):
        raise BadInput(
            f"same_as={same_as!r} is not a relation; create one with hr.Relation.create(path, table, key=...)"
        )
    if same_as.key != lookup.key or same_as.codec.types != lookup.codec.types:
        raise BadInput(f"same_as has the key {_typed(same_as)}; expected that of the lookup, {_typed(lookup)}")
    wanted = [f"same_{name}" for name in lookup.key]
    if surrogate not in same_as.schema.names and any(name not in same_as.schema.names for name in wanted):
        raise BadInput(
            f"same_as has the columns {', '.join(same_as.schema.names)}; expected {', '.join(wanted)}, or {surrogate!r}, beside"
            " its key"
        )
    if not same_as.unique:
        raise BadInput(f"{same_as.path} has a key twice; a key stands for one other")


def _typed(relation: Relation) -> str:
    return ", ".join(f"{n}: {t}" for n, t in zip(relation.key, relation.codec.types, strict=True))
