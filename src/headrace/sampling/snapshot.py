"""Snapshots of samplers: one record batch of one row, with a list for each array of the state and one of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray
from headrace.errors import BadInput, shown

_WHAT, _ROWS = "sampler", "rows"  # columns beside those of the arrays


def write_snapshot(what: str, arrays: Mapping[str, AnyArray], rows: pa.RecordBatch | None) -> pa.RecordBatch:
    """Make a snapshot: what it is of, in words that `read_snapshot` compares; the arrays; and the rows, if any have come."""
    columns: dict[str, Any] = {_WHAT: pa.array([what])}
    for name, array in arrays.items():
        columns[name] = _one_list(pa.array(array))
    if rows is not None:
        columns[_ROWS] = _one_list(rows.to_struct_array())
    return pa.RecordBatch.from_pydict(columns)


def read_snapshot(what: str, snapshot: pa.RecordBatch) -> tuple[dict[str, AnyArray], pa.RecordBatch | None]:
    """Return the arrays and the rows of a snapshot; refuse one of something else."""
    if not isinstance(snapshot, pa.RecordBatch) or _WHAT not in snapshot.schema.names or snapshot.num_rows != 1:
        raise BadInput(
            f"{shown(type(snapshot).__name__)} is not a snapshot; give the record batch that snapshot() made"
        )
    found = snapshot.column(_WHAT)[0].as_py()
    if found != what:
        raise BadInput(
            f"the snapshot is of {found}, and this is {what}; restore it into an object made in the same way"
        )
    arrays: dict[str, AnyArray] = {}
    rows = None
    for name in snapshot.schema.names:
        if name == _ROWS:
            rows = pa.RecordBatch.from_struct_array(snapshot.column(name).flatten())
        elif name != _WHAT:
            arrays[name] = np.array(snapshot.column(name).flatten())  # a copy: a state changes
    return arrays, rows


def _one_list(values: pa.Array) -> pa.Array:
    """A list array of one list, which has all values."""
    return pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)
