"""Rows that the twig machine wrote, as record batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s, UInt8s
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


def _orders(orders: Int64s) -> pa.Array:
    missing = orders < 0
    return pa.array(orders, pa.int64(), mask=missing if missing.any() else None)


def _texts(rows: Int64s, picked: Int64s, word: int, out: UInt8s) -> pa.Array:
    offsets = np.zeros(picked.size + 1, np.int32)
    missing = t.column_offsets(rows, picked, word, offsets)
    texts = np.empty(int(offsets[-1]), np.uint8)
    t.column_texts(rows, picked, word, out, offsets, texts)
    valid = None
    if missing:
        valid = pa.py_buffer(np.packbits(rows[picked + word + 1] >= 0, bitorder="little"))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(texts)]
    return pa.Array.from_buffers(pa.string(), picked.size, buffers, null_count=missing)
