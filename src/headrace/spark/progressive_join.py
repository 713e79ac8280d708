"""`progressive_join`: two streams joined inside a memory budget, with results at once and all of them in the end. (DESIGN D7)

Rows of both sides go to the shards of their keys or cells; a shard's task joins them with what it remembers, in the run log.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.conditions import Condition, check_condition
from headrace.errors import BadInput, choice
from headrace.progressive.logged.outer_output import HOWS, How
from headrace.progressive.output import plain_schema, side_name
from headrace.progressive.policies import FlushPolicy
from headrace.spark.column_names import ColumnNames
from headrace.spark.dataframes import check_dataframe
from headrace.spark.logged_plan import PARTITIONS, check_flush, count, logged_join
from headrace.spark.pair_rows import result_fields
from headrace.spark.pair_step import Sides
from headrace.spark.schemas import stream_schema
from headrace.spark.watermarks import time_bound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LEAST = 1 << 18  # bytes of a shard's copy in a worker: less does not hold a few batches of both sides


def progressive_join(
    left: DataFrame,
    right: DataFrame,
    condition: Condition,
    *,
    how: How = "inner",
    memory: int | str = "64MiB",
    flush: str | FlushPolicy = "rrpj",
    suffix: str | None = "_right",
    within_time: str | float | None = None,
    time: str | tuple[str, str] | None = None,
    delay: str | float | None = None,
    cell: float | Sequence[float] | None = None,
    pivots: Any = None,
    state: str | Path | None = None,
    shards: int | None = None,
    partitions: int = PARTITIONS,
    idle: str | float = "1s",
    workers: int | None = None,
) -> DataFrame:
    """Join two DataFrames, of which one at least is a stream. Lazy; append mode.

    Each pair comes once, as soon as memory allows: at once if the earlier row is in memory when the later one comes, otherwise
    when a trigger brings little or no data, and all of them by the end of a run with trigger availableNow or by `hr.finish`.

    Parameters
    ----------
    left, right
        The two sides. A batch DataFrame is read once, in the first micro-batch of the query.
    condition
        hr.equal, hr.intersects, hr.within, or hr.all_of with one of them beside other conditions. Nulls and NaN match nothing.
    how
        inner; left, right, full: also rows without a partner, with nulls for the other side; semi, anti: left rows with one, each
        once, and left rows without. All but inner need an equality in the condition. A row leaves without a partner when
        `within_time` says that none can come any more, and otherwise at the end, with `hr.finish`.
    memory
        The budget of each executor, however many Python workers it runs.
    flush
        What leaves memory when it is full: xjoin, hmj, random, rpj, rrpj, rrpj-amortised, allflush, foresight, or a policy.
    suffix
        Added to the name of a right column that the left side has too; None refuses it. Equal keys appear once.
    within_time
        "10m": pairs are at most so far apart in event time. Rows that can find no more partners leave the state, and rows that
        come after the watermark has passed them are dropped, and counted as late.
    time
        The column with the event time, or those of the left and of the right side; by default the ones that have a watermark.
    delay
        How late rows may be on a side that has no watermark.
    cell
        Of boxes, needed: the width of a grid's cell, about that of the larger boxes; one number or one for each dimension. Of
        vectors: at least twice eps, 4 times eps by default.
    pivots
        Of vectors in many dimensions, for all pairs (recall=1): some hundreds, one a row, such as a sample of either side.
        They divide the vectors; neither they nor the condition can change while the query's checkpoint is used. A recall below 1
        needs none.
    state
        Where the run log is kept: a directory that driver and executors see under the same path. By default `headrace` in
        spark.sql.streaming.checkpointLocation.
    shards
        Parts of both streams, each a task that remembers its rows; as many as there are cores by default. Neither this nor
        `partitions` can change while the query's checkpoint is used.
    partitions
        Of each shard: what leaves memory, is counted and caught up.
    idle
        How long a micro-batch without rows may take to catch up; also how often one comes when there are no rows.
    workers
        Tasks that an executor runs at the same time; found out by default.
    """
    check_dataframe(left, "left")
    check_dataframe(right, "right")
    check_condition(condition)
    check_flush(flush)
    choice("how", how, HOWS)
    if not left.isStreaming and not right.isStreaming:
        raise BadInput("neither side is a stream; join two batch DataFrames with left.join(right, ...)")
    condition = ColumnNames.of(left.sparkSession).resolve_condition(condition, left.columns, right.columns)
    sides = Sides(
        condition=condition,
        schemas=(
            plain_schema(stream_schema(left.schema), side_name(0)),
            plain_schema(stream_schema(right.schema), side_name(1)),
        ),
        suffix=suffix,
        partitions=count("partitions", partitions),
        cell=tuple(cell) if isinstance(cell, list) else cell,
        bound=time_bound((left, right), within_time, time, delay),
        static=(not left.isStreaming, not right.isStreaming),
        pivots=pivots,
        how=how,
    )
    pairing = sides.pairing()  # refuses here what can be refused
    made = pairing.results or pairing.output
    fields = result_fields(left.schema, right.schema, made.right, made.schema.names)
    return logged_join(
        (left, right),
        sides,
        fields,
        called="hr.progressive_join",
        log=f"join by {', '.join(condition.left_columns)}",
        flush=flush,
        memory=memory,
        least=_LEAST,
        state=state,
        shards=shards,
        idle=idle,
        workers=workers,
    )
