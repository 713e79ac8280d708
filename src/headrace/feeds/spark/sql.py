"""SQL over feeds on Spark: the plan of an embedded query, with its scans, joins and results as steps of a streaming DataFrame.

```
driver   source rss: scanner -> numbered pulls
tasks    pulls -> scan of each alias --+
                                       +-> shards: join, carry --+-> ... -> results
         pulls -> scan of each alias --+                         |
         pulls -> scan of each alias ----------------------------+

GROUP BY: rows -> partial sums by pull --+
          pulls -> marks ----------------+-> one shard: groups, in the order of pulls
```
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import BadInput
from headrace.feeds.items import ITEM_SCHEMA
from headrace.feeds.spark.grouped import grouped, with_pulls
from headrace.feeds.spark.options import HORIZON, INTERVAL, MAX_PULLS, NUMBERED_ITEMS
from headrace.feeds.spark.rows_step import then_rows
from headrace.feeds.spark.source import stream_feeds
from headrace.feeds.sql import QueryPlan, parse_query
from headrace.feeds.sql.plan import Scan
from headrace.progressive.policies import FlushPolicy
from headrace.spark.logged_plan import PARTITIONS
from headrace.spark.progressive_join import progressive_join
from headrace.spark.state.stateful import state_path
from headrace.units import parse_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FEEDS = "feeds"  # the feed store, in the directory of the query's state
_LATE = "10m"  # how much earlier items may be seen than others that were logged before them: far more than a pull takes


def sql(
    spark: SparkSession,
    text: str,
    *,
    state: str | Path | None = None,
    interval: str | float = INTERVAL,
    horizon: str | float = HORIZON,
    max_pulls: int = MAX_PULLS,
    recorded: str | Path | None = None,
    allow_private: bool = False,
    allow_files: bool = False,
    within_time: str | float | None = None,
    memory: int | str = "64MiB",
    flush: str | FlushPolicy = "rrpj",
    shards: int | None = None,
    partitions: int = PARTITIONS,
    idle: str | float = "1s",
    workers: int | None = None,
) -> DataFrame:
    """Answer a query over feeds: a streaming DataFrame of its results. Lazy; append mode.

    Rows are those of the embedded query over the same pulls: the selected columns, then `_id`, the same 16 bytes for the same
    result wherever it is made, and `_places`. Each comes once, across restarts and kills.

    Parameters
    ----------
    spark
        The session.
    text
        The query. ORDER BY and LIMIT are refused: they are for embedded queries that end, or for Spark's own functions. GROUP BY
        needs a window of time. Groups leave with the pull that ends their window, from one task.
    state
        Where feeds, pulls and joined items are kept: a directory that driver and executors see under the same path, for one
        query. By default `headrace` in spark.sql.streaming.checkpointLocation.
    interval, horizon, max_pulls, recorded, allow_private, allow_files
        How feeds are pulled: options of the source `rss`.
    within_time
        As in embedded queries.
    memory
        The budget of each executor, for all joins of the query and its groups.
    flush, shards, partitions, idle, workers
        Of the joins; see `progressive_join`.
    """
    plan = parse_query(text, within_time=within_time)
    _check_rows(plan)
    where = Path(state_path(spark, state, "state=DIRECTORY"))
    options: dict[str, Any] = {
        "interval": interval, "horizon": horizon, "max_pulls": max_pulls, "allow_private": allow_private,
        "allow_files": allow_files,
    }  # fmt: skip
    if recorded is not None:
        options["recorded"] = recorded
    if plan.grouping is not None:
        plan, options["pulls"] = with_pulls(plan), True
    items = stream_feeds(spark, plan.urls, state=where / _FEEDS, **options)
    steps = len(plan.stages) + (plan.grouping is not None)
    share = parse_size(memory, name="memory") // max(1, steps)
    joins: dict[str, Any] = {
        "memory": share, "flush": flush, "shards": shards,
        "partitions": partitions, "idle": idle, "workers": workers, "state": where, "suffix": None,
    }  # fmt: skip
    rows, schema = _scanned(items, plan, plan.scans[0])
    bound = _time_bound(plan)
    for stage in plan.stages:
        right, other = _scanned(items, plan, stage.right)
        pairs = progressive_join(rows, right, stage.condition, cell=stage.cell, **bound, **joins)
        types = {field.name: field for field in (*schema, *other)}
        rows, schema = then_rows(pairs, stage.carry, pa.schema([types[name] for name in pairs.columns]))
        bound = {}
    if plan.grouping is not None:
        return grouped(rows, schema, items, plan, memory=share, state=where, workers=workers)
    return then_rows(rows, plan.results, schema)[0]


def _scanned(items: DataFrame, plan: QueryPlan, scan: Scan) -> tuple[DataFrame, pa.Schema]:
    """The items of a source's feed, as its scan prepares them."""
    takes = ITEM_SCHEMA if plan.grouping is None else NUMBERED_ITEMS
    return then_rows(items.where(items["feed"] == scan.source.url), scan.prepare, takes)


def _time_bound(plan: QueryPlan) -> dict[str, Any]:
    """What lets the first join forget items that are too old for a result.

    Rows of later joins come when their partners have, which may be long after their items were seen: these forget nothing.
    """
    if plan.within_time is None or not plan.stages:
        return {}
    columns = tuple(f"{scan.source.alias}__seen" for scan in plan.scans[:2])
    return {"within_time": plan.within_time, "time": columns, "delay": _LATE}


def _check_rows(plan: QueryPlan) -> None:
    """Refuse a query whose results are not made of rows alone."""
    if plan.explained:
        raise BadInput("EXPLAIN shows the plan of a query and is not run; print(hr.sql(text).explain())")
