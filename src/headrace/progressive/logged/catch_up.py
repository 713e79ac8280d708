"""Pairs that were put off since one of the two was on disk alone: made in bounded steps, productive partitions first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from headrace.memory import MemoryBudget
from headrace.progressive.logged.base import LoggedBase
from headrace.progressive.logged.checkpoint import NEVER
from headrace.progressive.logged.state_cache import make_side
from headrace.progressive.memory.side_memory import SideMemory

Batches = Iterator[pa.RecordBatch]
_BLOCK = 2  # times a step: rows that are caught up together


class CatchUp(LoggedBase):
    """Rows that owe pairs meet those they could not see. See LoggedJoin for what is owed.

    A block of rows that owe, of steps from `caught` to `target`, is put into memory; rows of the other side before what the block
    sees are read once, from `at` on where there was no time for all of them before.
    """

    def _catch_up(self, top: int, over: Callable[[], bool]) -> Batches:
        """Pairs of rows of steps before `top`, until time is over."""
        standing, ledger = self._standing, self._standing.ledger
        productive = ledger.results.sum(axis=0) / np.maximum(1, ledger.arrived.sum(axis=0))
        # Every other time those that owe longest: productive ones alone would starve the others, and hold back what expires.
        order = np.argsort(standing.caught if self.batch % 2 else -productive, kind="stable")
        for partition in order[(standing.owed > 0)[order]].tolist():
            while standing.owed[partition] and standing.caught[partition] < top:
                if over():
                    return
                yield from self._go_on(partition, top, over)

    def _go_on(self, partition: int, top: int, over: Callable[[], bool]) -> Batches:
        """One side of a block, or as much of it as there is time for."""
        standing = self._standing
        since = int(standing.caught[partition])
        if not standing.target[partition]:
            standing.target[partition] = self._block_end(partition, since, top)
            standing.phase[partition] = standing.at[partition] = 0
        until, number, first = (int(a[partition]) for a in (standing.target, standing.phase, standing.at))
        yield from self._unit(partition, number, since, until, first, None, over)
        self._units.append([partition, number, since, until, first, self._reached])
        if not self._through:
            standing.at[partition] = self._reached
            return
        standing.owed[partition] -= self._met
        standing.at[partition] = 0
        if number == 0:
            standing.phase[partition] = 1
        else:
            standing.caught[partition], standing.target[partition] = until, 0

    def _unit(
        self,
        partition: int,
        number: int,
        since: int,
        until: int,
        first: int,
        last: int | None,
        over: Callable[[], bool],
    ) -> Batches:
        """Rows of a side of steps from `since` to before `until` meet rows of the other of steps from `first` to before `last`.

        Without `last`: as far as they see, or until time is over. Notes how far it came, whether it is through, and how many rows
        of the side owe.
        """
        block, highest = self._block(partition, number, since, until)
        self._met = 0 if block is None else self._owing
        self._reached, self._through = max(first, highest), True
        if block is None:
            return
        other = 1 - number
        end = highest if last is None else last
        for found in self.rows[other].read(
            self.batch, since=first, until=end, partition=partition, not_before=self._oldest
        ):
            part = self.division.again(other, found.rows, found.partition)
            step, sees = found.step, block.arrived
            for out, _ in self._matches(other, part, block, lambda rows, slots: step[rows] < sees[slots]):  # noqa: B023
                yield out
            if over() and step[-1] + 1 < end:
                self._reached, self._through = int(step[-1]) + 1, False
                return

    def _block(self, partition: int, number: int, since: int, until: int) -> tuple[SideMemory | None, int]:
        """Rows that owe, in memory, with what they see as their stamp; and how far they see."""
        found = [
            r.where(r.sees > 0)
            for r in self.rows[number].read(self.batch, since=since, until=until, partition=partition)
        ]
        found = [r for r in found if r.rows.num_rows]
        self._owing, self._oldest = sum(r.rows.num_rows for r in found), NEVER
        if not found:
            return None, 0
        if (bound := self.pairing.bound) is not None:
            self._oldest = min(int(bound.times(number, r.rows).min()) for r in found) - bound.within
        parts = [self.division.again(number, r.rows, r.partition) for r in found]
        slots = sum(p.entries.row.size for p in parts)
        size = sum(p.rows.nbytes for p in parts) + (1 << 8) * slots
        side = make_side(number, self.pairing.schemas[number], self.division, MemoryBudget(2 * size + (1 << 16)))
        for r, part in zip(found, parts, strict=True):
            side.insert(part.rows, part.entries, part.values, part.at, r.sees[part.entries.row].astype(np.int64))
        return side, max(int(r.sees.max()) for r in found)

    def _block_end(self, partition: int, since: int, top: int) -> int:
        """The step before which rows of a partition that owe fit memory; at least one step."""
        end = top
        for log in self.rows:
            size = 0
            for found in log.read(self.batch, since=since, until=end, partition=partition):
                owing = int((found.sees > 0).sum()) * found.rows.nbytes // max(1, found.rows.num_rows)
                if size + owing > _BLOCK * self._chunk:
                    end = int(found.step[0]) if size else int(found.step[-1]) + 1
                    break
                size += owing
        return max(end, since + 1)
