"""`multiway_join`: several streams joined on one key inside a memory budget. [PQP] §7.1.3, Alg. 5; (DESIGN D7)

Rows of all streams go to the shard of their key; a shard's task joins them with what it remembers, in the run log.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from headrace.errors import BadInput, shown
from headrace.progressive.multiway import FADE, LEAST_MEMORY, key_columns
from headrace.progressive.output import plain_schema
from headrace.progressive.policies import FlushPolicy
from headrace.spark.column_names import ColumnNames
from headrace.spark.dataframes import check_dataframe
from headrace.spark.logged_plan import PARTITIONS, check_flush, count, logged_join
from headrace.spark.multiway_sides import MultiWaySides
from headrace.spark.schemas import stream_schema


def multiway_join(
    streams: Sequence[DataFrame],
    on: str | Sequence[str],
    *,
    memory: int | str = "64MiB",
    probing: Literal["rop", "rop-literal", "sequential", "apriori"] = "rop",
    flush: str | FlushPolicy = "rrpj",
    selectivity: Sequence[float] | None = None,
    fade: int | None = FADE,
    suffix: str | None = "_",
    state: str | Path | None = None,
    shards: int | None = None,
    partitions: int = PARTITIONS,
    idle: str | float = "1s",
    workers: int | None = None,
) -> DataFrame:
    """Join several DataFrames on one key: a result has a row of each, all with the same key. Lazy; append mode.

    Each result comes once, as soon as memory allows: at once if all earlier rows are in memory when the last one comes, otherwise
    when a trigger brings little or no data, and all of them by the end of a run with trigger availableNow or by `hr.finish`.
    Rows never expire; for a bound on event time, chain `progressive_join`.

    Parameters
    ----------
    streams
        Two DataFrames or more. A batch DataFrame beside streams is read once, in the first micro-batch of the query; if all are,
        so is the result, which has everything.
    on
        The key's column: one name, or one for each stream. Nulls match nothing.
    memory
        The budget of each executor, however many Python workers it runs.
    probing
        In which order a row asks the other streams for matches: "rop" by what was found so far, the least first; "rop-literal",
        "sequential", or "apriori" by `selectivity`; see MultiWayJoin. What a worker has learnt changes no result.
    flush
        What leaves memory when it is full: xjoin, hmj, random, rpj, rrpj, rrpj-amortised, allflush, or a policy.
    selectivity, fade
        For "apriori", the part of probes of each stream that find a match; how many probes "rop" remembers.
    suffix
        Added, with the stream's number, to the name of a column that an earlier stream has too; None refuses it. The key appears
        once, as the first stream has it.
    state, shards, partitions, idle, workers
        See `progressive_join`.
    """
    dfs = _dataframes(streams)
    n = len(dfs)
    check_flush(flush, n)
    names = ColumnNames.of(dfs[0].sparkSession)
    keys = tuple(names.resolve(key, df.columns) for key, df in zip(key_columns(on, n), dfs, strict=True))
    sides = MultiWaySides(
        on=keys,
        schemas=tuple(plain_schema(stream_schema(df.schema), f"stream {i}") for i, df in enumerate(dfs)),
        suffix=suffix,
        partitions=count("partitions", partitions),
        probing=probing,
        selectivity=None if selectivity is None else tuple(selectivity),
        fade=fade,
        static=tuple(not df.isStreaming for df in dfs),
    )
    output = sides.pairing().output  # refuses here what can be refused
    # Without metadata: a watermark noted there does not hold for results that come later.
    kept = [df.schema[name] for df, columns in zip(dfs, output.columns, strict=True) for name in columns]
    fields = StructType(
        [StructField(name, field.dataType) for name, field in zip(output.schema.names, kept, strict=True)]
    )
    return logged_join(
        dfs,
        sides,
        fields,
        called="hr.multiway_join",
        log=f"join of {n} by {keys[0]}",
        flush=flush,
        memory=memory,
        least=n * LEAST_MEMORY,
        state=state,
        shards=shards,
        idle=idle,
        workers=workers,
    )


def _dataframes(streams: Sequence[DataFrame]) -> tuple[DataFrame, ...]:
    if isinstance(streams, DataFrame) or not isinstance(streams, list | tuple) or len(streams) < 2:
        raise BadInput(f"streams={shown(streams)} is not a list of streams to join; give two DataFrames or more")
    for i, df in enumerate(streams):
        check_dataframe(df, f"streams[{i}]")
    return tuple(streams)
