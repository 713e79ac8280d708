"""The approximate joins of [PQP] ch. 8 in plain Python: one tuple at a time, and lists that are scanned."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from headrace.splitmix import draw, mix, uniform_floats
from tests.support.sample_streams import below

Tuples = list[tuple[int, Any, int]]  # (number of the row, value, tag of the arrival)


class CountSketch:
    """A count-min sketch with conservative update, as kernels.count_sketch lays it out."""

    def __init__(self, width: int) -> None:
        self.cells = [[0] * width for _ in range(4)]
        self.width = width

    def _places(self, code: int) -> list[int]:
        first = mix(np.array([code], np.uint64))
        step = int(mix(first)[0])
        return [(int(first[0]) + row * step) % 2**64 % self.width for row in range(4)]

    def get(self, code: int) -> int:
        return min(cells[at] for cells, at in zip(self.cells, self._places(code), strict=True))

    def add(self, code: int, count: int) -> None:
        grown = self.get(code) + count
        for cells, at in zip(self.cells, self._places(code), strict=True):
            cells[at] = max(cells[at], grown)


def code_of(value: int) -> int:
    """The hash of an integer key, as kernels.hashing has it."""
    return int(mix(np.array([value], np.int64).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15))[0])


class PlainJoin:
    """One tuple after the other: probe, count, drop, insert."""

    def __init__(
        self,
        method: str,
        tuples: int = 0,
        *,
        seed: int = 0,
        allocation: str = "fixed",
        replacement: str = "stratum",
        literal: bool = False,
        quality: float = 0.0,
        partitions: int = 50,
        share: float = 0.1,
        domain: int = 10**9,
        width: int = 0,
        numbers: Any = None,
    ) -> None:
        self.method, self.seed, self.k, self.literal = method, seed, partitions, literal
        self.each, self.all = tuples // 2, tuples
        self.variable, self.anywhere = allocation == "variable", replacement == "anywhere"
        self.quality = {"raj": 1.0, "rajhash": 1.0, "mixture": quality}.get(method, 0.0)
        self.flushed, self.flushes = max(1, round(share * tuples)), 0
        self.held: list[Tuples] = [[], []]  # for raj by position, for others by arrival
        self.strata: list[dict[int, Tuples]] = [{}, {}]
        self.n = [0, 0]
        self.counts: list[dict[int, int]] = [{}, {}]
        self.values: dict[int, int] = {}  # every value, in the order of first arrival; its code
        self.domain, self.width, self.sketches = domain, width, None
        self.tags: list[dict[int, int]] = [{}, {}]  # of values that are held
        self.results, self.arrived = [Counter(), Counter()], [Counter(), Counter()]
        self.scanned = [0, 0]
        self.numbers = numbers  # draws rho of its own, for worked examples

    def insert(self, side: int, row: int, value: int | None) -> list[tuple[int, int]]:
        """Take in a tuple. Returns pairs (row of the tuple, row of its partner)."""
        if value is None:
            return []
        other, h = self._memory(1 - side), value % self.k
        found = [(row, partner) for partner, of, _ in other if of == value]
        if self.method in ("prob", "raj", "mixture"):
            self.scanned[side] += len(other) + (len(self._memory(side)) if self.variable else 0)
        else:
            self.scanned[side] += sum(of % self.k == h for _, of, _ in other)
        word = int(draw(self.seed, side, np.array([self.n[side]]))[0])
        coin = float(uniform_floats(draw(self.seed, 2 + side, np.array([self.n[side]])))[0])
        self.n[side] += 1
        self.results[1 - side][h] += len(found)
        self.arrived[side][h] += 1
        self._count(side, value)
        tag = int(mix(np.array([word], np.uint64))[0])
        self._place(side, (row, value, tag), word, coin < self.quality)
        return found

    def _memory(self, side: int) -> Tuples:
        if self.method == "rajhash" and not self.anywhere:
            return [t for h in sorted(self.strata[side]) for t in self.strata[side][h]]
        return self.held[side]

    # -- counts ----------------------------------------------------------------------------------------------------------

    def _count(self, side: int, value: int) -> None:
        if self.sketches is None and value not in self.values:
            if len(self.values) == self.domain:
                self.sketches = [CountSketch(self.width), CountSketch(self.width)]
                for known, code in self.values.items():
                    for number in (0, 1):
                        self.sketches[number].add(code, self.counts[number].get(known, 0))
            self.values[value] = code_of(value)
        if self.sketches is None:
            self.counts[side][value] = self.counts[side].get(value, 0) + 1
        else:
            self.sketches[side].add(code_of(value), 1)

    def _partners(self, side: int, value: int) -> int:
        if self.sketches is not None:
            return self.sketches[1 - side].get(code_of(value))
        return self.counts[1 - side].get(value, 0)

    # -- who is dropped --------------------------------------------------------------------------------------------------

    def _place(self, side: int, new: tuple[int, Any, int], word: int, sampled: bool) -> None:
        held = self.held[side]
        if self.method == "exact":
            held.append(new)
        elif self.method == "rrpj":
            if len(self.held[0]) + len(self.held[1]) >= self.all:
                self._flush()
            self.held[side].append(new)
        elif self.method == "rajhash" and not self.anywhere:
            self._place_in_stratum(side, new, word)
        elif self.variable:
            if len(self.held[0]) + len(self.held[1]) >= self.all:
                _, _, number, value = min(self._lowest(number) for number in (0, 1) if self.held[number])
                self._drop(number, self._oldest(number, value))
            held.append(new)
        elif len(held) < self.each:
            held.append(new)
        elif sampled:
            rho = self._rho(side, word)
            if rho > self.each:
                return
            self._replace(side, rho - 1, new)
        else:
            _, _, _, value = self._lowest(side)
            self._replace(side, self._oldest(side, value), new)
        self.tags[side].setdefault(new[1], new[2])

    def _lowest(self, side: int) -> tuple[float, int, int, int]:
        """The value of a side that leaves first: (priority, tag, side, value)."""
        total = max(1, self.n[1 - side])
        values = {value for _, value, _ in self.held[side]}
        return min((self._partners(side, value) / total, self.tags[side][value], side, value) for value in values)

    def _oldest(self, side: int, value: int) -> int:
        """The position of the oldest tuple of a value."""
        return min((row, i) for i, (row, of, _) in enumerate(self.held[side]) if of == value)[1]

    def _drop(self, side: int, i: int) -> None:
        _, value, _ = self.held[side].pop(i)
        self._forget(side, value)

    def _replace(self, side: int, i: int, new: tuple[int, Any, int]) -> None:
        value = self.held[side][i][1]
        self.held[side][i] = (-1, None, 0)
        self._forget(side, value)
        self.held[side][i] = new

    def _forget(self, side: int, value: int) -> None:
        """Forget the tag of a value of which nothing is held any more."""
        if all(of != value for _, of, _ in self.held[side]):
            self.tags[side].pop(value, None)

    def _rho(self, side: int, word: int) -> int:
        return self.numbers[side, self.n[side]] if self.numbers else below(word, self.n[side]) + 1

    def _flush(self) -> None:
        parts = [(side, h) for side in (0, 1) for h in {value % self.k for _, value, _ in self.held[side]}]
        order = []
        for side, h in parts:
            tag = int(draw(self.seed, self.flushes, np.array([side * self.k + h]))[0])
            order.append((self.results[side][h] / max(1, self.arrived[side][h]), tag, side, h))
        self.flushes += 1
        wanted = min(self.flushed, len(self.held[0]) + len(self.held[1]))
        for _, _, side, h in sorted(order):
            gone = [t for t in self.held[side] if t[1] % self.k == h][:wanted]
            wanted -= len(gone)
            self.held[side] = [t for t in self.held[side] if t not in gone]

    def _place_in_stratum(self, side: int, new: tuple[int, Any, int], word: int) -> None:
        strata, h = self.strata[side], new[1] % self.k
        mine = strata.setdefault(h, [])
        if self.n[side] <= self.each:
            mine.append(new)
            return
        rho = self._rho(side, word)
        if rho > self.each:
            return
        if mine:
            mine[rho % len(mine)] = new
        elif not self.literal:
            # The tuple at position rho of all strata goes; to close its gap, the strata between turn by one position.
            at, g = rho - 1, 0
            while at >= len(strata.get(g, [])):
                at -= len(strata.get(g, []))
                g += 1
            if g < h:
                strata[g][at] = strata[g][-1]
                strata[g].pop()
                for q in range(g + 1, h):
                    if strata.get(q):
                        strata[q].insert(0, strata[q].pop())
            else:
                strata[g][at] = strata[g][0]
                strata[g].pop(0)
                for q in range(h + 1, g):
                    if strata.get(q):
                        strata[q].append(strata[q].pop(0))
            mine.append(new)
