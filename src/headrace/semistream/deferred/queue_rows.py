"""The rows of a queue that is kept from one micro-batch to the next: as they go through a join, and as a decision holds them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.arrays import Float64s, Int64s
from headrace.semistream.deferred.remaining import ARRIVED, BATCH
from headrace.semistream.kept_tuples import KeptTuples

NUMBER, LEFT, MET = (f"__headrace_{name}" for name in ("number", "left", "met"))
#: Columns of a row in the join beside its own: its micro-batch, when it came (seconds), and its number in the shard.
TAGS = pa.schema({BATCH: pa.int64(), ARRIVED: pa.float64(), NUMBER: pa.int64()})
#: Columns that a decision has beside those: pages of the scan that the row has still to meet (NOT_MET: it has met none), and
#: whether it has met a match.
STATE = pa.schema({LEFT: pa.int64(), MET: pa.bool_()})
QUEUE_NAMES = (*TAGS.names, *STATE.names)


def tagged(rows: pa.RecordBatch, batch: int, arrived: float, first: int) -> pa.RecordBatch:
    """Rows that have just come, with TAGS; their numbers go up from `first`."""
    n = rows.num_rows
    tags = [pa.array(np.full(n, batch)), pa.array(np.full(n, arrived)), pa.array(np.arange(first, first + n))]
    return pa.RecordBatch.from_arrays([*rows.columns, *tags], schema=pa.schema([*rows.schema, *TAGS]))


def queue_schema(stream: pa.Schema) -> pa.Schema:
    """The columns of a decision's rows."""
    return pa.schema([*stream, *TAGS, *STATE])


def as_decided(kept: KeptTuples, schema: pa.Schema) -> pa.RecordBatch:
    """Rows that stay behind, as a decision holds them."""
    return pa.RecordBatch.from_arrays([*kept.rows.columns, pa.array(kept.left), pa.array(kept.matched)], schema=schema)


def as_kept(rows: pa.RecordBatch) -> KeptTuples:
    """Rows of a decision, as a join takes them."""
    left = np.asarray(rows.column(LEFT))
    matched = np.asarray(rows.column(MET).to_numpy(zero_copy_only=False))
    return KeptTuples(rows.drop_columns(STATE.names), left, matched)


def numbers_of(kept: KeptTuples) -> Int64s:
    """The numbers of rows in their shard."""
    numbers: Int64s = np.asarray(kept.rows.column(NUMBER))
    return numbers


def batches_of(kept: KeptTuples) -> Int64s:
    """The micro-batches that rows came in."""
    batches: Int64s = np.asarray(kept.rows.column(BATCH))
    return batches


def arrivals_of(kept: KeptTuples) -> Float64s:
    """When rows came, by the wall clock."""
    arrived: Float64s = np.asarray(kept.rows.column(ARRIVED))
    return arrived
