"""MatchedRows: a bit for each row of a side that says whether it has found a partner."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from headrace.arrays import Bools, Int64s, UInt8s


@dataclass(slots=True)
class MatchedRows:
    """The rows of a side by their numbers: whether each has found a partner, or has left alone."""

    base: int = 0
    """rows with lower numbers are done with; a multiple of 8"""
    bits: UInt8s = field(default_factory=lambda: np.zeros(64, np.uint8))
    count: int = 0
    """rows so far"""

    @property
    def alone(self) -> int:
        """How many rows have found no partner, and not left."""
        return self.count - self.base - int(np.bitwise_count(self.bits).sum())

    def missing(self, numbers: Int64s) -> Bools:
        """Which rows have found no partner, and not left."""
        at = numbers - self.base
        unknown = at >= 0
        at = np.maximum(at, 0)
        set_: Bools = (self.bits[at >> 3] >> (at & 7).astype(np.uint8)) & 1 == 1
        return unknown & ~set_

    def add(self, numbers: Int64s) -> None:
        """Note that rows have found a partner, or leave alone."""
        at = numbers[numbers >= self.base] - self.base
        np.bitwise_or.at(self.bits, at >> 3, np.left_shift(1, at & 7).astype(np.uint8))

    def grow(self, rows: int) -> Int64s:
        """Number more rows."""
        numbers = np.arange(self.count, self.count + rows, dtype=np.int64)
        self.count += rows
        more = (self.count - self.base + 7 >> 3) - self.bits.size
        if more > 0:
            self.bits = np.concatenate([self.bits, np.zeros(max(more, self.bits.size // 4), np.uint8)])
        return numbers

    def forget(self, before: int) -> None:
        """Forget rows with lower numbers, which are all done with."""
        base = max(self.base, before & ~7)
        self.bits, self.base = self.bits[base - self.base >> 3 :].copy(), base

    def all_done(self) -> None:
        """Note that no row is to leave alone any more."""
        self.base, self.bits = self.count & ~7, np.zeros(1, np.uint8)
        self.add(np.arange(self.base, self.count))
