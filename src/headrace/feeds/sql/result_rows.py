"""Identities of items and results, and their places on a map."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import UInt64s
from headrace.feeds.items import PLACE, contents, identities
from headrace.splitmix import GOLDEN, mix

KEY = pa.binary(16)
PLACED = ("title", "geoLat", "geoLong", "box")
"""The columns of an item that its place is made of."""


def item_keys(items: pa.RecordBatch, identity: pa.Array | None = None, content: pa.Array | None = None) -> pa.Array:
    """A hash of each item's feed, identity and content: what is the same item, unchanged, has the same key on every machine.

    `identity` and `content` are those that headrace.feeds.items gives, where they are known.
    """
    encoded = items.column("feed").dictionary_encode()
    urls = [hashlib.blake2b((url or "").encode(), digest_size=16).digest() for url in encoded.dictionary.to_pylist()]
    feeds = pa.array([*urls, bytes(16)], KEY).take(encoded.indices.fill_null(len(urls)))
    return combined(
        [feeds, identities(items) if identity is None else identity, contents(items) if content is None else content]
    )


def combined(keys: Sequence[pa.Array]) -> pa.Array:
    """One hash of several, row by row; their order counts."""
    first = np.full(len(keys[0]), GOLDEN, np.uint64)
    second = np.full(len(keys[0]), len(keys), np.uint64)
    for one in keys:
        a, b = _words(one)
        # Each word of the hash takes part in both, so that two results are equal only if all 128 bits happen to be.
        first, second = mix(first + a + np.uint64(GOLDEN)), mix(second ^ b)
        first, second = mix(first ^ (second >> np.uint64(1))), mix(second + first)
    out = np.empty((len(keys[0]), 2), "<u8")
    out[:, 0], out[:, 1] = first, second
    return pa.Array.from_buffers(KEY, len(out), [None, pa.py_buffer(out.tobytes())])


def _words(keys: pa.Array) -> tuple[UInt64s, UInt64s]:
    data = np.frombuffer(keys.buffers()[1], "<u8", 2 * len(keys), 16 * keys.offset).reshape(-1, 2)
    return data[:, 0].astype(np.uint64), data[:, 1].astype(np.uint64)


def places(rows: pa.RecordBatch, aliases: Sequence[str]) -> pa.Array:
    """The place of the item of each source, in a list for each row."""
    each = [
        pa.StructArray.from_arrays(
            [pa.repeat(pa.scalar(alias), rows.num_rows), *(rows.column(f"{alias}__{name}") for name in PLACED)],
            fields=list(PLACE),
        )
        for alias in aliases
    ]
    count = len(aliases)
    # Row i of source k lies at k * rows + i in the concatenation, and belongs to place i * count + k.
    order = np.arange(count * rows.num_rows).reshape(count, rows.num_rows).T.reshape(-1)
    values = pa.concat_arrays(each).take(pa.array(order)) if each else pa.array([], PLACE)
    offsets = pa.array(np.arange(rows.num_rows + 1, dtype=np.int32) * count)
    return pa.ListArray.from_arrays(offsets, values, type=pa.list_(PLACE))
