"""Input of the spatial joins: boxes are checked, and laid out coordinate by coordinate."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import Float64s
from headrace.errors import BadInput

NAMES = ("xmin", "ymin", "xmax", "ymax")
Columns = Float64s  # (4, rows)
_EXACT = 2**53  # whole numbers up to this are doubles without rounding


def columns_of(boxes: Any, side: str) -> Columns:
    """Return boxes as four rows of doubles. What is no box is refused with its row.

    `boxes` is an array of shape (rows, 4), or Arrow data with columns xmin, ymin, xmax and ymax. A point is a box without extent.
    """
    columns = _from_arrow(boxes, side) if isinstance(boxes, pa.RecordBatch | pa.Table) else _from_array(boxes, side)
    if not np.isfinite(columns).all():
        c, row = np.argwhere(~np.isfinite(columns))[0]
        raise BadInput(
            f"box {row} of this batch of the {side} side has {NAMES[c]}={columns[c, row]}; every coordinate must be a finite"
            " number: leave such rows out"
        )
    for low, high in ((0, 2), (1, 3)):
        inverted = columns[low] > columns[high]
        if inverted.any():
            row = int(inverted.argmax())
            raise BadInput(
                f"box {row} of this batch of the {side} side is inverted: {NAMES[low]}={columns[low, row]} is above"
                f" {NAMES[high]}={columns[high, row]}; swap them, or leave the row out"
            )
    return columns


def _from_arrow(batch: Any, side: str) -> Columns:
    missing = [name for name in NAMES if batch.schema.names.count(name) != 1]
    if missing:
        raise BadInput(
            f"the {side} side has columns {', '.join(batch.schema.names)}; a box needs {', '.join(NAMES)}, each once"
        )
    columns = np.empty((4, batch.num_rows))
    for c, name in enumerate(NAMES):
        column = batch.column(name)
        if column.null_count:
            row = column.is_null().to_pylist().index(True)
            raise BadInput(f"box {row} of this batch of the {side} side has {name}=null; leave such rows out")
        columns[c] = _numbers(np.asarray(column), side, name)
    return columns


def _from_array(boxes: Any, side: str) -> Columns:
    array = np.asarray(boxes)
    if array.size == 0:
        array = array.reshape(-1, 4) if array.ndim < 2 else array
    if array.ndim != 2 or array.shape[1] != 4:
        raise BadInput(f"boxes of the {side} side have shape {array.shape}; give rows of {', '.join(NAMES)}: (rows, 4)")
    return np.ascontiguousarray(_numbers(array, side, "a coordinate").T)


def _numbers(values: npt.NDArray[Any], side: str, name: str) -> Float64s:
    if values.dtype.kind not in "iuf" and values.size:
        raise BadInput(f"{name} of the {side} side is of type {values.dtype}; boxes have numbers as coordinates")
    if values.dtype.kind in "iu" and values.size and max(abs(int(values.min())), abs(int(values.max()))) > _EXACT:
        raise BadInput(
            f"{name} of the {side} side has whole numbers beyond 2^53 (to {values.max()}), which doubles do not tell apart;"
            " subtract an origin first"
        )
    return values.astype(np.float64)
