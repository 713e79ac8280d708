"""Rows of the shapes that take memory where it is not expected: wide, of many columns, 1:10,000, with long strings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

#: What a row is like, and how many of them a batch has: 2 MiB or so, as a source should hand them over.
SHAPES = {
    "wide": ("rows of 2 KB: ten texts of 200 bytes", 1_000),
    "columns": ("200 columns: 150 numbers, 50 texts of 8 bytes", 1_000),
    "many": ("rows of 500 bytes: two texts of 200, one of 80; keys with 10,000 rows", 2_000),
    "long": ("rows of 100 bytes, one in 250 with a text of 100 KB to 1 MB", 500),
}
MATCHES = 10_000  # of a key of shape "many"
_POOL = 2_048  # rows that values are taken from
_LONG_TEXTS = 2  # of a batch of shape "long"
_SHORT, _LONG = 100_000, 1_000_000  # bytes of one, at least and at most

BOX = ("xmin", "ymin", "xmax", "ymax")
VECTOR = ("x", "y", "z")


@dataclass
class Rows:
    """Makes batches of one shape. Every batch is a new copy, as those of a source are, so that holding one takes memory."""

    shape: str
    seed: int = 0
    rng: np.random.Generator = field(init=False)
    _pool: pa.Table = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        letters = self.rng.integers(97, 123, _POOL * 2_000, dtype=np.uint8).tobytes().decode()

        def texts(size: int) -> list[str]:
            at = self.rng.integers(0, len(letters) - size, _POOL)
            return [letters[a : a + size] for a in at.tolist()]

        if self.shape == "wide":
            columns: dict[str, Any] = {f"t{i}": texts(200) for i in range(10)}
        elif self.shape == "columns":
            columns = {f"n{i}": self.rng.integers(0, 1 << 60, _POOL) for i in range(150)}
            columns |= {f"t{i}": texts(8) for i in range(50)}
        else:
            columns = {"n": self.rng.random(_POOL), "t": texts(80)}
            columns |= {f"t{i}": texts(200) for i in range(2)} if self.shape == "many" else {}
        self._pool = pa.table(columns).combine_chunks()
        self._letters = np.frombuffer(letters.encode(), np.uint8)

    @property
    def batch_rows(self) -> int:
        """Rows of a batch."""
        return SHAPES[self.shape][1]

    def batch(self, keys: dict[str, Any], rows: int | None = None, long_texts: int = _LONG_TEXTS) -> pa.RecordBatch:
        """A batch with these columns in front."""
        rows = self.batch_rows if rows is None else rows
        taken = self._pool.take(pa.array(self.rng.integers(0, _POOL, rows))).combine_chunks()
        columns = {name: taken.column(name).chunk(0) for name in taken.column_names}
        if self.shape == "long":
            columns["t"] = self._with_long_texts(columns["t"], long_texts)
        return pa.record_batch({**keys, **columns})

    def _with_long_texts(self, texts: pa.Array, many: int) -> pa.Array:
        """Some of the texts are long, wherever they are."""
        rows, each = len(texts), 80
        length = np.full(rows, each, np.int64)
        length[self.rng.choice(rows, min(many, rows), replace=False)] = self.rng.integers(
            _SHORT, _LONG, min(many, rows)
        )
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(length, out=offsets[1:])
        start = int(self.rng.integers(0, 1 << 16))
        whole = np.resize(self._letters[start : start + (1 << 20)], int(offsets[-1]))
        return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(whole))

    # -- what rows are joined by -----------------------------------------------------------------------------------------

    def popular(self, keys: int, rows: int) -> np.ndarray[Any, Any]:
        """Keys below `keys`, of which some are asked for much more often than others."""
        return (keys ** self.rng.random(rows)).astype(np.int64) * 7919 % keys

    def boxes(self, rows: int, size: float) -> dict[str, Any]:
        """Small boxes anywhere in the unit square."""
        low = self.rng.random((rows, 2))
        corners = np.hstack([low, low + size * self.rng.random((rows, 2))])
        return dict(zip(BOX, corners.T.copy(), strict=True))

    def vectors(self, rows: int) -> dict[str, Any]:
        """Points in the unit cube."""
        return {name: self.rng.random(rows) for name in VECTOR}
