"""Rows that the twig machine wrote, as record batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Int64s, UInt8s
from headrace.kernels import twigs as t


def batch_of(schema: pa.Schema, kinds: Sequence[str], rows: Int64s, picked: Int64s, out: UInt8s) -> pa.RecordBatch:
    """Return the picked rows of one twig. `picked` has the first word of each, `kinds` what its columns show."""
    arrays = []
    word = 1
    for kind in kinds:
        if kind == "order":
            arrays.append(_orders(rows[picked + word]))
            word += 1
        else:
            arrays.append(_texts(rows, picked, word, out))
            word += 2
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# Arrays are made of buffers: pa.array of a NumPy array imports pandas, which takes longer than many a document.


def _orders(orders: Int64s) -> pa.Array:
    present = orders >= 0
    buffers = [_validity(present), pa.py_buffer(orders)]
    return pa.Array.from_buffers(pa.int64(), orders.size, buffers)


def _texts(rows: Int64s, picked: Int64s, word: int, out: UInt8s) -> pa.Array:
    offsets = np.zeros(picked.size + 1, np.int32)
    missing = t.column_offsets(rows, picked, word, offsets)
    texts = np.empty(int(offsets[-1]), np.uint8)
    t.column_texts(rows, picked, word, out, offsets, texts)
    valid = _validity(rows[picked + word + 1] >= 0) if missing else None
    return pa.Array.from_buffers(pa.string(), picked.size, [valid, pa.py_buffer(offsets), pa.py_buffer(texts)])


def _validity(present: Bools) -> pa.Buffer | None:
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
