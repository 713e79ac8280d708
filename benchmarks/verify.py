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
    """Join a sample with present, absent, repeated and extreme keys; raise if a row differs."""
    rng = np.random.default_rng([data.seed, SAMPLE])
    ranks = rng.integers(0, data.rows, SAMPLE)
    present = data.keys(np.concatenate([ranks, ranks[: SAMPLE // 4], [0, data.rows - 1]]))
    absent = rng.integers(0, data.rows, SAMPLE // 2) * SPACING + 1
    outside = np.array([-1, data.rows * SPACING + 1])
    batch = batch_of(rng.permutation(np.concatenate([present, absent, outside])))

    got = pa.Table.from_batches(list(system.run(iter([batch]))), schema=OUTPUT)
    got = got.sort_by("seq").combine_chunks()

    stream = batch.filter(pa.array(data.contains(batch.column(0).to_numpy())))
    payload = columns_of(data.values(stream.column(0).to_numpy()))
    expected = pa.table([*stream.columns, *payload], schema=OUTPUT)
    if got.num_rows != expected.num_rows:
        raise WrongResult(f"{system.name}: {got.num_rows} rows, expected {expected.num_rows}")
    for name in OUTPUT.names:
        if not got.column(name).equals(expected.column(name)):
            raise WrongResult(f"{system.name}: column {name} differs from the relation's")
