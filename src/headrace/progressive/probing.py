"""Probing: in which order an arriving tuple asks the other streams of a multi-way join for matches. [PQP] §7.1.3, Alg. 5"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headrace.arrays import Float64s, Int32s, Int64s, UInt64s
from headrace.errors import BadInput, choice
from headrace.kernels import multiway
from headrace.progressive.memory.side_memory import SideMemory

PROBINGS: tuple[Literal["rop", "rop-literal", "sequential", "apriori"], ...] = (
    "rop",
    "rop-literal",
    "sequential",
    "apriori",
)
_KINDS = {"rop": multiway.RATE, "rop-literal": multiway.PARTIAL}


@dataclass(frozen=True, slots=True)
class Matches:
    """Tuples of a piece that have a match in every other stream, with the first slot of each; see kernels.multiway.probe."""

    own: int
    codes: UInt64s
    rows: Int32s
    firsts: Int32s
    memories: Sequence[SideMemory]
    """the memory of each stream, by number"""

    def products(self, most: int) -> Iterator[tuple[Int32s, list[Int32s]]]:
        """Products of the matches, at most so many at a time: the row of each, and its slots in each stream."""
        n = len(self.memories)
        _, cells, after, _ = _indexes(self.memories)
        state, at = np.zeros(2, np.int64), np.empty(n, np.int32)
        while state[0] < self.rows.size:
            number, slots = np.empty(most, np.int32), np.empty(n * most, np.int32)
            made = multiway.products(
                self.own,
                self.rows.size,
                self.codes,
                self.rows,
                self.firsts,
                cells,
                after,
                state,
                at,
                number,
                slots,
            )
            yield number[:made], [some[:made] for some in slots.reshape(n, most)]


class Prober:
    """Probes the memory of the other streams with arriving tuples, one tuple after the other, and learns from each.

    Parameters
    ----------
    probing, selectivity, fade
        See MultiWayJoin.
    streams
        The number of streams.
    probes, partial
        Where probes and partial results of each stream are counted.
    """

    def __init__(
        self,
        probing: str,
        streams: int,
        selectivity: Sequence[float] | None,
        fade: int | None,
        probes: Int64s,
        partial: Int64s,
    ) -> None:
        choice("probing", probing, PROBINGS)
        if (probing == "apriori") != (selectivity is not None):
            raise BadInput(
                f"probing={probing!r} {'needs' if probing == 'apriori' else 'takes no'} selectivity="
                + (
                    ", the part of probes of each stream that find a match"
                    if probing == "apriori"
                    else "; leave it out"
                )
            )
        if fade is not None and (isinstance(fade, bool) or not isinstance(fade, int) or fade < 1):
            raise BadInput(f"fade={fade!r} is not a number of probes; give 1 or more, or None to forget nothing")
        self.order: Int64s = np.arange(streams)
        """the streams in the order in which the last tuple probed them, its own included"""
        if selectivity is not None:
            self.order = np.argsort(_selectivities(selectivity, streams), kind="stable")
        self._kind = _KINDS.get(probing, multiway.FIXED)
        self._keep = 1.0 if fade is None else float(np.exp(-1 / fade))
        self._hits, self._tried = np.zeros(streams), np.zeros(streams)
        self._score = np.full(streams, 0.5)  # as of a stream that was never probed: (0 + 1) / (0 + 2)
        self._probes, self._partial = probes, partial

    def probe(self, own: int, codes: UInt64s, memories: Sequence[SideMemory | None]) -> Matches | None:
        """Probe with tuples of a stream; None if none of them has a match in every other stream."""
        n = len(memories)
        rows, firsts = np.empty(codes.size, np.int32), np.full(codes.size * n, -1, np.int32)
        complete = multiway.probe(
            own,
            codes,
            *_indexes(memories),
            self._kind,
            self._keep,
            self.order,
            self._score,
            self._hits,
            self._tried,
            self._probes,
            self._partial,
            rows,
            firsts,
        )
        if not complete:
            return None
        present = [memory for memory in memories if memory is not None]
        return Matches(own, codes, rows[:complete], firsts, present)


def _selectivities(given: Sequence[float], streams: int) -> Float64s:
    numbers = np.asarray(given, np.float64)
    if numbers.shape != (streams,) or np.isnan(numbers).any():
        raise BadInput(f"selectivity={given!r} is not a number for each of {streams} streams")
    return numbers


def _indexes(memories: Sequence[SideMemory | None]) -> list[Int64s]:
    """The addresses of heads, cells and links of each stream, and its buckets; 0 of a stream without tuples."""
    of_each = [(0, 0, 0, 0) if memory is None else memory.index for memory in memories]
    return [np.array(numbers, np.int64) for numbers in zip(*of_each, strict=True)]
