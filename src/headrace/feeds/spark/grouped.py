"""GROUP BY on Spark: partial sums where rows are made, and groups of them in one shard, in the order of pulls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.errors import BadInput
from headrace.feeds.spark.options import NUMBERED_ITEMS
from headrace.feeds.spark.rows_step import then_rows
from headrace.feeds.spark.schemas import spark_schemas
from headrace.feeds.spark.shard_groups import GroupSpec, MarkRows, SumRows
from headrace.feeds.sql.plan import QueryPlan, Scan
from headrace.spark.plan import Plan, derived
from headrace.spark.sample_plan import sampled_sides

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = "groups"


def with_pulls(plan: QueryPlan) -> QueryPlan:
    """The plan with scans and joins that carry the numbers of pulls, which its items must have."""

    def scan(one: Scan) -> Scan:
        return replace(one, carried=(*one.carried, f"{one.source.alias}__pull"))

    scans = tuple(scan(one) for one in plan.scans)
    stages = tuple(
        replace(
            stage,
            right=scan(stage.right),
            carried=(*stage.carried, *(f"{one.source.alias}__pull" for one in scans[: i + 2])),
        )
        for i, stage in enumerate(plan.stages)
    )
    return replace(plan, scans=scans, stages=stages)


def grouped(
    rows: DataFrame,
    schema: pa.Schema,
    items: DataFrame,
    plan: QueryPlan,
    *,
    memory: int,
    state: Path,
    workers: int | None,
) -> DataFrame:
    """The groups of joined rows.

    Parameters
    ----------
    rows, schema
        The rows of the last join, or of the scan, and their columns.
    items
        All items of the query's feeds, with the numbers of their pulls.
    plan
        The query, `with_pulls`.
    memory, state, workers
        See `sql`.
    """
    if plan.snapshot_only is not None:
        raise BadInput(
            f"{plan.snapshot_only} needs an end, and a query on Spark goes on; add a window of time to GROUP BY"
        )
    # What a join owes may come in a micro-batch without pulls, and lets windows end that wait for it.
    sums, columns = then_rows(rows, SumRows(plan), schema, first=bool(plan.stages))
    marks, _ = then_rows(items, MarkRows(columns), NUMBERED_ITEMS)
    every = derived(sums.union(marks), sums, marks)
    joins = Plan.of(sums).logs
    sides = sampled_sides((every,), None, 1, workers)
    bytes_ = sides.worker_bytes(memory)
    assert bytes_ is not None
    spec = GroupSpec(plan=plan, memory=bytes_, state=str(state), joins=joins)
    return sides.then(spec, spark_schemas(plan.schema)[0], log=_LOG, memory=memory, state=state)
