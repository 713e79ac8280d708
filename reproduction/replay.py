"""The in-memory phase of a progressive join of keys, replayed on counts: what a policy does on many streams, in little time.

The policy, its ledger and what it flushes are those of the join; rows are not kept, only how many of each key are in memory. It
gives the join's numbers, but for one thing: of tuples of a partition that came in one batch and do not all leave, the first
leave here, and any in the join. tests/reproduction/test_replay.py compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.progressive import FlushPolicy, Ledger
from reproduction.pqp import GAP, Setting

Numbers = Any  # arrays


@dataclass(frozen=True)
class Tuples:
    """Of two streams in the order in which they arrive, by numbers."""

    side: Numbers
    partition: Numbers
    key: Numbers
    """numbered from 0"""
    partitions: int
    capacity: int
    chunk: int

    @classmethod
    def of(cls, setting: Setting) -> Tuples:
        """As `course` takes them in: keys of one column."""
        streams, dividing = setting.streams(), setting.partitioning()
        dividing.bind(0, streams.rows.schema)
        cell = dividing.home(0, dividing.read(0, streams.rows)).cell
        _, key = np.unique(np.asarray(streams.rows.column(0)), return_inverse=True)
        return cls(
            streams.side,
            dividing.partition_of(cell),
            key,
            dividing.partitions,
            round(setting.share * len(streams)),
            max(20, len(streams) // setting.chunks),
        )


class _Memory:
    """How many of each key are in memory. Tuples of a side and partition leave in the order in which they came."""

    def __init__(self, tuples: Tuples) -> None:
        self.tuples = tuples
        self.ledger = Ledger.empty(tuples.partitions)
        self.count = np.zeros((2, int(tuples.key.max()) + 1), np.int64)
        place = tuples.side * tuples.partitions + tuples.partition
        self.queue = np.argsort(place, kind="stable")
        self.head = np.searchsorted(place[self.queue], np.arange(2 * tuples.partitions))

    @property
    def held(self) -> int:
        return int(self.ledger.held.sum())

    def probe(self, number: int, some: Numbers) -> int:
        found = self.count[1 - number, self.tuples.key[some]]
        made = np.bincount(self.tuples.partition[some], found, self.tuples.partitions).astype(np.int64)
        self.ledger.results[1 - number] += made
        self.ledger.recent[1 - number] += made
        return int(found.sum())

    def insert(self, number: int, some: Numbers) -> None:
        np.add.at(self.count[number], self.tuples.key[some], 1)
        came = np.bincount(self.tuples.partition[some], minlength=self.tuples.partitions)
        for counts in (self.ledger.held, self.ledger.arrived, self.ledger.fresh):
            counts[number] += came

    def flush(self, policy: FlushPolicy, least: int) -> None:
        size = self.ledger.held.reshape(-1)
        wanted = min(self.held, max(least, policy.wanted(self.held)))
        scores, there = policy.scores(self.ledger).reshape(-1), np.flatnonzero(size)
        order = there[np.argsort(scores[there], kind="stable")]
        ends = np.cumsum(size[order])
        order = order[: int(np.searchsorted(ends, wanted)) + 1]
        goes = size[order]
        goes[-1] -= ends[order.size - 1] - wanted
        gone = np.concatenate([self.queue[at : at + n] for at, n in zip(self.head[order], goes, strict=True)])
        np.subtract.at(self.count, (self.tuples.side[gone], self.tuples.key[gone]), 1)
        self.head[order] += goes
        size[order] -= goes
        self.ledger.fresh[:], self.ledger.recent[:] = 0, 0
        self.ledger.flushes += 1


def replay(tuples: Tuples, policy: FlushPolicy) -> float:
    """Results a second of the in-memory phase, of a policy that scores partitions and may flush a part of one."""
    if policy.per_tuple or policy.pairs or policy.whole:
        raise ValueError(f"{type(policy).__name__} does not flush the oldest of a partition; measure it with `course`")
    memory, sent = _Memory(tuples), 0
    for begin in range(0, tuples.side.size, tuples.chunk):
        side = tuples.side[begin : begin + tuples.chunk]
        for number in (0, 1):
            rows, step = begin + np.flatnonzero(side == number), max(1, policy.wanted(tuples.capacity))
            for at in range(0, rows.size, step):
                some = rows[at : at + step]
                sent += memory.probe(number, some)
                policy.arrive(number, tuples.key[some].astype(np.uint64), tuples.partition[some])
                while (over := memory.held + some.size - tuples.capacity) > 0 and memory.held:
                    memory.flush(policy, over)
                memory.insert(number, some)
    return float(sent / (tuples.side.size * GAP))


class Told(FlushPolicy):
    """Knows how likely each partition is until the next change, and flushes the least likely: no policy can know more than that.

    Parameters
    ----------
    chances
        Of partitions, [phase, partition].
    phase
        How many tuples come between two changes.
    share
        See FlushPolicy.
    """

    def __init__(self, chances: Numbers, phase: int, share: float = 1 / 32) -> None:
        super().__init__(share)
        self.chances = chances
        self._phase = phase
        self._came = 0

    def arrive(self, side: int, cells: Any, partitions: Any) -> None:
        """Tells the time."""
        self._came += partitions.size

    def _scores(self, ledger: Ledger) -> Numbers:
        now = self.chances[(self._came - 1) // self._phase]
        return np.stack([now, now])
