"""Sketch: ageing counts of a stream's keys in a fixed number of bytes. Joins count, relations are ordered by it. (DESIGN D5)"""

from __future__ import annotations

import numpy as np

from headrace.arrays import Int32s, Int64s, UInt8s, UInt64s
from headrace.kernels.sketch import sketch_add, sketch_age, sketch_estimate

_LINE = 64  # bytes of the cache line that holds all counters of a key: one memory access a key
# Hashes of keys that no stream has, to see what they count
_STRANGERS = np.random.default_rng(20110401).integers(0, 1 << 64, 1024, np.uint64)


class Sketch:
    """How often each key was seen lately: a count-min sketch of one-byte counters, all of which are halved now and then.

    Parameters
    ----------
    memory
        Bytes of counters at most.
    horizon
        Stream tuples after which the counters are halved.
    cells, window
        The counters, and how many stream tuples they stand for, where other processes count in them too; new ones by default.
    """

    def __init__(self, memory: int, horizon: int, cells: UInt8s | None = None, window: Int64s | None = None) -> None:
        self._cells = np.zeros(self.size(memory), np.uint8) if cells is None else cells
        self._window = np.zeros(1, np.int64) if window is None else window
        self.horizon = horizon

    @staticmethod
    def size(memory: int) -> int:
        """Bytes of counters within so much memory: a power of two, since a hash selects a cache line by its lowest bits."""
        return _LINE << max(0, (max(memory, _LINE) // _LINE).bit_length() - 1)

    @property
    def window(self) -> int:
        """Stream tuples that the counters stand for."""
        return int(self._window[0])

    @window.setter
    def window(self, tuples: int) -> None:
        self._window[0] = tuples

    @property
    def nbytes(self) -> int:
        """Bytes of the counters."""
        return self._cells.nbytes

    def add(self, hashes: UInt64s, counts: Int32s) -> None:
        """Count keys that were seen so many times each."""
        sketch_add(self._cells, hashes, counts)
        self.window += int(counts.sum())
        if self.window >= self.horizon:
            sketch_age(self._cells)
            self.window //= 2

    def dump(self) -> UInt8s:
        """Counters and window as one array, for a snapshot."""
        return np.concatenate([self._cells, np.array([self.window], np.int64).view(np.uint8)])

    @classmethod
    def of_dump(cls, dumped: UInt8s) -> Sketch:
        """Make a sketch of what `dump` gave, to be read; one that goes on counting would need its horizon."""
        sketch = cls(dumped.size - 8, np.iinfo(np.int64).max)
        sketch.load(dumped)
        return sketch

    @classmethod
    def sound(cls, dumped: UInt8s) -> bool:
        """Tell whether `dump` may have given this array."""
        cells = dumped.size - 8
        return dumped.dtype == np.uint8 and cells >= _LINE and cls.size(cells) == cells

    def load(self, dumped: UInt8s) -> None:
        """Go on from what `dump` gave."""
        self._cells[:] = dumped[:-8]
        self.window = int(dumped[-8:].copy().view(np.int64)[0])

    def estimate(self, hashes: UInt64s) -> Int32s:
        """How often each key was seen in the window, or a little more: keys share counters."""
        out = np.empty(hashes.size, np.int32)
        sketch_estimate(self._cells, hashes, out)
        return out

    def strangers(self) -> Int32s:
        """Estimates of keys that were never seen: how much the counters of other keys add."""
        return self.estimate(_STRANGERS)
