"""A wrong adapter must fail the run: a sample of its results against the rows that R defines."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from benchmarks.data import SPACING, Dataset, columns_of
from benchmarks.streams import batch_of
from benchmarks.systems.base import OUTPUT, System

SAMPLE = 2_000


class WrongResult(Exception):
    """A system's join is not the join."""


def verify(system: System, data: Dataset) -> None:
    """Join the sample; raise if a row differs."""
    batch = sample(data)
    got = pa.Table.from_batches(list(system.run(iter([batch]))), schema=OUTPUT)
    compare(system.name, got, joined(batch, data))


def sample(data: Dataset) -> pa.RecordBatch:
    """A stream batch with present, absent, repeated and extreme keys."""
    rng = np.random.default_rng([data.seed, SAMPLE])
    ranks = rng.integers(0, data.rows, SAMPLE)
    present = data.keys(np.concatenate([ranks, ranks[: SAMPLE // 4], [0, data.rows - 1]]))
    absent = rng.integers(0, data.rows, SAMPLE // 2) * SPACING + 1
    outside = np.array([-1, data.rows * SPACING + 1])
    return batch_of(rng.permutation(np.concatenate([present, absent, outside])))


def joined(batch: pa.RecordBatch, data: Dataset) -> pa.Table:
    """The inner join of a stream batch with the rows that R defines."""
    stream = batch.filter(pa.array(data.contains(batch.column(0).to_numpy())))
    payload = columns_of(data.values(stream.column(0).to_numpy()))
    return pa.table([*stream.columns, *payload], schema=OUTPUT)


def compare(name: str, got: pa.Table, expected: pa.Table) -> None:
    """Raise unless `got` has exactly the rows expected, in any order; `expected` is in the order of `seq`."""
    if got.num_rows != expected.num_rows:
        raise WrongResult(f"{name}: {got.num_rows} rows, expected {expected.num_rows}")
    got = got.select(expected.column_names).cast(expected.schema).sort_by("seq").combine_chunks()
    for column in expected.column_names:
        if not got.column(column).equals(expected.column(column)):
            raise WrongResult(f"{name}: column {column} differs from the relation's")
