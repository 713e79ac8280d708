"""`find_duplicates`: which rows of a stream the warehouse has already, exactly or nearly. [MESH] §1"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.functions import col
from pyspark.sql.types import BooleanType, StructField, StructType

from headrace.conditions import AllOf, Condition, parse_on
from headrace.errors import BadInput
from headrace.relation import Relation
from headrace.semistream.base import On
from headrace.spark.choice import Algorithm
from headrace.spark.column_names import ColumnNames
from headrace.spark.dataframes import check_dataframe, check_relation
from headrace.spark.enrich import enrich
from headrace.spark.enrich_step import EnrichStep
from headrace.spark.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def find_duplicates(
    df: DataFrame,
    rel: Relation,
    on: On | None = None,
    *,
    condition: Condition | None = None,
    flag: str = "duplicate",
    columns: Sequence[str] | None = None,
    suffix: str | None = "_right",
    memory: int | str = "64MiB",
    algorithm: str = "auto",
) -> DataFrame:
    """Say of each row of a DataFrame, streaming or batch, whether it is in a relation already, and as what.

    One DataFrame comes out, with a column that says which rows are duplicates: `out.where("duplicate")` and `out.where("not
    duplicate")` are the two parts. Two DataFrames would be two joins, and on a stream two queries. A new row comes out once,
    with nulls for the relation's columns; a duplicate comes out with the row that it matches, once for each if there are
    several. Rows are compared with the relation, not with each other. A null satisfies nothing: a row with a null key is new.

    Parameters
    ----------
    df
        The rows to look at.
    rel
        What is there already.
    on
        The same key: "col", ["a", "b"], or {"df's column": "relation's column"}, the relation's whole key. Other columns of the
        relation are compared as hr.equal would compare them: see `condition`.
    condition
        What must hold besides, or instead where `on` is left out: hr.edit_distance and hr.jaccard for texts that are nearly the
        same, hr.within for vectors that are near, hr.band, hr.compare, hr.predicate, hr.all_of. Without the relation's key
        every row is compared with the whole relation, in as few scans as the memory allows.
    flag
        The name of the column that is true for duplicates.
    columns, suffix, memory, algorithm
        See `enrich`.
    """
    check_dataframe(df)
    check_relation(rel)
    if on is None and condition is None:
        raise BadInput("neither on= nor condition= is given; say which rows are the same, on='order_id' for example")
    names = ColumnNames.of(df.sparkSession)
    if names.taken(flag, df.columns):
        raise BadInput(f"column {flag!r} is in the DataFrame already; choose another flag=")
    if on is not None:
        same = parse_on(names.resolve_on(on, df.columns, rel.schema.names))
        if set(same.right) != set(rel.key) and set(same.right) <= set(rel.schema.names):
            on, condition = None, same if condition is None else AllOf((same, condition))
    columns = None if columns is None else [names.resolve(name, rel.schema.names) for name in columns]
    wanted = columns
    if on is None and columns is not None:
        wanted = [*rel.key, *(name for name in columns if name not in rel.key)]
    if on is not None and algorithm not in ("auto", "adaptive"):
        raise BadInput(f"algorithm={algorithm!r} is for a condition alone; leave it out where on= is given")
    out = enrich(
        df, rel, on, "left", condition=condition, columns=wanted, suffix=suffix, memory=memory, algorithm=algorithm
    )
    if names.taken(flag, out.columns):
        raise BadInput(f"column {flag!r} is in the relation already; choose another flag=, or pick columns=...")
    if on is not None:
        return _flagged(Plan.of(out), rel, flag)
    # Without an equality the relation's key is in the result, and it is never null in a match.
    key = out.columns[len(df.columns) : len(df.columns) + len(rel.key)]
    dropped = (
        [] if columns is None else [shown for name, shown in zip(rel.key, key, strict=True) if name not in columns]
    )
    return out.withColumn(flag, col(f"`{key[0].replace('`', '``')}`").isNotNull()).drop(*dropped)


def _flagged(plan: Plan, rel: Relation, flag: str) -> DataFrame:
    """The result of a plan with one more column, which its last join fills: a match may have nulls in all other columns."""
    step = plan.steps[-1]
    assert isinstance(step, EnrichStep)  # the step of the `enrich` above
    join = replace(step.join, flag=flag)
    before = replace(plan, steps=plan.steps[:-1], relations=plan.relations[:-1])
    schema = StructType([*plan.schema.fields, StructField(flag, BooleanType())])
    return before.then(replace(step, join=join, algorithm=Algorithm.of(join)), rel, schema)
