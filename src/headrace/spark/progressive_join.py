"""`progressive_join`: two streams joined inside a memory budget, with results at once and all of them in the end. (DESIGN D7)

Rows of both sides go to the shards of their keys or cells; a shard's task joins them with what it remembers, in the run log.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from headrace.conditions import Condition, check_condition
from headrace.errors import BadInput, MemoryRefused
from headrace.progressive.grids.keys import HashPartitioning
from headrace.progressive.grids.partitioning import SIDES
from headrace.progressive.output import plain_schema, side_name
from headrace.progressive.policies import POLICIES, FlushPolicy, policy_of
from headrace.runlog.log import safe_name
from headrace.spark.column_names import ColumnNames
from headrace.spark.executors import workers_of
from headrace.spark.pair_rows import numbered_struct, pairs_by_shard, result_fields
from headrace.spark.pair_step import OWED, PairStep, Sides, shard_memory
from headrace.spark.plan import Plan
from headrace.spark.schemas import stream_schema
from headrace.spark.state.heartbeat import heartbeat
from headrace.spark.state.stateful import SHARD, beats, state_path
from headrace.spark.steps import StateKeeping
from headrace.spark.watermarks import time_bound
from headrace.units import format_size, parse_duration, parse_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LEAST = 1 << 18  # bytes of a shard's copy in a worker: less does not hold a few batches of both sides
_PARTITIONS = 64  # of a shard: few enough to flush large pieces, enough to choose among them


def progressive_join(
    left: DataFrame,
    right: DataFrame,
    condition: Condition,
    *,
    memory: int | str = "64MiB",
    flush: str | FlushPolicy = "rrpj",
    suffix: str | None = "_right",
    within_time: str | float | None = None,
    time: str | tuple[str, str] | None = None,
    delay: str | float | None = None,
    cell: float | Sequence[float] | None = None,
    state: str | Path | None = None,
    shards: int | None = None,
    partitions: int = _PARTITIONS,
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
    check_condition(condition)
    policy = policy_of(flush)
    if policy.per_tuple:
        whole = ", ".join(name for name, kind in POLICIES.items() if not kind.per_tuple)
        raise BadInput(f"flush={flush!r} chooses among tuples, and partitions are flushed here; choose one of {whole}")
    if not left.isStreaming and not right.isStreaming:
        raise BadInput("neither side is a stream; join two batch DataFrames with left.join(right, ...)")
    session = left.sparkSession
    condition = ColumnNames.of(session).resolve_condition(condition, left.columns, right.columns)
    plans = Plan.of(left), Plan.of(right)
    sides = Sides(
        condition=condition,
        schemas=(
            plain_schema(stream_schema(left.schema), side_name(0)),
            plain_schema(stream_schema(right.schema), side_name(1)),
        ),
        suffix=suffix,
        partitions=_count("partitions", partitions),
        cell=tuple(cell) if isinstance(cell, list) else cell,
        bound=time_bound((left, right), within_time, time, delay),
        static=(not left.isStreaming, not right.isStreaming),
    )
    pairing = sides.pairing()  # refuses here what can be refused
    many = _count("shards", shards if shards is not None else int(session.sparkContext.defaultParallelism))
    tasks = _count("workers", workers if workers is not None else workers_of(session))
    copies = min(many, tasks)
    size = parse_size(memory, name="memory")
    if shard_memory(size, tasks, copies) < _LEAST:
        raise MemoryRefused(
            f"memory={memory!r} is {format_size(shard_memory(size, tasks, copies))} for each of {copies} shards in each of"
            f" {tasks} workers; give at least {format_size(_LEAST * tasks * copies)}, or fewer shards"
        )
    period = parse_duration(idle, name="idle")
    where = state_path(session, state, "state=DIRECTORY")
    earlier = plans[0].logs + plans[1].logs
    log = f"join by {', '.join(condition.left_columns)}"
    log += f" {1 + sum(name == log or name.startswith(f'{log} ') for name in earlier)}" if log in earlier else ""
    fields = result_fields(left.schema, right.schema, pairing.output.right, pairing.output.schema.names)
    shape = StructType(
        [StructField(name, numbered_struct(df.schema)) for name, df in zip(SIDES, (left, right), strict=True)]
    )
    step = PairStep(
        id=uuid.uuid4().hex,
        sides=sides,
        flush=flush,
        idle=period,
        memory=size,
        workers=tasks,
        copies=copies,
        by_key=isinstance(pairing.partitioning, HashPartitioning),
        stream=stream_schema(shape),
        remembers=StateKeeping(where, log, many),
    )
    source = pairs_by_shard((left, right), sides, many, pairing.partitioning)
    owed = where, f"*/{safe_name('operator', log)}/{OWED}/shard-*"
    source = source.union(beats(heartbeat(session, many, period, owed), shape)).repartitionById(many, SHARD)
    return Plan(source, (), (), fields, shape, earlier).then(step, None, fields)


def _count(name: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadInput(f"{name}={value!r} is not a number of {name}; give 1 or more")
    return value
