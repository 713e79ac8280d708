"""What `progressive_join` and `multiway_join` have in common on the driver: rows by shard, heartbeats, memory, the run log."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from headrace.errors import BadInput, MemoryRefused
from headrace.progressive.grids.keys import HashPartitioning
from headrace.progressive.grids.partitioning import stream_kind
from headrace.progressive.policies import POLICIES, FlushPolicy, policy_of
from headrace.runlog.log import safe_name
from headrace.spark.executors import workers_of
from headrace.spark.pair_rows import numbered_struct, pairs_by_shard
from headrace.spark.pair_step import JoinedSides, PairStep, shard_memory
from headrace.spark.plan import Plan
from headrace.spark.schemas import stream_schema
from headrace.spark.state.heartbeat import heartbeat
from headrace.spark.state.stateful import SHARD, beats, state_path
from headrace.spark.steps import StateKeeping
from headrace.units import format_size, parse_duration, parse_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 64  # of a shard: few enough to flush large pieces, enough to choose among them


def logged_join(
    dfs: tuple[DataFrame, ...],
    sides: JoinedSides,
    fields: StructType,
    *,
    called: str,
    log: str,
    flush: str | FlushPolicy,
    memory: int | str,
    least: int,
    state: str | Path | None,
    shards: int | None,
    idle: str | float,
    workers: int | None,
) -> DataFrame:
    """The DataFrame of results.

    Parameters
    ----------
    dfs, sides, fields
        What is joined, how, and the columns of the result.
    called
        The function that the user called.
    log
        The name of the run log, to which a number is added where another step of the query has it.
    least
        Bytes that a shard's copy in a worker needs.
    flush, memory, state, shards, idle, workers
        See `progressive_join`.
    """
    session = dfs[0].sparkSession
    streaming = any(df.isStreaming for df in dfs)
    many = count("shards", shards if shards is not None else int(session.sparkContext.defaultParallelism))
    tasks = count("workers", workers if workers is not None else workers_of(session))
    copies = min(many, tasks)
    size = parse_size(memory, name="memory")
    partitioning = sides.pairing().partitioning
    least += 2 * partitioning.nbytes
    if shard_memory(size, tasks, copies) < least:
        raise MemoryRefused(
            f"memory={memory!r} is {format_size(shard_memory(size, tasks, copies))} for each of {copies} shards in each of"
            f" {tasks} workers; give at least {format_size(least * tasks * copies)}, or fewer shards"
        )
    period = parse_duration(idle, name="idle")
    where = state_path(session, state, "state=DIRECTORY") if streaming else ""
    earlier = tuple(name for df in dfs for name in Plan.of(df).logs)
    log += f" {1 + sum(name == log or name.startswith(f'{log} ') for name in earlier)}" if log in earlier else ""
    shape = StructType([StructField(stream_kind(i, len(dfs)), numbered_struct(df.schema)) for i, df in enumerate(dfs)])
    step = PairStep(
        id=uuid.uuid4().hex,
        called=called,
        sides=sides,
        flush=flush,
        idle=period,
        memory=size,
        workers=tasks,
        copies=copies,
        by_key=isinstance(partitioning, HashPartitioning),
        stream=stream_schema(shape),
        remembers=StateKeeping(where, log, many, division=partitioning.division),
        streaming=streaming,
    )
    source = pairs_by_shard(dfs, sides, many, partitioning)
    if streaming:
        ticks = heartbeat(session, many, period, (where, safe_name("operator", log)))
        source = source.union(beats(ticks, shape))
    return Plan(source.repartitionById(many, SHARD), (), (), fields, shape, earlier).then(step, None, fields)


def check_flush(flush: str | FlushPolicy, streams: int = 2) -> None:
    """Refuse a policy that chooses among tuples, or one for two sides where there are more."""
    policy = policy_of(flush)
    fit = [name for name, kind in POLICIES.items() if not kind.per_tuple and (streams == 2 or not kind.two_sided)]
    if policy.per_tuple:
        raise BadInput(
            f"flush={flush!r} chooses among tuples, and partitions are flushed here; choose one of {', '.join(fit)}"
        )
    if policy.two_sided and streams > 2:
        raise BadInput(
            f"flush={flush!r} decides between two sides, and there are {streams} streams; choose one of {', '.join(fit)}"
        )


def count(name: str, value: int) -> int:
    """Refuse what is no number of such things."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadInput(f"{name}={value!r} is not a number of {name}; give 1 or more")
    return value
