"""The streams: keys drawn once into a file, read back as Arrow batches outside the timing."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import pyarrow as pa

from benchmarks.data import SPACING, Dataset

if TYPE_CHECKING:  # compare runs this file with revisions that have no such module
    from headrace.arrays import Int64s

Workload = Literal["zipf", "uniform", "temporal", "absent"]
WORKLOADS: tuple[Workload, ...] = get_args(Workload)

STREAM_ROWS = 10_000_000  # a stream starts over at its end; far longer than any cache's memory
INTERVALS = 20  # temporal locality as in [SSIJ]: each interval has its own 5% of the domain
SCHEMA = pa.schema([("k", pa.int64()), ("seq", pa.int64()), ("v", pa.float64())])
_DRAW = 1_000_000
_RING = 3  # an operator may still hold the last batch while it asks for the next


def stream_file(data: Dataset, workload: Workload) -> Path:
    """The file of the stream's keys, written if it is not there yet."""
    path = data.directory / f"stream-{workload}.i64"
    if not path.exists():
        partial = path.with_suffix(".partial")
        _draw(data, workload).tofile(partial)
        partial.replace(path)
    return path


def _draw(data: Dataset, workload: Workload) -> Int64s:
    rng = np.random.default_rng([data.seed, WORKLOADS.index(workload)])
    n = data.rows
    if workload == "uniform":
        return data.keys(rng.integers(0, n, STREAM_ROWS))
    places = rng.permutation(n)  # hot ranks are scattered over the key range
    if workload == "zipf":
        return data.keys(places[_zipf(rng, n, STREAM_ROWS)])
    if workload == "temporal":
        share = n // INTERVALS
        length = STREAM_ROWS // INTERVALS
        parts = [places[i * share + _zipf(rng, share, length)] for i in range(INTERVALS)]
        return data.keys(np.concatenate(parts))
    odds = SPACING // 2
    rows = min(STREAM_ROWS, n * odds)
    rounds = [places * SPACING + 2 * i + 1 for i in range(-(-rows // n))]
    return np.concatenate(rounds)[:rows]


def _zipf(rng: np.random.Generator, domain: int, rows: int) -> Int64s:
    """Exact Zipf with exponent 1 over [0, domain), by inversion of the distribution function."""
    cdf = np.cumsum(1.0 / np.arange(1, domain + 1))
    out = np.empty(rows, np.int64)
    for start in range(0, rows, _DRAW):
        u = rng.random(min(_DRAW, rows - start)) * cdf[-1]
        out[start : start + len(u)] = np.searchsorted(cdf, u, side="right")
    return np.minimum(out, domain - 1)


class StreamFileReader:
    """Reads slices of a stream into a few reused buffers, so input costs no memory after the start.

    The buffers are touched here, before the baseline of the memory measurement is taken, and the
    file's pages are dropped from the page cache after each read.
    """

    def __init__(self, path: Path, batch_rows: int) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self._rows = os.fstat(self._file).st_size // 8
        self._position = 0
        self._seq = 0
        self._ring = [_buffers(batch_rows) for _ in range(_RING)]
        self._turn = 0

    def read(self, rows: int) -> pa.RecordBatch:
        keys, seq, v = self._ring[self._turn]
        self._turn = (self._turn + 1) % _RING
        filled = 0
        while filled < rows:
            take = min(rows - filled, self._rows - self._position)
            view = keys[filled : filled + take].data.cast("B")
            got = os.preadv(self._file, [view], self._position * 8) // 8
            filled += got
            self._position = (self._position + got) % self._rows
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        seq[:rows] = np.arange(self._seq, self._seq + rows)
        v[:rows] = seq[:rows] * 0.5
        self._seq += rows
        columns = [
            pa.Array.from_buffers(f.type, rows, [None, pa.py_buffer(c)])
            for f, c in zip(SCHEMA, (keys, seq, v), strict=True)
        ]
        return pa.record_batch(columns, schema=SCHEMA)

    def read_sorted(self, rows: int) -> pa.RecordBatch:
        """Read the next batch as `read` does, and sort it by key, for systems that are fed in slices."""
        turn = self._turn
        batch = self.read(rows)
        order = np.argsort(self._ring[turn][0][:rows])
        for column in self._ring[turn]:
            column[:rows] = column[:rows][order]
        return batch


def batch_of(keys: Int64s) -> pa.RecordBatch:
    """A stream batch with these keys."""
    seq = np.arange(len(keys), dtype=np.int64)
    return pa.record_batch([pa.array(keys), pa.array(seq), pa.array(seq * 0.5)], schema=SCHEMA)


def _buffers(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    arrays = []
    for dtype in (np.int64, np.int64, np.float64):
        array = np.frombuffer(mmap.mmap(-1, rows * 8), dtype)
        array[:] = 0
        arrays.append(array)
    return arrays[0], arrays[1], arrays[2]
